"""A port that changes its owner: what one user sent from it is never taken for the next one's."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewhall.edges.bridge.address_files import AddressFile
from crewhall.families.project.open_worktrees import LISTENER
from crewhall.identity import OPERATOR
from tests.conftest import Live, eventually, serve_for_module
from tests.edges import stranger
from tests.edges.interfaces import MODERN
from tests.edges.program import Program
from tests.edges.raw_http import mcp_headers, mcp_params
from tests.postgres import free_port, missing
from tests.sizes import size

GREETING = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can run a process as another user")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with serve_for_module(tmp_path_factory.mktemp("ports")) as live:
        eventually(lambda: live.hub.state(LISTENER).servers)
        yield live


@pytest.fixture(scope="module")
def worktree_port(live: Live, tmp_path_factory: pytest.TempPathFactory) -> int:
    made = live.hub.call("worktree_open", {"path": str(tmp_path_factory.mktemp("tree"))}, OPERATOR, edge="rest")
    port: int = made["mcp"]["port"]
    return port


class Stranger:
    """stranger.py, run by `nobody`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def hear(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{word}\n"


@contextlib.contextmanager
def as_nobody(own: int, server: int, request: bytes) -> Iterator[Stranger]:
    words = (str(own), str(server), request.hex(), GREETING.hex())
    with run_as_nobody(Path(stranger.__file__).read_text(), *words) as process:
        yield Stranger(process)


@contextlib.contextmanager
def run_as_nobody(program: str, *words: str) -> "Iterator[subprocess.Popen[str]]":
    python, runuser = shutil.which("python3", path="/usr/bin"), shutil.which("runuser")
    if python is None or runuser is None:
        missing("runuser and a Python that every user may run")
    with subprocess.Popen(
        [str(runuser), "-u", "nobody", "--", str(python), "-S", "-c", program, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as process:
        try:
            yield process
        finally:
            process.communicate(timeout=20)


@contextlib.contextmanager
def busy(live: Live) -> Iterator[None]:
    """The hub's event loop does something else for the length of the block."""
    has_begun, end = threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        end.wait(20)

    live.loop.call_soon_threadsafe(work)
    assert has_begun.wait(20)
    try:
        yield
    finally:
        end.set()


def post(path: str, body: dict[str, object], **headers: str) -> bytes:
    text = json.dumps(body)
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(text)}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", text]).encode()


REGISTER = post("/api/v1/agent/register", {"name": "stranger"})
READ = post(
    "/mcp",
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": mcp_params(MODERN, name="read_file", arguments={"path": "a"}),
    },
    **mcp_headers(MODERN, "tools/call", "read_file"),
)


def calls(live: Live, tool: str) -> int:
    return sum(live.hub.meter.tallies()[tool].outcomes.values())


def take_over(own: int, server: int) -> None:
    """A request of ours from this port, answered after everything that came before it."""
    with stranger.connect(own, server) as ours:
        finish(ours)


def finish(ours: socket.socket) -> None:
    ours.settimeout(20)
    ours.sendall(GREETING)
    assert ours.recv(65536)


def attack(live: Live, server: int, request: bytes, *, was_accepted: bool) -> None:
    """The loop is busy while the stranger sends and resets, and a process of ours gets its port."""
    own = free_port()
    with as_nobody(own, server, request) as nobody:
        for _ in range(size(5, 1000)):
            if was_accepted:
                nobody.tell("greet")
                nobody.hear("met")
            with busy(live):
                nobody.tell("send")
                nobody.hear("sent")
                ours = stranger.connect(own, server)
            with ours:
                finish(ours)


@pytest.mark.parametrize("was_accepted", [True, False])
def test_a_request_is_judged_by_who_sent_it_not_by_who_has_the_port_now(
    live: Live, worktree_port: int, was_accepted: bool
) -> None:
    for server, tool, request in ((live.port, "agent_register", REGISTER), (worktree_port, "read_file", READ)):
        before = calls(live, tool)
        attack(live, server, request, was_accepted=was_accepted)
        assert calls(live, tool) == before


def test_a_watcher_is_judged_by_who_connected(live: Live) -> None:
    attack(live, live.port, UPGRADE, was_accepted=True)
    assert live.server.services.feed.newest_sent() == 2**63, "no one was let in, so no one watches"


def test_two_users_that_race_for_a_port_stay_who_they_are(live: Live) -> None:
    own, rounds, before = free_port(), size(200, 20_000), calls(live, "agent_register")
    with as_nobody(own, live.port, REGISTER) as nobody:
        nobody.tell(f"storm {rounds}")
        for _ in range(rounds):
            with stranger.connect(own, live.port) as ours:
                ours.sendall(GREETING)
        nobody.hear("sent")
        take_over(own, live.port)
    assert calls(live, "agent_register") == before


LISTEN = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    listener.settimeout(20)
    for _ in range(2):  # a look whether anyone listens, and the command itself
        connection, _ = listener.accept()
        print(connection.recv(10_000), flush=True)
"""


def test_a_command_sends_no_token_to_another_users_process(program: Program) -> None:
    with program.up():
        token = (program.home / "operator.token").read_text().strip()
    with run_as_nobody(LISTEN) as process:
        assert process.stdout is not None
        address_file = AddressFile(program.settings)
        address_file.write(f"http://127.0.0.1:{process.stdout.readline().strip()}")
        try:
            done = program.run("agent", "list")
        finally:
            address_file.remove()
        came = [process.stdout.readline().strip() for _ in range(2)]
    assert (done.code, came) == (7, ["b''"] * 2)
    assert "your token was not sent there" in done.err and token not in done.err
