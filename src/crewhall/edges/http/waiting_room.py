"""
The HTTP connections of this process: who keeps the hub waiting is sent away, and the longest waiting make room.

    descriptors:  0 ──────────── connections ──────────── most ── kept free for git, databases and bridges ── limit
                                                            └─ a connection up here sends an eighth of the idle away
"""

import resource
import time
from contextlib import suppress
from typing import Protocol

RAISED = 65_536  # open files that a hub asks for; a process may have more than it can ever want
KEPT_FREE = 256
MOST = 10_000  # connections, each of 5 KB


class Visitor(Protocol):
    """A connection, as far as the room looks at it."""

    @property
    def waiting_since(self) -> float | None: ...

    @property
    def is_gone(self) -> bool: ...

    @property
    def is_strangers(self) -> bool: ...

    def is_late(self, now: float) -> bool: ...

    def is_deaf(self, now: float) -> bool: ...

    def end(self) -> None: ...

    def abort(self) -> None: ...


class WaitingRoom:
    """The open connections for which the hub has time limits. Used in the loop's thread."""

    def __init__(self) -> None:
        self._visitors: set[Visitor] = set()
        limit = open_files()
        self._most = limit - min(KEPT_FREE, limit // 4)

    def enter(self, visitor: Visitor, descriptor: int) -> bool:
        """Whether there is room for its requests.

        The system gives out the lowest free number, so a high one means that few are left.
        """
        is_full = descriptor >= self._most or len(self._visitors) >= MOST
        has_room = not is_full or self._make_room()
        self._visitors.add(visitor)
        return has_room

    def leave(self, visitor: Visitor) -> None:
        self._visitors.discard(visitor)

    def _make_room(self) -> bool:
        """Close an eighth of the connections that keep us waiting: other users' first, then the longest waiting."""
        waiting = [(not one.is_strangers, since, one) for one in self._visitors if (since := one.waiting_since)]
        waiting.sort(key=lambda entry: entry[:2])
        for _, _, visitor in waiting[: max(1, len(waiting) // 8)]:
            visitor.abort()
        return bool(waiting)

    def sweep(self) -> None:
        """Close those that were waited for long enough. To be called about every second."""
        now = time.monotonic()
        for visitor in list(self._visitors):
            if visitor.is_gone:
                self.leave(visitor)
            elif visitor.is_deaf(now):
                visitor.abort()
            elif visitor.is_late(now):
                visitor.end()


def open_files() -> int:
    """How many files this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return RAISED if soft == resource.RLIM_INFINITY else soft


def raise_open_files() -> None:
    """Have as many open files as this user may, within reason; shells give 1,024 or 256, and mean select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = RAISED if hard == resource.RLIM_INFINITY else min(hard, RAISED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    for number in (wanted, min(wanted, 10_240)):  # macOS refuses more than its kernel allows a process
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
            return
