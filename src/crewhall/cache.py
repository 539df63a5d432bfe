"""
The answer cache of a hub: answers that stay true while what they depend on is the same.

    get_or_make(name, depends, make)    across calls: made again when `depends` differs, or is None
    with call_scope(call.id):
        make_once(name, make, stop)     within one call: the first thread makes it, the others wait for it

A name begins with its owner: a worktree's path, or a call's id. The answers of a call are dropped when it ends. No
other hub needs this cache, nor does this one after a restart.
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

MOST = 256  # cached answers
TICK = 0.05
SETTLED_NS = 2_000_000_000  # a file that was written just now may change once more within one tick of its clock
Name = tuple[str, ...]
ValueT = TypeVar("ValueT")


class AnswerCache:
    def __init__(self, most: int = MOST) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._answers: OrderedDict[Name, tuple[Hashable, Any]] = OrderedDict()
        self._making: dict[str, dict[Name, Future[Any]]] = {}  # of each call that is not over

    def get_or_make(self, name: Name, depends: Hashable, make: Callable[[], ValueT]) -> ValueT:
        """The cached answer, or a new one, which is cached. Nothing is locked while `make` runs."""
        answer: ValueT | None = self.get(name, depends)
        if answer is None:
            answer = make()
            self.put(name, depends, answer)
        return answer

    def get(self, name: Name, depends: Hashable) -> Any:
        """The cached answer, or None if there is none or `depends` differs."""
        with self._lock:
            cached = self._answers.get(name)
            if cached is None or depends is None or cached[0] != depends:
                return None
            self._answers.move_to_end(name)
            return cached[1]

    def put(self, name: Name, depends: Hashable, value: Any) -> None:
        """Cache an answer in place of the one before it. If there are too many, the least recently used goes."""
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
    def call_scope(self, owner: str) -> Iterator[None]:
        """A block in which `make_once` shares the answers of one call; each caller after it makes its own."""
        with self._lock:
            self._making[owner] = {}
        try:
            yield
        finally:
            with self._lock:
                del self._making[owner]

    def make_once(self, name: Name, make: Callable[[], ValueT], stop: Stop) -> ValueT:
        """The one answer of a call, which all its threads get, also if it is an exception."""
        stop.check()
        with self._lock:
            futures = self._making.get(name[0], {})
            is_mine = name not in futures
            future: Future[ValueT] = futures.setdefault(name, Future())
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
    """A value that differs once one of these files, or the target of a link among them, has changed.

    None while one is so new that its times can't tell.
    """
    marks: list[Hashable] = []
    for path in paths:
        try:
            stats = os.lstat(path)
            marks.append(stat_mark(stats))
            if stat.S_ISLNK(stats.st_mode):
                marks.append(stat_mark(os.stat(path)))
        except OSError as error:
            marks.append((error.errno,))
    return None if None in marks else tuple(marks)


def stat_mark(stats: os.stat_result) -> Hashable:
    """The mark of one file or directory, from its stat."""
    if max(stats.st_mtime_ns, stats.st_ctime_ns) > time.time_ns() - SETTLED_NS:
        return None
    return (stats.st_mtime_ns, stats.st_ctime_ns, stats.st_size, stats.st_ino, stats.st_dev, stats.st_mode)
