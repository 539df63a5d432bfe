"""A fleet in a thread with an event loop of its own: started when it is first needed, and ended once."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from crewhall.client.fleet import Fleet
from crewhall.errors import InvalidState

CLOSING = 25.0  # seconds; every wait inside has a shorter limit

T = TypeVar("T")
Work = Callable[[Fleet], Coroutine[Any, Any, T]]


class LoopThread:
    """Runs a fleet in a daemon thread; any thread may submit work to it."""

    def __init__(self, make: Callable[[], Fleet]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._has_begun = threading.Event()
        self._is_closed = False
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop
        self._fleet: Fleet
        self._stop: asyncio.Event

    def submit(self, work: Work[T]) -> "Future[T]":
        """Begin some work; cancelling the future cancels it. Raises InvalidState once this is closed."""
        with self._lock:
            if self._process != os.getpid():
                raise InvalidState("this client was made in another process", hint="Make one after the fork.")
            if self._is_closed:
                raise InvalidState("this client is closed", hint="Make another one.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="crewhall-client", daemon=True)
                self._thread.start()
                self._has_begun.wait()
            return asyncio.run_coroutine_threadsafe(self._fleet.track(work(self._fleet)), self._loop)

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._main())
        finally:
            self._has_begun.set()
            loop.close()

    async def _main(self) -> None:
        self._loop, self._stop, self._fleet = asyncio.get_running_loop(), asyncio.Event(), self._make()
        self._has_begun.set()
        await self._stop.wait()
        await self._fleet.close()

    def close(self) -> None:
        """End every connection and process; a second time does nothing. Works at the interpreter's end too."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed or self._thread is None or self._process != os.getpid():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:  # the collector of garbage may call from there
            self._thread.join(CLOSING)
