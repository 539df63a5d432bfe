"""Clients that keep the hub waiting: time limits, and room for others when connections or descriptors get few."""

import contextlib
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx2
import pytest
from websockets.sync.client import connect

from crewhall.edges.http import connection, waiting_room
from crewhall.edges.http.connection import STRANGERS_AHEAD
from crewhall.families.project.open_worktrees import LISTENER
from crewhall.identity import OPERATOR
from tests.conftest import Live, eventually, serve_for_module
from tests.edges.raw_http import assert_alive, http

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HUNDRED = POST + b"Content-Length: 100\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LIST = POST.replace(b"/mcp", b"/api/v1/agent/list") + b"Content-Length: 100\r\n\r\n"
BIG = b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with serve_for_module(tmp_path_factory.mktemp("room")) as live:
        eventually(lambda: live.hub.state(LISTENER).servers)
        yield live


@pytest.fixture
def worktree_port(live: Live, tmp_path_factory: pytest.TempPathFactory) -> int:
    made = live.hub.call("worktree_open", {"path": str(tmp_path_factory.mktemp("tree"))}, OPERATOR, edge="rest")
    port: int = made["mcp"]["port"]
    return port


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, live: Live) -> None:
    """The same limits, in fractions of a second."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.5)
    monkeypatch.setattr(connection, "WHOLE_BODY_SECONDS", 1.0)
    monkeypatch.setattr(connection, "READ_SECONDS", 0.5)
    monkeypatch.setattr(live.server.config, "timeout_keep_alive", 1)


def answer_until_end(port: int, begin: bytes, drip: bytes = b"", seconds: float = 15) -> bytes:
    """What a client gets that begins so and then sends a byte now and then, until the hub hangs up."""
    answer, end = b"", time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port), seconds) as client:
        client.sendall(begin)
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < end:
                if select.select([client], [], [], 0.1)[0]:
                    piece = client.recv(65536)
                    if not piece:
                        return answer
                    answer += piece
                elif drip:
                    client.sendall(drip)
            raise AssertionError(f"the hub still waits for {begin!r} and {drip!r}")
    return answer


def all_of(*works: Callable[[], Any]) -> list[Any]:
    """What these give, done at the same time."""
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n, work=work: found.update({n: work()})) for n, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [found.get(n) for n in range(len(works))]


KINDS = {
    "silent": (b"", b"", b""),
    "half a head": (GET[:-2], b"", b"408"),
    "a head without end": (GET[:-2], b"X", b"408"),
    "half a body": (HUNDRED + b"{", b"", b"408"),
    "a body that was asked for": (HUNDRED[:-2] + b"Expect: 100-continue\r\n\r\n", b"", b"100"),
    "a body by the byte": (HUNDRED, b" ", b"408"),
    "chunks by the byte": (CHUNKED, b"1\r\n \r\n", b"408"),
    "line ends after an answer": (GET, b"\r\n", b"200"),
}


def test_who_keeps_the_hub_waiting_is_sent_away_on_every_port(live: Live, worktree_port: int, impatient: None) -> None:
    kinds = [(live.port, *kind) for kind in KINDS.values()]
    kinds += [(worktree_port, *kind) for kind in KINDS.values() if kind[0] != GET]
    answers = all_of(*(partial(answer_until_end, *kind[:3]) for kind in kinds))
    for answer, (port, begin, drip, status) in zip(answers, kinds, strict=True):
        assert answer is not None and answer[9:12] == status, (port, begin, drip, answer)
    assert_alive(live)


def test_who_is_waited_on_is_not_sent_away(live: Live, impatient: None) -> None:
    """Event streams, WebSockets and requests that the hub still works at, for longer than any limit."""
    url = live.url.replace("http", "ws")
    with (
        connect(f"{url}/api/v1/events", compression=None) as watcher,
        httpx2.stream("GET", f"{live.url}/sse", timeout=30) as stream,
        socket.create_connection(("127.0.0.1", live.port), 20) as slow,
    ):
        events = stream.iter_text()
        assert "endpoint" in next(events)
        watcher.recv(timeout=20)
        slow.sendall(LIST + b" " * 50)
        slow.sendall(b" " * 48 + b"{}")
        assert slow.recv(65536).startswith(b"HTTP/1.1 200")
        all_of(*(lambda: answer_until_end(live.port, b"") for _ in range(2)))  # the limits are over
        live.hub.call("agent_register", {"name": "late", "runtime": "custom"}, OPERATOR)
        assert "late" in watcher.recv(timeout=20)
        stream.close()


def test_a_body_that_the_hub_makes_wait_is_not_late(live: Live, impatient: None) -> None:
    eventually(lambda: not live.server.server_state.connections)
    with socket.create_connection(("127.0.0.1", live.port), 20) as client:
        client.sendall(LIST)
        ours: Any
        (ours,) = eventually(lambda: list(live.server.server_state.connections))
        eventually(lambda: ours.cycle)
        live.loop.call_soon_threadsafe(ours.flow.pause_reading)
        for _ in range(2):
            answer_until_end(live.port, b"")  # the limits are over
        live.loop.call_soon_threadsafe(ours.flow.resume_reading)
        client.sendall(b" " * 98 + b"{}")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_who_does_not_read_is_sent_away_and_who_reads_slowly_is_not(live: Live, impatient: None) -> None:
    before = set(live.server.server_state.connections)
    with (
        socket.create_connection(("127.0.0.1", live.port), 20) as deaf,
        socket.create_connection(("127.0.0.1", live.port), 20) as slow,
    ):
        for client in (deaf, slow):
            client.sendall(BIG * 80)
        heard = 0
        while heard < 15_000_000:
            piece = slow.recv(200_000)
            assert piece, f"the hub hung up after {heard} bytes"
            heard += len(piece)
            if select.select([deaf], [], [deaf], 0)[2]:
                break
        eventually(lambda: set(live.server.server_state.connections) <= before, 20)
    assert_alive(live)


UPGRADE = (
    b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
UNREADABLE = {
    "many headers": UPGRADE + b"".join(b"X-%d: x\r\n" % n for n in range(200)) + b"\r\n",
    "a long header": UPGRADE + b"X: " + b"x" * 20_000 + b"\r\n\r\n",
    "a long path": UPGRADE.replace(b"events", b"events?x=" + b"x" * 20_000) + b"\r\n",
    "a body": UPGRADE + b"Content-Length: 5\r\n\r\n",
    "a body in chunks": UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_websocket_whose_head_cannot_be_read_is_refused(live: Live, kind: str) -> None:
    assert answer_until_end(live.port, UNREADABLE[kind]).startswith(b"HTTP/1.1 400")
    assert_alive(live)


def test_a_websocket_that_is_refused_and_reads_nothing_is_sent_away(live: Live, impatient: None) -> None:
    """It has not read an answer that came before, so the refusal can't be sent."""
    eventually(lambda: not live.server.server_state.connections)
    with socket.create_connection(("127.0.0.1", live.port), 20) as deaf:
        deaf.sendall(BIG)
        ours: Any
        (ours,) = eventually(lambda: list(live.server.server_state.connections))
        eventually(lambda: ours.cycle and ours.cycle.response_complete)
        sent = [live.server.server_state.total_requests]
        while not ours.transport.get_write_buffer_size():
            deaf.sendall(BIG)
            sent.append(1)
            eventually(lambda: live.server.server_state.total_requests >= sum(sent))
        deaf.sendall(UPGRADE + b"\r\n")
        eventually(lambda: not live.server.server_state.connections, 20)
    assert_alive(live)


