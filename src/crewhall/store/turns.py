"""
Taking turns at the one writer that SQLite allows: first come, first served.

    threads of a process ── FairLock ──▶ one of them ── ProcessLine ──▶ one process writes
                                                        (a lock file beside the database)

SQLite's own waiting is a poll that lets a busy process overtake a quiet one for seconds. Here each process
draws a number and waits for the one before it, so nobody is overtaken, and the kernel frees a dead one's place.
"""

import fcntl
import os
import struct
import threading
from collections import deque
from pathlib import Path

from crewhall.ownership import open_own

_DRAWING = 0  # the byte locked while a number is drawn
_FIRST_PLACE = 16  # numbers are places from here on; the counter itself fills bytes 0 to 7
_COUNTER = struct.Struct("<q")
# OFD locks belong to the open file, so that two stores in one process exclude each other too.
# Where they are missing (macOS) a lock belongs to the process, which serves one store per file just as well.
_WAIT = getattr(fcntl, "F_OFD_SETLKW", fcntl.F_SETLKW)


class FairLock:
    """A lock between threads, handed on first in, first out."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._line: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def take(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._line.append(turn)
        turn.acquire()

    def give(self) -> None:
        with self._guard:
            if self._line:
                self._line.popleft().release()
            else:
                self._held = False


class ProcessLine:
    """A queue of processes, first in, first out; a process that dies leaves it.

    It makes waiting fair. SQLite's own lock keeps two writers apart: behind a process that died in the queue, the
    next one may step forward early.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_own(path, os.O_RDWR | os.O_CREAT)
        self._number = 0

    def enter(self) -> None:
        """Return when every process that came before has left."""
        self._lock(fcntl.F_WRLCK, _DRAWING)
        try:
            raw = os.pread(self._file, _COUNTER.size, 0)
            self._number = (_COUNTER.unpack(raw)[0] if len(raw) == _COUNTER.size else 0) + 1
            os.pwrite(self._file, _COUNTER.pack(self._number), 0)
            self._lock(fcntl.F_WRLCK, _FIRST_PLACE + self._number)
        finally:
            self._lock(fcntl.F_UNLCK, _DRAWING)
        self._lock(fcntl.F_WRLCK, _FIRST_PLACE + self._number - 1)

    def leave(self) -> None:
        self._lock(fcntl.F_UNLCK, _FIRST_PLACE + self._number - 1, 2)

    def close(self) -> None:
        os.close(self._file)

    def _lock(self, kind: int, start: int, length: int = 1) -> None:
        # struct flock of Linux and of macOS, which orders its fields the other way round
        if hasattr(fcntl, "F_OFD_SETLKW"):
            request = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)
        else:
            request = struct.pack("qqihh", start, length, 0, kind, os.SEEK_SET)
        fcntl.fcntl(self._file, _WAIT, request)
