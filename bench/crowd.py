"""
Many WebSocket watchers in one process that costs little: raw frames, and each distinct message is parsed once for all.

    argv: port, after, tokens' file, first, count     stdout: "ready", and at the end the findings as JSON
    stdin: "until <seq>" once everything is written: watchers that have it are done
"""

import json
import select
import socket
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

HEAD = (
    "GET /api/v1/events?after={after} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n{token}\r\n"
)
PING, CLOSE = 0x9, 0x8
PATIENCE = 30


class Page(NamedTuple):
    """What a message says: the events' numbers and times."""

    seqs: list[int]
    ats: list[int]


@dataclass
class Watcher:
    """One connection, and what it has been told."""

    socket: socket.socket
    seen: int
    buffer: bytearray = field(default_factory=bytearray)
    count: int = 0
    wrong: int = 0  # messages that repeat or reorder


class Crowd:
    """The watchers of this process."""

    def __init__(self, port: int, after: int, tokens: list[str]) -> None:
        self._pages: dict[bytes, Page] = {}
        self._late: dict[bytes, list[int]] = {}  # when each message came, to each watcher
        self._poll = select.epoll()
        self.watchers: dict[int, Watcher] = {}
        for token in tokens:
            watcher = Watcher(_connected(port, after, token), after)
            self.watchers[watcher.socket.fileno()] = watcher
            self._poll.register(watcher.socket, select.EPOLLIN)

    def watch(self) -> int:
        """Read what comes until all have the last event, whose number stdin tells, and that number."""
        self._poll.register(sys.stdin, select.EPOLLIN)
        until, end = sys.maxsize, float("inf")
        while time.monotonic() < end and any(one.seen < until for one in self.watchers.values()):
            for number, _ in self._poll.poll(1):
                if number == sys.stdin.fileno():
                    until, end = int(sys.stdin.readline().split()[1]), time.monotonic() + PATIENCE
                    self._poll.unregister(sys.stdin)
                else:
                    self._read(self.watchers[number])
        return until

    def _read(self, watcher: Watcher) -> None:
        data = watcher.socket.recv(1 << 18)
        if not data:
            self._poll.unregister(watcher.socket)
            return
        watcher.buffer += data
        while (found := _frame(watcher.buffer)) is not None:
            code, payload, size = found
            del watcher.buffer[:size]
            if code == PING:
                watcher.socket.sendall(bytes((0x8A, 0x80 | len(payload))) + bytes(4) + payload)
            elif code != CLOSE:
                self._take(watcher, payload)

    def _take(self, watcher: Watcher, payload: bytes) -> None:
        page = self._pages.get(payload)
        if page is None:
            page = self._pages[payload] = _page(payload)
        if not page.seqs:
            return
        self._late.setdefault(payload, []).append(int(time.time() * 1000))
        watcher.wrong += page.seqs[0] <= watcher.seen
        watcher.count += len(page.seqs)
        watcher.seen = page.seqs[-1]

    def findings(self) -> dict[str, object]:
        every = self.watchers.values()
        late = [at - one for text, times in self._late.items() for at in times for one in self._pages[text].ats]
        return {
            "counts": [one.count for one in every],
            "wrong": sum(one.wrong for one in every),
            "messages": sum(map(len, self._late.values())),
            "late": sorted(late)[:: max(1, len(late) // 10_000)],
            "seconds": time.process_time(),
        }


def _connected(port: int, after: int, token: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    given = f"Authorization: Bearer {token}\r\n" if token else ""
    connection.sendall(HEAD.format(after=after, port=port, token=given).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):  # one at a time, so as not to read into the first frame
        head += connection.recv(1)
        if len(head) in (0, 13) and b" 101 " not in head:
            raise RuntimeError(f"refused: {head!r} {connection.recv(1000)!r}")
    return connection


def _frame(buffer: bytearray) -> tuple[int, bytes, int] | None:
    """The first whole frame: its kind, what it says, and its size; None while more is to come."""
    if len(buffer) < 2:
        return None
    size, start = buffer[1] & 0x7F, 2
    if size >= 126:
        start = 4 if size == 126 else 10
        size = int.from_bytes(buffer[2:start], "big")
    whole = start + size
    return (buffer[0] & 0xF, bytes(buffer[start:whole]), whole) if len(buffer) >= max(start, whole) else None


def _page(payload: bytes) -> Page:
    events = json.loads(payload).get("events", [])
    seqs = [event["seq"] for event in events]
    assert all(a < b for a, b in pairwise(seqs)), seqs
    return Page(seqs, [event["at"] for event in events])


def main() -> None:
    port, after, file, first, count = sys.argv[1:]
    tokens = Path(file).read_text().split("\n")[int(first) : int(first) + int(count)]
    crowd = Crowd(int(port), int(after), tokens)
    began = time.process_time()
    print("ready", flush=True)
    crowd.watch()
    found = crowd.findings()
    print(json.dumps(found | {"seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
