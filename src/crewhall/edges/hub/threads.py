"""
Worker threads whose results come back to the event loop.

A call costs a millisecond, so the way to its thread and back must cost little: one queue there, one wake-up back.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import anyio

ResultT = TypeVar("ResultT")


class Job(Generic[ResultT]):
    """A function on its way through a thread. Everything but `run` happens on the event loop.

    `when_over` is called there when its thread is done with it.
    """

    def __init__(self, function: Callable[[], ResultT], when_over: Callable[[], None] = lambda: None) -> None:
        self._function = function
        self._when_over = when_over
        self._loop = asyncio.get_running_loop()
        self._result: asyncio.Future[ResultT] = self._loop.create_future()
        self._end_seen = asyncio.Event()

    def run(self) -> None:
        """In the thread: do it, and wake the loop."""
        settle: Callable[[Any], None] = self._result.set_result
        outcome: Any
        try:
            outcome = self._function()
        except BaseException as error:  # it belongs to whoever awaits
            settle, outcome = self._result.set_exception, error
        with suppress(RuntimeError):  # the loop is closed: nobody awaits any more
            self._loop.call_soon_threadsafe(self._over, settle, outcome)

    def _over(self, settle: Callable[[Any], None], outcome: Any) -> None:
        self._when_over()
        self._end(settle, outcome)

    def _end(self, settle: Callable[[Any], None], outcome: Any) -> None:
        self._end_seen.set()
        if not self._result.done():
            settle(outcome)

    def abandon(self, error: BaseException) -> None:
        """Answer whoever awaits with this error, and leave the thread to its fate: it cannot be told anything."""
        self._end(self._result.set_exception, error)

    async def result(self) -> ResultT:
        return await self._result

    async def wait_for_end(self) -> None:
        """Wait until the thread is done with it, even if the waiting task itself is cancelled.

        anyio cancels a task again and again until it ends; a shield keeps that from us. A plain asyncio cancel
        comes through the shield, and once is enough to know.
        """
        with anyio.CancelScope(shield=True):
            while not self._end_seen.is_set():
                with suppress(asyncio.CancelledError):
                    await self._end_seen.wait()


class ThreadPerJob:
    """A thread for each job, for jobs that wait in a queue of their own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: set[threading.Thread] = set()

    def start(self, job: Job[Any]) -> None:
        thread = threading.Thread(target=job.run, name=self._name, daemon=True)
        self._threads = {one for one in self._threads if one.is_alive()} | {thread}
        thread.start()

    def close(self, seconds: float) -> bool:
        """Let the threads finish; whether all of them did in that time."""
        return _join(self._threads, seconds)


class Threads:
    """A fixed number of threads, which take jobs first in, first out."""

    def __init__(self, count: int, name: str) -> None:
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def start(self, job: Job[Any]) -> None:
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # an idle thread keeps nobody's arguments

    def close(self, seconds: float) -> bool:
        """Let the threads finish what was given to them, and end; whether all of them did in that time."""
        for _ in self._threads:
            self._jobs.put(None)
        return _join(self._threads, seconds)


def _join(threads: Collection[threading.Thread], seconds: float) -> bool:
    """Wait for the threads to end; whether all of them did in that time."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
