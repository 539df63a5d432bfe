"""Lines through file descriptors: however the bytes are cut, each line comes out whole, once and in order."""

import json
import os
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.edges.bridge.bridge import Bridge
from crewhall.edges.bridge.lines import LONGEST_LINE, SAFE_CHUNK, Lines, Outbox

lines = st.lists(st.binary(max_size=300).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b"")), max_size=20)


@given(lines, st.lists(st.integers(1, 50), min_size=1))
def test_lines_come_out_as_they_went_in_however_they_are_cut(sent: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in sent) + b"half a line"
    got, reader, step = [], Lines(), 0
    while data:
        size = cuts[step % len(cuts)]
        got += reader.feed(data[:size])
        data, step = data[size:], step + 1
    assert got == sent


def test_windows_line_ends_are_taken_away() -> None:
    assert Lines().feed(b"one\r\ntwo\n") == [b"one", b"two"]


def test_an_endless_line_is_not_kept() -> None:
    reader = Lines()
    piece = b"x" * (1024 * 1024)
    for _ in range(LONGEST_LINE // len(piece) + 3):
        assert reader.feed(piece) == []
        assert sum(map(len, reader._parts)) <= LONGEST_LINE
    assert reader.feed(b"\nnext\n")[1:] == [b"next"]


@given(st.lists(st.binary(min_size=1, max_size=200_000).map(lambda raw: raw.replace(b"\n", b" ")), max_size=6))
def test_an_outbox_loses_nothing_to_a_reader_that_is_slow(sent: list[bytes]) -> None:
    mine, theirs = socket.socketpair()
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    mine.setblocking(False)
    box, left, got = Outbox(), [], b""
    for number, line in enumerate(sent):
        box.put(line, number)
    while box:
        left += box.flush(mine)
        assert box.size >= 0
        got += theirs.recv(65536)
    mine.close()
    while data := theirs.recv(65536):
        got += data
    theirs.close()
    assert left == list(range(len(sent))) and box.size == 0
    assert got == b"".join(line + b"\n" for line in sent)


def test_what_has_not_left_whole_is_taken_back() -> None:
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    box = Outbox()
    box.put(b"small", "first")
    box.put(b"x" * 10_000_000, "second")
    box.put(b"small", "third")
    assert box.flush(mine) == ["first"]
    assert box.take_back() == ["second", "third"]
    assert not box and box.size == 0
    mine.close()
    theirs.close()


class Ending(socket.socket):
    """A socket whose reader goes after so many lines."""

    lines = 1

    def send(self, data: Any, flags: int = 0, /) -> int:
        sent = super().send(data, flags)
        self.lines -= 1
        if not self.lines:
            self.shutdown(socket.SHUT_WR)
        return sent


def test_lines_that_left_before_the_reader_went_are_known_to_have_left() -> None:
    mine, theirs = socket.socketpair()
    ending, box = Ending(fileno=mine.detach()), Outbox()
    ending.lines = 2
    for number in range(4):
        box.put(b"line", number)
    assert box.flush(ending) == [0, 1]
    with pytest.raises(BrokenPipeError):
        box.flush(ending)
    assert box.take_back() == [2, 3]
    ending.close()
    theirs.close()


def test_a_pipe_is_never_waited_for() -> None:
    """One write of what POSIX promises to take, for each time that the pipe says it is ready."""
    out, into = os.pipe()
    box = Outbox()
    box.put(b"x" * 1_000_000)
    assert box.flush(into) == []
    assert len(os.read(out, 1_000_000)) == SAFE_CHUNK
    os.close(out)
    os.close(into)


class TwoHubs:
    """A hub that goes when it has the hello and one request, and one that answers all requests."""

    log = "nowhere"

    def __init__(self) -> None:
        self.came = 0

    def connect(self) -> socket.socket:
        mine, theirs = socket.socketpair()
        self.came += 1
        bridges_end = Ending(fileno=mine.detach())
        bridges_end.lines = 2 if self.came == 1 else -1
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
        return bridges_end

    def probe(self) -> None:
        return None

    def is_current(self) -> bool:
        return True

    def _serve(self, theirs: socket.socket) -> None:
        is_last = self.came > 1
        with theirs, theirs.makefile("rwb") as lines:
            lines.readline()
            lines.write(b'{"version": "1", "max_bytes": 1000000}\n')
            lines.flush()
            for line in lines:
                if is_last:
                    lines.write(
                        json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {}}).encode() + b"\n"
                    )
                    lines.flush()

    def start(self) -> None:
        pass

    def trouble(self) -> None:
        return None

    def close(self) -> None:
        pass


def test_each_request_is_answered_when_a_hub_goes_between_two_of_them() -> None:
    stdin, client = os.pipe()
    answers, stdout = os.pipe()
    for number, method in enumerate(("tools/list", "tools/call", "tools/list")):
        os.write(client, json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {}}).encode() + b"\n")
    os.close(client)
    running = threading.Thread(target=Bridge(TwoHubs(), {}, stdin, stdout).run, daemon=True)
    running.start()
    running.join(20)
    assert not running.is_alive(), "it waits for the answer to a request that it does not know to be with the hub"
    os.close(stdout)
    with os.fdopen(answers, "rb") as lines:
        assert sorted(json.loads(line)["id"] for line in lines) == [0, 1, 2]
    os.close(stdin)
