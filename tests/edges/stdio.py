"""A client of `crewhall mcp`: a bridge as a process of its own, asked line by line."""

import fcntl
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from crewhall import config
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.edges.bridge.launch import hub_environment
from tests.conftest import Live, eventually
from tests.edges.interfaces import CREWHALL, META, MODERN
from tests.edges.prefork import environment as prefork_environment
from tests.edges.prefork import prefork
from tests.edges.program import PASSED_ON

LEGACY = "2025-11-25"


class Stdio:
    """A client in one of the eras. Answers are sorted by id as they come; notifications are kept in order.

    Its bridge is real. A hub that the bridge starts is forked (tests/edges/prefork.py), or real with **REAL.
    """

    def __init__(
        self,
        home: Path,
        *words: str,
        version: str = MODERN,
        command: str = "mcp",
        **environment: str,
    ) -> None:
        self.version = version
        around = PASSED_ON | prefork_environment() | environment
        self.process = self._start(["--home", str(home), command, *words], around)
        self.notices: list[dict[str, Any]] = []
        self._answers: dict[Any, queue.SimpleQueue[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self, words: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen([CREWHALL, *words], env=environment, stdin=pipe, stdout=pipe, stderr=pipe)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message:
                self.notices.append(message)
            else:
                self._box(message["id"]).put(message)

    def _box(self, name: Any) -> "queue.SimpleQueue[dict[str, Any]]":
        return self._answers.setdefault(json.dumps(name), queue.SimpleQueue())

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method: str, name: Any = None, /, **params: Any) -> Any:
        """Send a request, and return its id."""
        name = f"r{next(self._ids)}" if name is None else name
        if self.version == MODERN:
            params["_meta"] = META | params.get("_meta", {})
        self.write(json.dumps({"jsonrpc": "2.0", "id": name, "method": method, "params": params}).encode() + b"\n")
        return name

    def notify(self, method: str, **params: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def answer(self, name: Any, seconds: float = 60.0) -> dict[str, Any]:
        """The answer to a request."""
        return self._box(name).get(timeout=seconds)

    def has_answer(self, name: Any) -> bool:
        return not self._box(name).empty()

    def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        return self.answer(self.send(method, **params))

    def initialize(self) -> dict[str, Any]:
        """The handshake of a 2025-era client."""
        self.version = LEGACY
        info = {"name": "test", "version": "1"}
        answer = self.ask("initialize", protocolVersion=LEGACY, capabilities={}, clientInfo=info)
        self.notify("notifications/initialized")
        return answer

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The body of a tool's result."""
        answer = self.ask("tools/call", name=tool, arguments=arguments)
        assert "result" in answer, answer
        body: dict[str, Any] = answer["result"]["structuredContent"]
        return body

    def count(self) -> int:
        """How many agents the hall has."""
        body = self.call("agent_list", limit=1)
        assert "total" in body, body
        total: int = body["total"]
        return total

    def close(self) -> int:
        """End the client's side, and wait for the bridge to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(40)
        self._finish()
        return code

    def _finish(self) -> None:
        self._reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._finish()


@contextmanager
def bridges(home: Path, count: int = 1, *words: str, **environment: str) -> Iterator[list[Stdio]]:
    """So many clients of one hall, started at once; the hub that they start is ended with them."""
    clients = [Stdio(home, *words, **environment) for _ in range(count)]
    try:
        yield clients
    finally:
        for client in clients:
            client.kill()
        end_hubs(home)


@contextmanager
def warm_bridges(home: Path, count: int = 1, *words: str, **environment: str) -> Iterator[list[Stdio]]:
    """The same with a hub that is up before them: quicker, where it does not matter who starts it."""
    start_hub(home, **environment)
    with bridges(home, count, *words, **environment) as clients:
        yield clients


def start_hub(home: Path, **environment: str) -> int:
    """Start a hub as a bridge does, but forked; its pid once it is up."""
    around = hub_environment(PASSED_ON | environment)
    hub_socket = HubSocket(config.load(around, {"home": str(home)}))
    lock = hub_socket.try_lock()
    assert lock is not None, "a hub runs already"
    words = ["--home", str(home), "up", "--lock", str(lock)]
    with (home / "hub.log").open("a") as log, open(os.devnull) as nothing:
        files = [nothing.fileno(), log.fileno(), log.fileno(), lock]
        process = prefork().start(words, around, files, cwd=str(home), session=True)
    os.close(lock)
    eventually(lambda: process.pid in hubs(home), 30)
    return process.pid


def end_hubs(home: Path) -> None:
    """End the hubs that bridges have started, one that is still starting too."""
    for path in home.glob("hub-*.lock"):
        eventually(partial(_is_freed, home, path), 60)


def _is_freed(home: Path, lock: Path) -> bool:
    """Whether no hub holds the lock any more, nor is about to."""
    for pid in hubs(home):
        end(pid, signal.SIGTERM)
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def hall_of(live: Live) -> dict[str, str]:
    """The environment by which a bridge finds the hub of a test's own process."""
    database = live.hub.settings.database
    return {"CREWHALL_DATABASE_URL" if "://" in database else "MCP_DATABASE_PATH": database}


def hubs(home: Path) -> list[int]:
    """The processes that serve this hall."""
    found = []
    for path in home.glob("hub-*.json"):
        pid = int(path.stem.partition("-")[2])
        if is_alive(pid):
            found.append(pid)
    return found


def the_hub(home: Path) -> int:
    """The one process that serves this hall."""
    (pid,) = hubs(home)
    return pid


def is_alive(pid: int) -> bool:
    """Whether any thread of a process still runs; a leader may be dead before the others let go of its files."""
    return any(state not in "ZX" for state in thread_states(pid))


def thread_states(pid: int) -> list[str]:
    """The state of each thread of a process, as the kernel letters it: S sleeps, Z is dead; none if it is gone."""
    states = []
    with suppress(OSError):  # it may go while we look
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                stat = Path(f"/proc/{pid}/task/{thread}/stat").read_text()
                states.append(stat.rpartition(")")[2].split()[0])
    return states


def end(pid: int, number: int) -> None:
    """Signal a process, and wait for its end."""
    os.kill(pid, number)
    eventually(lambda: not is_alive(pid), 30)
