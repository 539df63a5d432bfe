"""Real clients in a hall, each with what `crewhall config --write` wrote, whose models the test leads turn by turn."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crewhall.token_file import TOKEN_FILE
from tests.edges.claude import SERVER, asking_at
from tests.edges.conftest import make_home
from tests.edges.interfaces import CREWHALL
from tests.edges.program import Program
from tests.edges.stdio import end, end_hubs, start_hub, the_hub
from tests.npm import need
from tools.clients import codex_provider, surroundings, write
from tools.npm import CLAUDE_CODE, CODEX
from tools.stubs import anthropic, openai
from tools.stubs.anthropic import Play, Turn, Use

Json = dict[str, Any]
SECONDS = 30.0  # within which a client has started, or has what a tool gave
CODEX_WORDS = ["codex", "exec", "--skip-git-repo-check", "Join the hall."]
CLAUDE_WORDS = ["claude", "-p", "--allowedTools", SERVER, "--", "Join the hall."]


@dataclass
class LedModel:
    """A model that waits before each turn until the test gives it; its client waits with it.

    `requests` is all that it was sent, and `told` reads one of them, as the stub of its API does.
    """

    told: Callable[[Json], tuple[str, list[Any]]]
    requests: list[Json] = field(default_factory=list)
    _turns: list[Turn] = field(default_factory=list)
    _results: dict[int, Any] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def play(self, asked: str) -> Play:
        """Its script, played again from the start for each request."""
        number = 0
        while True:
            result = yield self._turn(number)
            with self._changed:
                self._results[number] = result
                self._changed.notify_all()
            number += 1

    def _turn(self, number: int) -> Turn:
        with self._changed:
            self._changed.wait_for(lambda: number < len(self._turns))
            return self._turns[number]

    def take(self, turn: Turn) -> int:
        """Give it its next turn; the turn's number."""
        with self._changed:
            self._turns.append(turn)
            self._changed.notify_all()
            return len(self._turns) - 1

    def result(self, number: int) -> Any:
        """What the tool of this turn gave, once the client has sent it."""
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._results, SECONDS), "the client sent no result"
            return self._results[number]


@dataclass
class LedClient:
    """Claude Code or Codex, in the middle of what it was asked."""

    process: "subprocess.Popen[str]"
    model: LedModel
    said: Path

    def call(self, tool: str, /, **arguments: Any) -> Json:
        """The model calls a tool of the hall: the body that it is given."""
        result = self.model.result(self.model.take(Use(f"{SERVER}__{tool}", arguments)))
        assert isinstance(result, dict), f"{tool} gave {result}: {self.said.read_text()}"
        return result

    def kill(self) -> None:
        """End it as kill -9 does, with the processes of its own that it started; the bridge is none of them."""
        for pid in (self.process.pid, *_programs_below(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)

    def finish(self) -> None:
        """Let it say that it is done, and wait for its end."""
        self.model.take("done")
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


def _programs_below(pid: int) -> list[int]:
    """The processes that a client started to be itself: Codex from npm is Node, which starts the program."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if CREWHALL not in Path(f"/proc/{child}/cmdline").read_text()]


@dataclass
class Site:
    """A hall with a hub in a process of its own."""

    home: Path

    @property
    def url(self) -> str:
        """Where the hub is."""
        found: str = json.loads((self.home / f"hub-{the_hub(self.home)}.json").read_text())["url"]
        return found

    def ask(self, tool: str, /, **arguments: Any) -> Json:
        """A call of the person's, by the operator's token."""
        return asking_at(self.url, (self.home / TOKEN_FILE).read_text().strip())(tool, **arguments)

    def kill_hub(self) -> None:
        """Kill the hub, and start the next."""
        end(the_hub(self.home), signal.SIGKILL)
        start_hub(self.home)

    @contextmanager
    def claude(self) -> Iterator[LedClient]:
        """Claude Code, without a token."""
        need(CLAUDE_CODE)
        model = LedModel(anthropic.told)
        with anthropic.plays(model.play, model.requests) as url:
            around = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
            with led(CLAUDE_WORDS, self._place("claude"), model, around) as client:
                yield client

    @contextmanager
    def codex(self) -> Iterator[LedClient]:
        """Codex, without a token."""
        need(CODEX)
        model = LedModel(openai.told)
        with openai.plays(model.play, model.requests) as url:
            place = self._place("codex", codex_provider(url))
            with led(CODEX_WORDS, place, model, {"SCRIPTED_KEY": "none"}) as client:
                yield client

    def _place(self, client: str, settings: str = "") -> Path:
        """A home with the client's settings, to which README's first command has added the hall."""
        place = self.home.parent / f"{client} {len(list(self.home.parent.iterdir()))}"
        write(place / ".codex/config.toml", settings)
        around = {name: text for name, text in surroundings(place).items() if name in ("HOME", "CLAUDE_CONFIG_DIR")}
        done = Program(self.home).here("config", "--client", client, "--write", **around)
        assert done.code == 0, done
        return place


@contextmanager
def site_on(database: str, parent: Path, settings: str = "") -> Iterator[Site]:
    """A hall on this database, with more settings in TOML, until the block ends."""
    where = "url" if "://" in database else "path"
    home = make_home(parent, f"[database]\n{where} = {json.dumps(database)}\n{settings}")
    start_hub(home)
    try:
        yield Site(home)
    finally:
        end_hubs(home)


@contextmanager
def led(words: list[str], place: Path, model: LedModel, environment: dict[str, str]) -> Iterator[LedClient]:
    """A client in this home, until the block ends."""
    said = place / "said.txt"
    with said.open("w") as out:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, "text": True}
        process = subprocess.Popen(words, env=surroundings(place) | environment, cwd=place, **streams)
    client = LedClient(process, model, said)
    try:
        yield client
    finally:
        client.finish()
