"""
What a hub need not ask again: answers that stay true while what they depend on is the same.

    of(name, depends, make)     across calls: made anew when `depends` differs, or is None
    with during(call.id):
        once(name, make, stop)  within one call: the first thread makes it, the others wait for that

A name begins with its owner: a worktree's path, or a call's id, whose answers are forgotten with it. Nothing here is
missed by another hub, or after a restart.
"""

import contextlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from crewhall.stop import Stop

MOST = 256  # answers that are kept
TICK = 0.05
SETTLED_NS = 2_000_000_000  # a file that was written just now may change once more within one tick of its clock
Name = tuple[str, ...]
ValueT = TypeVar("ValueT")


class Kept:
    def __init__(self, most: int = MOST) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._answers: OrderedDict[Name, tuple[Hashable, Any]] = OrderedDict()
        self._making: dict[str, dict[Name, Future[Any]]] = {}  # of each call that is not over

    def of(self, name: Name, depends: Hashable, make: Callable[[], ValueT]) -> ValueT:
        """The answer that was kept under a name, or a new one, which is kept. Nothing is locked while it is made."""
        found: ValueT | None = self.get(name, depends)
        if found is None:
            found = make()
            self.put(name, depends, found)
        return found

    def get(self, name: Name, depends: Hashable) -> Any:
        """The answer, if there is one and it is still true."""
        with self._lock:
            held = self._answers.get(name)
            if held is None or depends is None or held[0] != depends:
                return None
            self._answers.move_to_end(name)
            return held[1]

    def put(self, name: Name, depends: Hashable, value: Any) -> None:
        """Keep an answer in place of the one before it; the longest unused goes when there are too many."""
        with self._lock:
            self._answers.pop(name, None)
            if depends is not None:
                self._answers[name] = (depends, value)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)

    def clear(self) -> None:
        """Forget every answer."""
        with self._lock:
            self._answers.clear()

    def has(self, name: Name) -> bool:
        with self._lock:
            return name in self._answers

    @contextlib.contextmanager
    def during(self, owner: str) -> Iterator[None]:
        """What is made `once` for a call is kept until this ends; who comes later makes it for itself."""
        with self._lock:
            self._making[owner] = {}
        try:
            yield
        finally:
            with self._lock:
                del self._making[owner]

    def once(self, name: Name, make: Callable[[], ValueT], stop: Stop) -> ValueT:
        """The one answer of a call, also if that is an exception."""
        stop.check()
        with self._lock:
            made = self._making.get(name[0], {})
            is_mine = name not in made
            future: Future[ValueT] = made.setdefault(name, Future())
        if is_mine:
            _fill(future, make)
        while not future.done():
            wait((future,), TICK)
            stop.check()
        return future.result()


def _fill(future: Future[ValueT], make: Callable[[], ValueT]) -> None:
    try:
        future.set_result(make())
    except BaseException as error:  # it belongs to all who wait
        future.set_exception(error)


def mark(paths: Iterable[str | bytes]) -> Hashable:
    """What tells whether one of these files, or what a link leads to, was changed.

    None while one is so new that its times can't tell.
    """
    found: list[Hashable] = []
    for path in paths:
        try:
            told = os.lstat(path)
            found.append(settled(told))
            if stat.S_ISLNK(told.st_mode):
                found.append(settled(os.stat(path)))
        except OSError as error:
            found.append((error.errno,))
    return None if None in found else tuple(found)


def settled(told: os.stat_result) -> Hashable:
    """The same of one file or directory that was looked at."""
    if max(told.st_mtime_ns, told.st_ctime_ns) > time.time_ns() - SETTLED_NS:
        return None
    return (told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino, told.st_dev, told.st_mode)
