"""Lines through file descriptors that may not be ready: what the bridge reads and writes. Standard library only."""

import os
import select
import socket
from collections import deque

CHUNK = 256 * 1024
SAFE_CHUNK = select.PIPE_BUF  # what a pipe that says it is writable takes without blocking
LONGEST_LINE = 64 * 1024 * 1024


class Lines:
    """Bytes in, whole lines out. A line longer than any message is thrown away to its end, and comes out empty."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends."""
        pieces = data.split(b"\n")
        self._keep(pieces[0])
        lines: list[bytes] = []
        for piece in pieces[1:]:
            lines.append(b"".join(self._parts).rstrip(b"\r"))
            self._parts, self._size = [], 0
            self._keep(piece)
        return lines

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        self._parts.append(piece)
        if self._size > LONGEST_LINE:
            self._parts = []


class Outbox:
    """Lines on their way out, each with a tag that is given back once the whole line has left."""

    def __init__(self) -> None:
        self._lines: deque[tuple[bytes, object]] = deque()
        self._gone = 0  # bytes of the first line that have left
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, line: bytes, tag: object = None) -> None:
        self._lines.append((line + b"\n", tag))
        self.size += len(line) + 1

    def flush(self, out: "int | socket.socket") -> list[object]:
        """Write what goes without waiting; the tags of the lines that left.

        Raises OSError when the reader is gone, but only when no line has left: then the next call raises it.
        """
        left: list[object] = []
        while self._lines:
            line, tag = self._lines[0]
            try:
                if isinstance(out, int):
                    written = os.write(out, line[self._gone : self._gone + SAFE_CHUNK])
                else:
                    written = out.send(memoryview(line)[self._gone : self._gone + CHUNK])
            except BlockingIOError:
                break
            except OSError:
                if left:
                    break  # its caller must hear of those first, or nobody would answer for them
                raise
            self._gone += written
            if self._gone == len(line):
                self._lines.popleft()
                self._gone = 0
                self.size -= len(line)
                left.append(tag)
            if isinstance(out, int):
                break  # only the first write after a poll is sure not to block
        return left

    def take_back(self) -> list[object]:
        """The tags of the lines that have not left, a half-written one too; the box is empty then."""
        tags = [tag for _, tag in self._lines]
        self._lines.clear()
        self._gone = self.size = 0
        return tags