def test_an_open_websocket_is_counted_until_it_ends(live: Live) -> None:
    room = live.server.services.room
    eventually(lambda: not room._visitors)
    with connect(f"{live.url.replace('http', 'ws')}/api/v1/events", compression=None) as watcher:
        watcher.recv(timeout=20)
        (ours,) = eventually(lambda: list(room._visitors))
        assert ours.waiting_since is None
    eventually(lambda: not room._visitors)


def test_a_request_before_the_last_hears_that_its_client_has_gone(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    eventually(lambda: not live.server.server_state.connections)
    with socket.create_connection(("127.0.0.1", live.port), 20) as client:
        client.sendall(BIG * 80)
        ours: Any
        (ours,) = eventually(lambda: list(live.server.server_state.connections))
        eventually(lambda: ours.flow.write_paused)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: not live.server.server_state.tasks)
    assert "Traceback" not in caplog.text


def test_who_does_not_read_makes_room_too(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    eventually(lambda: not live.server.server_state.connections)
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(socket.create_connection(("127.0.0.1", live.port), 20))
        deaf.sendall(BIG * 80)
        ours: Any
        (ours,) = eventually(lambda: list(live.server.server_state.connections))
        eventually(lambda: ours._unread_bytes)
        assert ours.waiting_since is not None
        monkeypatch.setattr(waiting_room, "MOST", 1)
        assert_alive(live)
        eventually(lambda: ours not in live.server.server_state.connections)


def test_idle_connections_make_room_when_there_are_many(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    url = live.url.replace("http", "ws")
    with contextlib.ExitStack() as stack:
        watcher = stack.enter_context(connect(f"{url}/api/v1/events", compression=None))
        stream = stack.enter_context(httpx2.stream("GET", f"{live.url}/sse", timeout=30))
        monkeypatch.setattr(waiting_room, "MOST", 100)
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", live.port), 20)) for _ in range(200)]
        for _ in range(20):
            assert_alive(live)
        closed = [client for client in idle if select.select([client], [], [], 0)[0]]
        assert len(closed) >= 90
        assert closed == idle[: len(closed)], "the oldest go first"
        watcher.recv(timeout=20)
        assert "endpoint" in next(stream.iter_text())


def test_without_an_idle_connection_a_request_is_unavailable(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.server.services.room, "_most", 0)
    eventually(lambda: not live.server.server_state.connections)
    answer = http.get(f"{live.url}/api/v1/hub")
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert answer.headers["connection"] == "close"


RAISE = """
import resource
from crewhall.edges.http.waiting_room import open_files, raise_open_files
raise_open_files()
print(open_files())
"""


def test_a_hub_may_open_as_many_files_as_its_user() -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 1000))

    done = subprocess.run([sys.executable, "-c", RAISE], preexec_fn=lower, check=True, capture_output=True, text=True)
    assert int(done.stdout) == 1000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can connect as another user")
@pytest.mark.parametrize(("ahead", "answers"), [(STRANGERS_AHEAD - 1, STRANGERS_AHEAD), (STRANGERS_AHEAD, 0)])
def test_another_user_has_few_requests_read_at_once(live: Live, ahead: int, answers: int) -> None:
    requests = GET * ahead + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    script = f"exec 3<>/dev/tcp/127.0.0.1/{live.port}; cat >&3; cat <&3"
    command = ["bash", "-c", script]
    done = subprocess.run(command, check=False, input=requests, user="nobody", capture_output=True, timeout=20)
    assert done.stdout.count(b"HTTP/1.1 200") == answers


def test_a_body_that_looks_like_many_requests_is_a_body(live: Live) -> None:
    body = b"GET " + b"\r\n\r\n" * 2 * connection.AHEAD
    head = POST + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", live.port), 20) as client:
        client.sendall(head)
        assert client.recv(100).startswith(b"HTTP/1.1 100")
        client.sendall(body)
        assert client.recv(100).startswith(b"HTTP/1.1 4")
