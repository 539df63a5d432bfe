"""
A child's pipes: what it is given, and what it says; of too much, the beginning and the end are kept.

    all it said   head ████████░░░░░░░░░░░░░░░░░░░░████████ tail
    kept          head ████████████████ tail                        what is left out is from the exact middle
"""

import contextlib
import os
import selectors
import subprocess
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import IO

CHUNK = 65_536
LINE = 400  # bytes at the end, in which the last line is looked for


class BoundedOutput:
    """The output of one pipe: all of it, or its head and its tail, half of `most` bytes each."""

    def __init__(self, most: int) -> None:
        self.total = 0
        self._most, self._last = most, most - most // 2
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._room, self._in_tail = most // 2, 0

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        if self._room:
            self._head.append(piece[: self._room])
            piece = piece[self._room :]
            self._room -= len(self._head[-1])
        if piece:
            self._tail.append(piece)
            self._in_tail += len(piece)
        while self._tail and self._in_tail - len(self._tail[0]) >= self._last:
            self._in_tail -= len(self._tail.popleft())

    def text(self) -> bytes:
        tail = b"".join(self._tail)
        return b"".join([*self._head, tail[max(0, len(tail) - self._last) :]])

    @property
    def left_out(self) -> int:
        return max(0, self.total - self._most)

    @property
    def last_line(self) -> str:
        pieces = [piece[-LINE:] for piece in [*self._head, *self._tail][-LINE:]]
        lines = b"".join(pieces)[-LINE:].decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class ChildPipes:
    """A child and its pipes: what is still to be written, and what was read."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes, most: int) -> None:
        self.child = child
        self.out, self.err = BoundedOutput(most), BoundedOutput(most)
        self._rest = memoryview(stdin)
        self._open = selectors.DefaultSelector()
        for pipe, kept in ((child.stdout, self.out), (child.stderr, self.err)):
            if pipe is not None:
                self._watch(pipe, selectors.EVENT_READ, partial(self._read, pipe, kept))
        assert child.stdin
        if stdin:
            self._watch(child.stdin, selectors.EVENT_WRITE, partial(self._write, child.stdin))
        else:
            child.stdin.close()
        if end := _end_of(child):
            self._watch(end, selectors.EVENT_READ, partial(self._close, end))

    def _watch(self, pipe: IO[bytes], event: int, action: Callable[[], None]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._open.register(pipe, event, action)

    @property
    def total(self) -> int:
        """The bytes that it has said."""
        return self.out.total + self.err.total

    def go_on(self, seconds: float) -> bool:
        """Move what can be moved, waiting so long at most. False once the child ended and its pipes are closed."""
        if not self._open.get_map():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(seconds)
            return self.child.poll() is None
        for key, _ in self._open.select(seconds):
            key.data()
        return True

    def _read(self, pipe: IO[bytes], kept: BoundedOutput) -> None:
        piece = os.read(pipe.fileno(), CHUNK)
        if piece:
            kept.add(piece)
        else:
            self._close(pipe)

    def _write(self, pipe: IO[bytes]) -> None:
        try:
            self._rest = self._rest[os.write(pipe.fileno(), self._rest[:CHUNK]) :]
        except BrokenPipeError:  # it does not want the rest
            self._rest = self._rest[:0]
        if not self._rest:
            self._close(pipe)

    def _close(self, pipe: IO[bytes]) -> None:
        self._open.unregister(pipe)
        pipe.close()

    def close(self) -> None:
        """Let go of the pipes, whoever may still hold the other ends."""
        for key in list(self._open.get_map().values()):
            self._close(key.fileobj)  # type: ignore[arg-type]
        self._open.close()


def _end_of(child: subprocess.Popen[bytes]) -> IO[bytes] | None:
    """What can be read once the child has ended; None where the kernel has no such thing, and it is asked by turns."""
    try:
        return os.fdopen(os.pidfd_open(child.pid), "rb", 0)
    except (AttributeError, OSError):  # macOS; a kernel or a container that does not let us
        return None
