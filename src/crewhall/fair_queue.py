"""
A line in which calls wait for their turn: so many at once, the first come first, and each is told where it stands.

    with line.turn("what it is about", stop, told): …       told("2 reviews before yours", 12.0) while it waits

Of two that are about the same, the second waits for the first.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crewhall.errors import LimitExceeded
from crewhall.stop import Stop

LONGEST = 100  # who came after so many others would wait for hours
TICK = 0.05
Place = Callable[[str, float], None]  # is told where the call stands, and for how many seconds it has waited


@dataclass(eq=False)
class Ticket:
    question: str
    came_at: float = field(default_factory=time.monotonic)


class Line:
    def __init__(self, at_once: int, what: str) -> None:
        self._at_once, self._what = at_once, what
        self._lock = threading.Lock()
        self._waiting: list[Ticket] = []
        self._running: list[Ticket] = []

    @property
    def standing(self) -> tuple[int, int]:
        """How many run, and how many wait."""
        with self._lock:
            return len(self._running), len(self._waiting)

    @contextmanager
    def turn(self, question: str, stop: Stop, told: Place) -> Iterator[bool]:
        """Wait for one's turn, and have it; whether one had to wait.

        Raises LimitExceeded when too many wait, and what `stop` raises.
        """
        ticket = Ticket(question)
        with self._lock:
            if len(self._waiting) >= LONGEST:
                raise LimitExceeded(f"{LONGEST} {self._what}s wait already", hint="Ask again when some are done.")
            self._waiting.append(ticket)
        try:
            yield self._wait(ticket, stop, told)
        finally:
            with self._lock:
                (self._running if ticket in self._running else self._waiting).remove(ticket)

    def _wait(self, ticket: Ticket, stop: Stop, told: Place) -> bool:
        said = None
        while (place := self._step(ticket)) is not None:
            if place != said:
                told(place, time.monotonic() - ticket.came_at)
                said = place
            stop.wait(TICK)
        return said is not None

    def _step(self, ticket: Ticket) -> str | None:
        """Take one's turn if it has come; else where one stands."""
        with self._lock:
            running = [one.question for one in self._running]
            if ticket.question in running:
                return f"the same {self._what} is running: yours gets its answer"
            ahead = self._waiting[: self._waiting.index(ticket)]
            free = self._at_once - len(running)
            if len([one for one in ahead if one.question not in running]) < free:
                self._waiting.remove(ticket)
                self._running.append(ticket)
                return None
            place = f"{len(ahead)} before yours in line" if ahead else "yours is next in line"
            return f"{place}, {len(running)} running"
