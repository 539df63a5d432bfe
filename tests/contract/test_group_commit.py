"""One commit for many: what SQLite's writers share in a process, and what they do not."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crewhall.errors import Unavailable
from crewhall.store import sqlite
from crewhall.store.events import events_after
from crewhall.store.migrate import migrate
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.store.sqlite import Batch, SqliteStore
from crewhall.store.transaction import Store, Tx, Work
from tests.conftest import eventually
from tests.contract.writer import PATIENCE

WRITERS = 8
QUERIES = """
-- name: count_up
-- One more.
UPDATE hall SET value = CAST(CAST(value AS bigint) + 1 AS text) WHERE key = :key;

-- name: orphan_put
-- A row whose parent is missing, which SQLite finds at the commit.
INSERT INTO child (parent) VALUES (77);

-- name: blob_put
-- A row that needs many pages.
INSERT INTO hall (key, value) VALUES ('large', :value);
"""
Block = Callable[[Tx], object]


def work() -> Work:
    return Work("operator", None, now=1)


class Counting(SqliteStore):
    """A store that counts its commits."""

    commits = 0

    def _commit(self, batch: Batch) -> None:
        super()._commit(batch)
        self.commits += 1

    @property
    def waiting(self) -> int:
        return self._fair_lock.waiting


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    monkeypatch.setattr(sqlite, "BATCH_SECONDS", PATIENCE)  # a batch is closed by who is last, never by the time
    store = Counting(tmp_path / "hall.db", Queries([QUERIES]))
    migrate(store)
    with store.reshape() as (tx, execute):
        execute("CREATE TABLE parent (id integer PRIMARY KEY)")
        execute("CREATE TABLE child (parent integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
        tx.run("hall_set", key="n", value="0")
    store.commits = 0
    yield store
    store.close()


def write_in_one_batch(store: Counting, blocks: list[Block]) -> list[BaseException | None]:
    """How each block ended; the first stays in its block until all the others wait, so that all share a commit."""
    ends: list[BaseException | None] = [None] * len(blocks)

    def write(place: int, block: Block) -> None:
        try:
            with store.write(work()) as tx:
                if place == 0:
                    eventually(lambda: store.waiting == len(blocks) - 1)
                block(tx)
        except (Unavailable, ValueError) as error:
            ends[place] = error

    threads = [threading.Thread(target=write, args=each) for each in enumerate(blocks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return ends


def count_up(tx: Tx) -> None:
    tx.run("count_up", key="n")
    tx.event("hall.counted", "n")


def fail(tx: Tx) -> None:
    count_up(tx)
    raise ValueError("this block changed its mind")


def read_counter(store: Store, key: str = "n") -> tuple[int, int]:
    """The counter, and how many events tell of it."""
    with store.read(of_events=True) as tx:
        return int(tx.value("hall_get", key=key)), len(events_after(tx, 0, 1000, subject=key))


def test_writers_who_come_together_share_one_commit(store: Counting) -> None:
    assert write_in_one_batch(store, [count_up] * WRITERS) == [None] * WRITERS
    assert read_counter(store) == (WRITERS, WRITERS)
    assert store.commits == 1


def test_a_batch_is_full_at_its_limit_and_the_rest_get_a_commit_of_their_own(
    store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BATCH_MEMBERS", 3)
    assert write_in_one_batch(store, [count_up] * WRITERS) == [None] * WRITERS
    assert read_counter(store) == (WRITERS, WRITERS)
    assert store.commits == 3


@pytest.mark.parametrize("place", [0, 4, WRITERS - 1])
def test_a_block_that_fails_takes_none_of_its_neighbours_down(store: Counting, place: int) -> None:
    blocks: list[Block] = [count_up] * WRITERS
    blocks[place] = fail
    ends = write_in_one_batch(store, blocks)
    assert [type(end) for end in ends if end] == [ValueError] and ends[place] is not None
    assert read_counter(store) == (WRITERS - 1, WRITERS - 1)
    assert store.commits == 1


def test_a_commit_that_fails_is_told_to_every_member_and_the_store_goes_on(store: Counting) -> None:
    blocks: list[Block] = [count_up] * WRITERS
    blocks[3] = lambda tx: tx.run("orphan_put")
    ends = write_in_one_batch(store, blocks)
    assert [type(end) for end in ends] == [Unavailable] * WRITERS
    assert "FOREIGN KEY" in str(ends[0])
    assert read_counter(store) == (0, 0)
    assert write_in_one_batch(store, [count_up] * WRITERS) == [None] * WRITERS
    assert read_counter(store) == (WRITERS, WRITERS)


def test_a_refusal_that_rests_on_a_write_that_was_not_kept_is_not_given(store: Counting) -> None:
    def refuse(tx: Tx) -> None:
        raise ValueError(f"the counter is at {tx.value('hall_get', key='n')}")

    def write_and_fail_at_commit(tx: Tx) -> None:
        count_up(tx)
        tx.run("orphan_put")

    kept = write_in_one_batch(store, [count_up, refuse])
    assert str(kept[1]) == "the counter is at 1"
    lost = write_in_one_batch(store, [write_and_fail_at_commit, refuse])
    assert [type(end) for end in lost] == [Unavailable] * 2
    assert read_counter(store) == (1, 1)


def test_a_full_disk_is_told_to_every_member_and_the_store_goes_on(store: Counting) -> None:
    set_room(store, pages_more=0)
    blocks: list[Block] = [lambda tx: tx.run("count_up", key="n")] * WRITERS
    blocks[WRITERS - 1] = lambda tx: tx.run("blob_put", value="x" * 100_000)
    ends = write_in_one_batch(store, blocks)
    assert [type(end) for end in ends] == [Unavailable] * WRITERS
    assert "disk is full" in str(ends[0])
    assert read_counter(store)[0] == 0
    set_room(store, pages_more=100)
    assert write_in_one_batch(store, blocks) == [None] * WRITERS
    assert read_counter(store)[0] == WRITERS - 1


def set_room(store: SqliteStore, pages_more: int) -> None:
    with store.reshape() as (_, execute):
        pages = execute("PRAGMA page_count").fetchone()["page_count"]
        execute(f"PRAGMA max_page_count={pages + pages_more}")


@pytest.fixture
def shared_store(database: str) -> Iterator[Store]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # many more ways in which threads can come between each other
    store = open_store(database, Queries([QUERIES]))
    yield store
    store.close()
    sys.setswitchinterval(before)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=5))
def test_however_threads_interleave_what_committed_counts_once_and_what_raised_counts_nothing(
    shared_store: Store, plans: list[list[bool]]
) -> None:
    with shared_store.write(work()) as tx:
        key = f"counter {tx.value('event_newest')}"
        tx.run("hall_set", key=key, value="0")
        tx.event("hall.began", "a new example")
    together = threading.Barrier(len(plans))

    def run(plan: list[bool]) -> None:
        together.wait(PATIENCE)
        for succeeds in plan:
            try:
                with shared_store.write(work()) as tx:
                    tx.run("count_up", key=key)
                    tx.event("hall.counted", key)
                    if not succeeds:
                        raise ValueError("this block changed its mind")
            except ValueError:
                assert not succeeds

    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    committed = sum(succeeds for plan in plans for succeeds in plan)
    assert read_counter(shared_store, key) == (committed, committed)


def test_closing_commits_for_those_who_wait_for_it(tmp_path: Path) -> None:
    """A batch whose next in turn is the one who closes is still put on disk, and its writers are answered."""
    store = open_store(str(tmp_path / "hall.db"), Queries([]))
    inside, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with store.write(Work("operator", None, 0)) as tx:
            tx.run("hall_set", key="k", value="v")
            inside.set()
            go_on.wait(10)

    writer, closer = threading.Thread(target=write), threading.Thread(target=store.close)
    writer.start()
    assert inside.wait(10)
    closer.start()
    eventually(lambda: store._fair_lock.waiting == 1)  # type: ignore[attr-defined]
    go_on.set()
    writer.join(10)
    closer.join(10)
    assert not writer.is_alive() and not closer.is_alive()
    again = open_store(str(tmp_path / "hall.db"), Queries([]))
    with again.read() as tx:
        assert tx.value("hall_get", key="k") == "v"
    again.close()
