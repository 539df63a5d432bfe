"""Commands that run inside an instance's session, as its program's own children: files take them in and out."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.families.crew.site import tmux_of
from tests.conftest import eventually, settings_for
from tests.edges.prefork import ROOT, Done
from tests.outside.repos import make_repository
from tests.trials import PERSON

Json = dict[str, Any]
PROGRAM = str(Path(__file__).with_name("session_program.py"))


class Session:
    """An instance that does what the test tells it."""

    def __init__(self, hub: Hub, place: Path, repository: str, title: str = "guard") -> None:
        self._place = place
        self._numbers = itertools.count(1)
        words = {"prompt": "Obey", "title": title, "repository_path": repository, "runtime": "custom"}
        self.made = hub.call("instance_start", words, PERSON)
        self.id: str = self.made["instance_id"]
        self.agent: str = self.made["agent_id"]

    def run(
        self, *words: str, text: str = "", unset: tuple[str, ...] = (), forked: bool = False, **variables: str
    ) -> Done:
        """Run a command in the session, to its end."""
        number = next(self._numbers)
        part = self._place / "asked"
        asked = {"words": words, "text": text, "set": variables, "unset": unset, "forked": forked}
        part.write_text(json.dumps(asked))
        part.rename(self._place / f"{number}.json")
        return Done(*json.loads(eventually((self._place / f"{number}.done").read_text, 40)))

    def crewhall(self, *words: str, token: str | None = None) -> Json:
        """The body that the command line prints in the session; without a token it takes what it finds."""
        chosen: Any = {"unset": ("CREWHALL_TOKEN",)} if token is None else {"CREWHALL_TOKEN": token}
        done = self.run("--json", *words, forked=True, **chosen)
        body: Json = json.loads(done.out) if done.out else {"err": done.err}
        return body


def runtimes(place: Path) -> Json:
    """The setting `crew.runtimes` with a program that runs what is put into this directory."""
    place.mkdir()
    return {"custom": {"command": [sys.executable, PROGRAM, str(place)], "environment": {"PYTHONPATH": str(ROOT)}}}


@contextmanager
def hall(directory: Path, **more: Any) -> Iterator[tuple[Hub, Callable[[], Session]]]:
    """A hub on SQLite, not served yet, and a function that starts an instance in it."""
    home, place = directory / "home", directory / "orders"
    settings = settings_for(str(home / "hall.db"), home, crew__runtimes=runtimes(place), **more)
    repository = make_repository(directory / "shop").root
    with closing(Hub(settings, registry())) as hub:
        try:
            yield hub, lambda: Session(hub, place, repository)
        finally:
            end_sessions(hub)


def end_sessions(hub: Hub) -> None:
    tmux = tmux_of(hub.settings)
    for session in tmux.panes():
        tmux.kill(session)
