"""
Worker threads whose results come back to the event loop.

A call costs a millisecond, so the way to its thread and back must cost little: one queue there, one wake-up back.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")


class Job(Generic[ResultT]):
    """A function on its way through a thread. Everything but `run` happens on the event loop."""

    def __init__(self, function: Callable[[], ResultT]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[ResultT] = self._loop.create_future()
        self._ended = False
        self._waiting: list[asyncio.Future[None]] = []

    def run(self) -> None:
        """In the thread: do it, and wake the loop."""
        try:
            result = self._function()
        except BaseException as error:  # it belongs to whoever awaits
            self._loop.call_soon_threadsafe(self._end, self._result.set_exception, error)
        else:
            self._loop.call_soon_threadsafe(self._end, self._result.set_result, result)

    def _end(self, settle: Callable[[Any], None], outcome: Any) -> None:
        self._ended = True
        if not self._result.done():
            settle(outcome)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def result(self) -> ResultT:
        return await self._result

    async def ended(self) -> None:
        """Wait for the thread to be done with it, however often the waiting itself is cancelled."""
        while not self._ended:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                continue


class Threads:
    """So many threads that take jobs in the order in which they came."""

    def __init__(self, count: int, name: str) -> None:
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def start(self, function: Callable[[], ResultT]) -> Job[ResultT]:
        job = Job(function)
        self._jobs.put(job)
        return job

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()

    def close(self) -> None:
        """Let the threads finish what was given to them, and end."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
