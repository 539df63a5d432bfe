"""
Processes that a child left behind, wherever they went: they carry a mark in the environment that they began with.

    child ── fork, setsid, fork again ──▶ stray     its parent, session and group say nothing, /proc/<pid>/environ does

Only a marked process can start another. So a look that finds none, and in which nobody ended or became another program
before it was looked at, proves that there is none; each look that misses one costs that one a step of its flight.

Linux alone shows environments, and only of our own user's processes; elsewhere none is found. Nor is a process that
left its group and also threw its environment away, wrote over it, or lets nobody see it (`ssh-agent`).

    python -I -S leftovers.py MARK GRACE      ends them when its standard input does, whatever ended who held that open

So a child ends with its parent, kill -9 too. As a program this file imports nothing of ours. On the input is the
child's process group, which is ended as well.
"""

import contextlib
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator

TICK = 0.01  # seconds between two looks
MISSES = 20  # looks in a row that find nobody, but may have missed one
HUNT = 3.0  # seconds after the kill, in which what was killed should be gone
NOTHING = 0  # a signal that only looks
KERNEL_THREAD = 0x0020_0000  # among the flags in /proc/<pid>/stat
BARE = 5  # looks after which a program without environment is taken for one that has none


def new_mark() -> str:
    """The name of a variable that no other process has. Of a child in a child, each has its own."""
    return f"HALL_CHILD_{secrets.token_hex(12)}"


class Leftovers:
    """The running processes that were started with a mark, looked for again and again."""

    def __init__(self, mark: str) -> None:
        self._wanted = f"{mark}=".encode()
        self._others: set[int] = set()
        self._empty: Counter[int] = Counter()
        self._asked: set[int] = set()

    def end(self, number: signal.Signals, spared: int | None = None) -> tuple[set[int], bool]:
        """Send a signal to those that are there, and tell what `look` tells. None but a kill is sent twice.

        The members of the `spared` group have it already.
        """
        left, is_sure = self.look()
        for pid in left if number == signal.SIGKILL else left - self._asked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != spared:
                    os.kill(pid, number)
        self._asked |= left
        return left, is_sure

    def look(self) -> tuple[set[int], bool]:
        """Those that are there now, and whether there can be no other."""
        found: set[int] = set()
        is_sure = True
        for pid in process_ids():
            if pid in self._others:
                continue
            environment = read_process(pid, "environ")
            if self._wanted in environment:
                found.add(pid)
            elif environment or self._is_none(pid):
                self._others.add(pid)
            else:
                is_sure = False
        return found, is_sure

    def _is_none(self, pid: int) -> bool:
        """Whether a process without environment is certainly no stray; it may be one that ended under our eyes."""
        self._empty[pid] += 1
        words = read_process(pid, "stat").rpartition(b")")[2].split()
        if not words:
            return False
        has_ended = words[0] in (b"Z", b"X") and self._empty[pid] > 1
        return has_ended or bool(int(words[6]) & KERNEL_THREAD) or self._empty[pid] > BARE


def process_ids() -> Iterator[int]:
    """The pid of each process that /proc shows; none where there is no /proc."""
    with contextlib.suppress(FileNotFoundError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def read_process(pid: int, name: str) -> bytes:
    """A file of a process in /proc; empty when the process has ended, and a few words when it may not be read."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", 0) as file:
            return file.read()
    except PermissionError:
        return b"another user's"
    except OSError:
        return b""


def end_orphans(mark: str, group: int | None, grace: float) -> None:
    """End a dead parent's processes, wherever they went: asked first, killed `grace` seconds later."""
    strays, kill_at, misses = Leftovers(mark), time.monotonic() + grace, 0
    asks: int = signal.SIGTERM
    while misses < MISSES and time.monotonic() < kill_at + HUNT:
        number: int = asks if time.monotonic() < kill_at else signal.SIGKILL
        if group is not None and not _signal_group(group, number):
            group = None  # from now on its number may be another's
        left, is_sure = strays.end(signal.Signals(number or signal.SIGTERM), spared=group)
        if not left and group is None and is_sure:
            break
        misses, asks = (0 if left or group is not None else misses + 1), NOTHING
        time.sleep(TICK)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a group; False when nobody is in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    told = sys.stdin.buffer.read().strip()
    end_orphans(sys.argv[1], int(told) if told else None, float(sys.argv[2]))
