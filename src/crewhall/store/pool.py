"""
The connections of a hub to PostgreSQL: so many at most, each with one user at a time.

    take ─▶ a place is free? ─▶ the connection used last, if the server has not closed it ─▶ else a new one
                └─ wait                                                                 └─ refused? soon again

Nothing runs in the background: whoever needs a connection when the server is back makes it, at once.
"""

import threading
import time
from collections.abc import Callable

import psycopg

from crewhall.store.pipeline import Pipeline

RETRY_SECONDS = 0.1
IDLE_SECONDS = 300.0


class NoConnection(Exception):
    """None could be had in time; the text says why."""


class Pool:
    """Connections to take and give back. Any thread may use it."""

    def __init__(self, connect: Callable[[float], Pipeline], size: int) -> None:
        self._connect = connect
        self._size = size
        self._taken = 0
        self._changed = threading.Condition()  # one was given back, or the pool is closed
        self._idle: list[tuple[float, Pipeline]] = []  # the one used last is last
        self._is_closed = False

    def take(self, seconds: float) -> Pipeline:
        """A connection for the caller alone, who gives it back. Raises NoConnection after `seconds`."""
        end = time.monotonic() + seconds
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_closed or self._taken < self._size, seconds):
                raise NoConnection("no connection was free")
            if self._is_closed:
                raise NoConnection("the hall is closed")
            self._taken += 1
            known = self._take_idle()
        try:
            return known or self._new(end)
        except BaseException:
            with self._changed:
                self._leave()
            raise

    def give(self, used: Pipeline) -> None:
        """Take a connection back; one that is closed is forgotten."""
        now = time.monotonic()
        with self._changed:
            if used.is_open and not self._is_closed:
                self._idle.append((now, used))
            else:
                used.close()
            if self._idle and now - self._idle[0][0] > IDLE_SECONDS:
                self._idle.pop(0)[1].close()
            self._leave()

    def _leave(self) -> None:
        self._taken -= 1
        self._changed.notify()

    def _take_idle(self) -> Pipeline | None:
        """One that is open; those that the server has closed are forgotten."""
        while self._idle:
            known = self._idle.pop()[1]
            if known.is_alive():
                return known
            known.close()
        return None

    def _new(self, end: float) -> Pipeline:
        while True:
            try:
                return self._connect(max(0.1, end - time.monotonic()))
            except psycopg.OperationalError as error:
                if time.monotonic() + RETRY_SECONDS >= end or self._is_closed:
                    raise NoConnection((str(error) or "no reason was given").splitlines()[0]) from None
            time.sleep(RETRY_SECONDS)

    def forget_idle(self) -> None:
        """Close what nobody uses: the server has just closed another."""
        with self._changed:
            while self._idle:
                self._idle.pop()[1].close()

    def close(self) -> None:
        """Close what nobody uses, and refuse whoever waits; what is in use is closed when it is given back."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.forget_idle()
