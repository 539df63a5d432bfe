"""Taking turns: threads in order of arrival, processes in order of arrival, and what a dead one leaves behind."""

import struct
import threading
from collections.abc import Iterator
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import pytest

from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Work
from crewhall.store.turns import FairLock, ProcessLine
from tests.conftest import eventually
from tests.contract import writer
from tests.contract.line_process import LineProcess, kill
from tests.contract.writer import PATIENCE, SERVER, Stall

THREADS = 6


def test_threads_are_served_in_the_order_in_which_they_came() -> None:
    lock, served = FairLock(), []

    def serve(name: int) -> None:
        lock.take()
        served.append((name, lock.waiting))
        lock.give()

    lock.take()
    threads = [threading.Thread(target=serve, args=(name,)) for name in range(THREADS)]
    for name, thread in enumerate(threads):
        assert lock.waiting == name
        thread.start()
        eventually(partial(is_waiting, lock, name + 1))
    assert served == []
    lock.give()
    for thread in threads:
        thread.join(PATIENCE)
    assert served == [(name, THREADS - 1 - name) for name in range(THREADS)]


def is_waiting(lock: FairLock, count: int) -> bool:
    return lock.waiting == count


def test_a_turn_that_was_given_back_is_free_for_who_comes_next() -> None:
    lock, done = FairLock(), threading.Event()

    def come_again() -> None:
        for _ in range(3):
            lock.take()
            lock.give()
        done.set()

    threading.Thread(target=come_again, daemon=True).start()
    assert done.wait(5)
    assert lock.waiting == 0


class Place:
    """A line that a test watches: who has drawn a number, who has come to the front."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entered: SimpleQueue[str] = SERVER.SimpleQueue()
        self._standing: list[LineProcess] = []

    def last_number(self) -> int:
        return int(struct.unpack("<q", self.path.read_bytes()[:8])[0]) if self.path.stat().st_size else 0

    def arrive(self, name: str) -> LineProcess:
        """A new process, when it has drawn its number."""
        before = self.last_number()
        self._standing.append(LineProcess(self.path, name, self._entered))
        eventually(lambda: self.last_number() == before + 1)
        return self._standing[-1]

    def nobody_else_came(self) -> bool:
        return self._entered.empty()

    def next_at_the_front(self) -> str:
        eventually(lambda: not self._entered.empty())
        return self._entered.get()

    def close(self) -> None:
        for standing in self._standing:
            if standing.process.is_alive():  # telling a killed one would wait for its answer
                standing.leave()
                standing.process.join(PATIENCE)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[ProcessLine]:
    line = ProcessLine(tmp_path / "hall.db.line")
    yield line
    line.close()


@pytest.fixture
def place(tmp_path: Path, line: ProcessLine) -> Iterator[Place]:
    place = Place(tmp_path / "hall.db.line")
    yield place
    place.close()


def test_processes_come_to_the_front_in_the_order_in_which_they_arrived(line: ProcessLine, place: Place) -> None:
    line.enter()
    standing = [place.arrive(name) for name in "abc"]
    assert place.nobody_else_came()
    line.leave()
    for name, process in zip("abc", standing, strict=True):
        assert place.next_at_the_front() == name
        assert place.nobody_else_came()
        process.leave()


def test_a_process_killed_at_the_front_lets_the_next_one_forward(place: Place) -> None:
    first = place.arrive("a")
    assert place.next_at_the_front() == "a"
    place.arrive("b")
    assert place.nobody_else_came()
    first.kill()
    assert place.next_at_the_front() == "b"


def test_a_process_killed_while_it_waits_keeps_nobody_behind_it_waiting(line: ProcessLine, place: Place) -> None:
    line.enter()
    waiting = place.arrive("a")
    place.arrive("b").leave()
    waiting.kill()
    line.leave()
    assert place.next_at_the_front() == "b"
    place.arrive("c").leave()
    assert place.next_at_the_front() == "c"
    line.enter()
    line.leave()


def test_two_lines_of_one_process_keep_each_other_out(line: ProcessLine, tmp_path: Path) -> None:
    other, entered = ProcessLine(tmp_path / "hall.db.line"), threading.Event()

    def enter() -> None:
        other.enter()
        entered.set()
        other.leave()

    line.enter()
    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.wait(0.3)
    line.leave()
    assert entered.wait(PATIENCE)
    thread.join(PATIENCE)
    other.close()


def test_a_writer_killed_before_its_commit_leaves_nothing_and_holds_up_no_one(database: str) -> None:
    stall = Stall(1, reached=SERVER.Event(), may_go_on=SERVER.Event())
    together, told = SERVER.Barrier(1), SERVER.Queue()
    process = writer.start(database, "w", 3, together, told, stall)
    assert stall.reached.wait(PATIENCE)
    kill(process)
    store = open_store(database, Queries([]))
    with store.write(Work("operator", None, now=1)) as tx:
        tx.event("hall.noted", "after")
    with store.read() as tx:
        found = tx.all("events_after", after=0, limit=10, topic=None, subject=None, actor=None)
    store.close()
    assert [event["what"] for event in found] == ["repository.registered", "hall.noted"]
