"""
The lab: a hall on PostgreSQL, hubs that serve it, and a crowd of clients.

    crowd ── REST, WebSocket ──▶ hubs ── proxies, if wanted ──▶ PostgreSQL, which may be stopped too
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import eventually
from tests.edges.fleet import rows
from tests.edges.prefork import ROOT
from tests.edges.program import ask
from tests.faults.caller import Caller
from tests.faults.crowd import Spec
from tests.faults.hubs import HubProcess
from tests.faults.proxy import Proxy
from tests.faults.record import History, Record
from tests.faults.server import Server

LEASE_SECONDS = 6
SETTLE_SECONDS = 60.0
SILENCE_SECONDS = 0.3
FOLLOWERS = 4


@dataclass(frozen=True)
class Load:
    """How many hubs and agents there are, and what the agents do (tests/faults/crowd.py)."""

    hubs: int = 2
    agents: int = 16
    shape: str = "many"
    share: float = 0.0
    pause: float = 0.2
    patience: float = 5.0
    through_proxies: bool = False
    hours: int = 0  # that the wall clock of the first hub is off
    settings: dict[str, str] = field(default_factory=lambda: {"CREWHALL_AGENT_LEASE": f"{LEASE_SECONDS}s"})


class Lab:
    def __init__(self, directory: Path, server: Server, load: Load) -> None:
        self.directory, self.server, self.load = directory, server, load
        self.database = server.create_empty()
        self._stack = ExitStack()
        self._stack.callback(server.drop, self.database)
        self.hubs: list[HubProcess] = []
        for number in range(load.hubs):
            self.hubs.append(self._hub(number))
            self._stack.callback(self.hubs[-1].end)
        self.history = History(directory / "history.jsonl")
        self.asked_twice: list[Record] = []
        self.longest_claims: list[float] = []  # that were left to agents who had fallen silent

    def _hub(self, number: int) -> HubProcess:
        proxy = Proxy(self.server.port) if self.load.through_proxies else None
        url = self.database.replace(f":{self.server.port}/", f":{proxy.port}/") if proxy else self.database
        home = self.directory / f"hub{number}" / "home"
        return HubProcess(
            home, f"{url}?application_name=hub{number}", self.load.settings, proxy, 0 if number else self.load.hours
        )

    def begin(self) -> None:
        """Clients come, and are at work."""
        made = [self.token(f"agent {number}") for number in range(self.load.agents)]
        self.agents = {agent for agent, _ in made}
        followers = [self.token(f"follower {number}") for number in range(FOLLOWERS)]
        self._twice = self.token("twice")
        spec = Spec(
            [hub.port for hub in self.hubs],
            made,
            self.token("planner"),
            followers,
            *(self.load.shape, self.load.share, self.load.pause, self.load.patience),
        )
        spec.save(self.directory)
        self._crowd = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.crowd", str(self.directory)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(self._end_crowd)
        self._hear("begun")
        eventually(lambda: len({one.agent for one in self.writes()}) >= self.load.agents, SETTLE_SECONDS)

    def token(self, name: str) -> tuple[str, str]:
        """A new agent, by its id and token."""
        made: dict[str, Any] = ask(self.hubs[-1].up, "agent/token", name=name, role="coordinator")
        return made["agent_id"], made["token"]

    @contextmanager
    def asking_twice(self, times: int) -> Iterator[None]:
        """During the block, a client gives messages to the first hub, which is silent, and to another, with one key."""
        over = threading.Event()
        ports = [hub.port for hub in self.hubs]
        caller = Caller(*self._twice, ports, 0, SILENCE_SECONDS, self.asked_twice.append, over)

        def ask_twice() -> None:
            for _ in range(times):
                caller.create("message_send", "body", recipient_id="operator", message_type="notification")
                caller.turn(0)

        thread = threading.Thread(target=ask_twice)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            caller.close()

    def writes(self) -> list[Record]:
        """What the agents were told is done, until now."""
        return [one for one in self.history.read() if one.is_write]

    def _say(self, order: str) -> None:
        assert self._crowd.stdin is not None
        self._crowd.stdin.write(order + "\n")
        self._crowd.stdin.flush()

    def _hear(self, wanted: str) -> None:
        assert self._crowd.stdout is not None
        heard = self._crowd.stdout.readline().strip()
        assert heard == wanted, f"the clients say {heard!r}, not {wanted!r}"

    def settle(self) -> int:
        """Agents end after what they do, and followers after the newest event, or when it doesn't come; its number."""
        self._say("rest")
        self._hear("resting")
        newest: int = rows(self.database, "SELECT max(seq) FROM event")[0][0]
        self._say(f"end {newest}")
        assert self._crowd.stdout is not None
        self._crowd.stdout.readline()  # the checker says what a follower missed
        return newest

    def _end_crowd(self) -> None:
        assert self._crowd.stdin is not None
        self._crowd.stdin.close()
        try:
            self._crowd.wait(10)
        except subprocess.TimeoutExpired:
            self._crowd.kill()
            self._crowd.wait(10)

    def logs(self) -> str:
        """What the hubs have logged."""
        return "".join(log.read_text() for log in sorted(self.directory.glob("hub*/hub-*.log")))

    def close(self) -> None:
        self._stack.close()


@contextmanager
def lab(directory: Path, server: Server, load: Load) -> Iterator[Lab]:
    """A lab whose clients are at work."""
    made = Lab(directory, server, load)
    try:
        made.begin()
        yield made
    finally:
        made.close()
