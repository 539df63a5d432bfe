"""A thousand clients that cancel, disconnect, flood, send half a line or die leave nothing behind."""

import gc
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.sync.client import connect

from crewhall import __version__
from crewhall.edges.bridge.hub_socket import HubSocket
from tests.conftest import Live, eventually
from tests.edges.interfaces import META, MODERN
from tests.edges.raw_http import http, mcp_headers, mcp_params
from tests.edges.sample_family import SampleFamily
from tests.edges.sse import Sse
from tests.edges.stdio import Stdio, hall_of
from tests.sizes import size

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def line(method: str, name: int | None = None, /, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params | ({"_meta": META} if name is not None else {})}
    return json.dumps(message | ({"id": name} if name is not None else {})).encode() + b"\n"


def bridge(live: Live, *lines: bytes) -> socket.socket:
    """A connection as a bridge makes it, on which these lines were sent."""
    connection = _connected(live)
    connection.settimeout(30)
    connection.sendall(json.dumps({"crewhall": __version__}).encode() + b"\n" + b"".join(lines))
    return connection


WAIT = line("tools/call", 1, name="lab_quiet", arguments={})


def cancels(live: Live) -> None:
    sent = (WAIT, line("notifications/cancelled", requestId=1), line("tools/list", 2))
    with bridge(live, *sent) as connection, connection.makefile("rb") as lines:
        lines.readline()
        assert json.loads(lines.readline())["id"] == 2


def disconnects(live: Live) -> None:
    bridge(live, WAIT).close()


def floods(live: Live) -> None:
    with bridge(live) as connection:
        connection.setblocking(False)
        flood = line("ping", 1) * 3000
        try:
            while flood:
                flood = flood[connection.send(flood) :]
        except BlockingIOError:
            return  # the hub reads no more from one that does not read


def sends_half_a_line(live: Live) -> None:
    bridge(live, WAIT[: len(WAIT) // 2]).close()


def says_nothing(live: Live) -> None:
    _connected(live).close()


def _connected(live: Live) -> socket.socket:
    """A connection, as soon as the hub has taken enough of those before it."""
    place = HubSocket(live.hub.settings)
    found: list[socket.socket] = []

    def comes() -> bool:
        try:
            found.append(place.connect())
        except BlockingIOError:
            return False
        return True

    eventually(comes)
    return found[0]


def dies(live: Live) -> None:
    client = Stdio(live.hub.settings.home, **hall_of(live))
    client.ask("tools/list")
    client.send("tools/call", name="lab_quiet", arguments={})
    client.kill()


def drops_http(live: Live) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = json.dumps(message | {"params": mcp_params(MODERN, name="lab_quiet", arguments={})}).encode()
    headers = mcp_headers(MODERN, "tools/call", "lab_quiet") | {"Host": "127.0.0.1", "Content-Length": str(len(body))}
    head = "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", live.port), 10) as connection:
        connection.sendall(head.encode() + b"\r\n" + body)


def drops_sse(live: Live) -> None:
    client = Sse(live)
    client.post({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "lab_quiet", "arguments": {}}})
    client.close()


def drops_websocket(live: Live) -> None:
    with connect(f"ws://127.0.0.1:{live.port}/api/v1/events", compression=None, close_timeout=0) as watcher:
        watcher.socket.shutdown(socket.SHUT_RDWR)


def drops_listening(live: Live) -> None:
    wanted = {"resourceSubscriptions": ["crewhall://agents"]}
    sent = line("subscriptions/listen", 1, notifications=wanted)
    with bridge(live, sent) as connection, connection.makefile("rb") as lines:
        lines.readline()
        assert b"acknowledged" in lines.readline()


SHARE = size(4, full=1)  # of the thousand, a fourth
KINDS: list[tuple[Callable[[Live], None], int]] = [
    (cancels, 150),
    (disconnects, 200),
    (floods, 100),
    (sends_half_a_line, 200),
    (says_nothing, 100),
    (dies, 30),
    (drops_http, 100),
    (drops_sse, 40),
    (drops_websocket, 40),
    (drops_listening, 40),
]


def test_a_thousand_bad_clients_leave_nothing_behind(serve: Callable[..., Live]) -> None:
    assert sum(count for _, count in KINDS) == 1000
    lab = SampleFamily()
    live = serve(tools=lab.registry)
    for behave, _ in KINDS:  # once, so that what a hub has from its first use on is there
        behave(live)
    eventually(lambda: _open(live) == {"bridge": 0, "websocket": 0, "sse": 0, "listen": 0})
    before = eventually(_things)
    for behave, count in KINDS:
        for _ in range(count // SHARE):
            behave(live)
    eventually(lambda: _open(live) == {"bridge": 0, "websocket": 0, "sse": 0, "listen": 0}, 60)
    eventually(lambda: _things() == before, 30)
    assert "done" not in lab.ended, "each call was told to stop"


def _things() -> dict[str, int]:
    """What this process holds, hub and clients together, except connections to the database: calls at once use more."""
    gc.collect()
    children = [task.read_text() for task in Path("/proc/self/task").glob("*/children")]
    return {
        "threads": threading.active_count(),
        "files": sum("/hall.db" not in one for one in _open_files()),
        "processes": len(" ".join(children).split()),
    }


def _open_files() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of this very look
            yield os.readlink(f"/proc/self/fd/{number}")


def _open(live: Live) -> dict[str, int]:
    """The hub's open connections but those of plain HTTP."""
    text = http.get(f"{live.url}/metrics").text
    kinds = ("bridge", "websocket", "sse", "listen")
    return {kind: int(text.partition(f'connections{{kind="{kind}"}} ')[2].split()[0]) for kind in kinds}
