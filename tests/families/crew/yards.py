"""A hall that starts instances, and a repository for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.families.all import registry
from crewhall.families.crew.site import tmux_of
from crewhall.identity import Actor
from tests.conftest import eventually, settings_for
from tests.outside.repos import commit, make_repository

PERSON = Actor("operator", "operator", proof="token")
PROGRAM = "env > env.txt; mv env.txt seen.txt; exec sleep 600"


class Yard:
    """A hall whose instances write their environment to a file, and a repository."""

    def __init__(
        self, directory: Path, program: str = PROGRAM, clock: Callable[[], int] | None = None, **settings: Any
    ) -> None:
        self.repo = make_repository(directory / "shop")
        self.root = Path(self.repo.root)
        (self.root / ".gitignore").write_text(".env\nseen.txt\nenv.txt\nready.txt\n")
        commit(self.root, "ignore")
        runtimes = {"custom": {"command": ["sh", "-c", program]}}
        chosen = settings_for(str(directory / "hall.db"), directory / "home", crew__runtimes=runtimes, **settings)
        self.hub = Hub(chosen, registry(), clock=clock)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.hub.call(tool, arguments, PERSON)

    def start(self, **more: Any) -> dict[str, Any]:
        where = {"prompt": "Do it", "repository_path": self.repo.root, "runtime": "custom"}
        return self.call("instance_start", **where | more)

    def refusal(self, tool: str, **arguments: Any) -> Failure:
        """The failure of a call that must fail."""
        with pytest.raises(Failure) as refused:
            self.call(tool, **arguments)
        return refused.value

    def environment(self, started: dict[str, Any]) -> dict[str, str]:
        """What the program of an instance was given."""
        path = Path(started["worktree_path"], "seen.txt")
        text = eventually(lambda: path.exists() and path.read_text())
        return dict(line.partition("=")[::2] for line in text.splitlines())

    def get(self, started: dict[str, Any]) -> dict[str, Any]:
        return self.call("instance_get", id=started["instance_id"])

    def close(self) -> None:
        tmux = tmux_of(self.hub.settings)
        for session in tmux.panes():
            tmux.kill(session)
        self.hub.close()
