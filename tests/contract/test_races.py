"""Writers that race: eight processes on one hall under a reader's eyes, and two handlers against one rule."""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from crewhall.app import Hub
from crewhall.errors import LimitExceeded
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from crewhall.store.events import events_after, wait_for_event
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Row, Store
from tests.conftest import eventually, settings_for
from tests.contract import writer
from tests.contract.writer import PATIENCE, SERVER, Stall, Write, path_of
from tests.sizes import size

pytestmark = pytest.mark.slow

WRITERS = [f"w{number}" for number in range(8)]
WRITES = size(80, 500)
LOOKS_AT_A_STALL = 20
OVERTAKEN_AT_MOST = 20  # first come, first served gives 0 or 1; SQLite's own waiting gives hundreds

REPOSITORIES = """
-- name: repository_paths
-- The path of each repository and its id.
SELECT id, path FROM repository;
"""


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    store = open_store(database, Queries([REPOSITORIES]))
    yield store
    store.close()


class Follower:
    """A reader that follows the events from cursor 0 on; a writer that stalls goes on after many looks at it."""

    def __init__(self, store: Store, stall: Stall) -> None:
        self.events: list[Row] = []
        self.looks_at_a_stall = 0
        self._store, self._stall = store, stall
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        end = time.monotonic() + PATIENCE
        while len(self.events) < len(WRITERS) * WRITES and time.monotonic() < end:
            after = self.events[-1]["seq"] if self.events else 0
            stalled = self._stall.reached.is_set() and not self._stall.may_go_on.is_set()
            if not stalled:
                wait_for_event(self._store, after, timeout=0.1)  # a stall may begin now, and then none comes
            with self._store.read(of_events=True) as tx:
                self.events += events_after(tx, after, limit=100)
            self.looks_at_a_stall += stalled
            if self.looks_at_a_stall >= LOOKS_AT_A_STALL:
                self._stall.may_go_on.set()

    def finish(self) -> list[Row]:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.events


def race(database: str, stall: Stall) -> list[list[Write]]:
    """What each of the writers did, all at once. Fails when one of them met any failure at all."""
    together, told = SERVER.Barrier(len(WRITERS)), SERVER.Queue()
    processes = [
        writer.start(database, name, WRITES, together, told, stall if name == WRITERS[3] else None) for name in WRITERS
    ]
    try:
        answers = [told.get(timeout=PATIENCE) for _ in processes]
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
    for answer in answers:
        assert not isinstance(answer, str), answer
    return [answer for answer in answers if not isinstance(answer, str)]


def test_eight_processes_lose_no_write_starve_no_one_and_show_each_event_once_in_order(
    database: str, store: Store
) -> None:
    stall = Stall(WRITES // 5, reached=SERVER.Event(), may_go_on=SERVER.Event())
    follower = Follower(store, stall)
    done = race(database, stall)
    seen = follower.finish()

    with store.read(of_events=True) as tx:
        ids = {row["path"]: row["id"] for row in tx.all("repository_paths")}
        kept = events_after(tx, 0, limit=100_000)
    assert sorted(ids) == sorted(path_of(name, number) for name in WRITERS for number in range(WRITES))
    assert follower.looks_at_a_stall >= LOOKS_AT_A_STALL
    assert [event["seq"] for event in seen] == [event["seq"] for event in kept]
    assert sorted(event["subject"] for event in seen) == sorted(ids.values())
    places = {event["subject"]: place for place, event in enumerate(seen)}
    for name in WRITERS:
        own = [places[ids[path_of(name, number)]] for number in range(WRITES)]
        assert own == sorted(own)
    assert least_share(done) >= 0.25
    if store.is_local:  # SQLite's one writer has a queue; on PostgreSQL nobody waits for another's row
        assert most_overtaken(done) <= OVERTAKEN_AT_MOST


def least_share(done: list[list[Write]]) -> float:
    """What the slowest writer got done while all were running, as a part of the mean."""
    begin, end = max(writes[0].began_at for writes in done), min(writes[-1].ended_at for writes in done)
    counts = [sum(begin <= write.ended_at <= end for write in writes) for writes in done]
    return min(counts) * len(counts) / sum(counts)


def most_overtaken(done: list[list[Write]]) -> int:
    """How many writes one writer both began and ended during a single write of another, at the most.

    It is a count of turns and no time, so that a busy machine does not change it.
    """
    began = [[write.began_at for write in writes] for writes in done]
    ended = [[write.ended_at for write in writes] for writes in done]
    return max(
        bisect_left(ended[other], write.ended_at) - bisect_right(began[other], write.began_at)
        for own, writes in enumerate(done)
        for write in writes
        for other in range(len(done))
        if other != own
    )


@pytest.fixture
def two_hubs(postgres_url: str, tmp_path: Path) -> Iterator[list[Hub]]:
    """Two hubs on one PostgreSQL, in a hall that has room for one agent more."""
    settings = settings_for(postgres_url, tmp_path, agent__max=3)
    hubs = [Hub(settings, registry()) for _ in range(2)]
    for name in ("ada", "bob"):
        register(hubs[0], name)
    yield hubs
    for hub in hubs:
        hub.close()


def register(hub: Hub, name: str) -> bool:
    """Whether there was room for the agent."""
    try:
        hub.call("agent_register", {"name": name, "runtime": "codex"}, OPERATOR)
    except LimitExceeded:
        return False
    return True


def race_for_the_last_place(hubs: list[Hub], url: str) -> list[bool]:
    """Who got in: the first stands before its commit until the second waits for it in the database, or is in."""
    reached, second_is_in = threading.Event(), threading.Event()

    def stand_until_the_other_waits() -> None:
        reached.set()
        eventually(lambda: second_is_in.is_set() or someone_waits(url))

    hubs[0].before_commit = stand_until_the_other_waits
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(register, hubs[0], "cyd")
        assert reached.wait(PATIENCE)
        second = pool.submit(register, hubs[1], "dan")
        second.add_done_callback(lambda _: second_is_in.set())
        return [first.result(PATIENCE), second.result(PATIENCE)]


def someone_waits(url: str) -> bool:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
    return bool(row and row[0])


def live_agents(hub: Hub) -> int:
    total: int = hub.call("agent_list", {"status": ["online"]}, OPERATOR)["total"]
    return total


def test_two_registrations_for_the_last_place_are_one_agent_and_one_refusal(
    two_hubs: list[Hub], postgres_url: str
) -> None:
    assert race_for_the_last_place(two_hubs, postgres_url) == [True, False]
    assert live_agents(two_hubs[0]) == 3


def test_without_the_halls_lock_that_race_lets_both_in(two_hubs: list[Hub], postgres_url: str) -> None:
    """The proof that the race above really overlaps: it is the lock, and nothing else, that keeps the rule."""
    for hub in two_hubs:
        hub.store.texts["hall_lock"] = "SELECT 1"
    assert race_for_the_last_place(two_hubs, postgres_url) == [True, True]
    assert live_agents(two_hubs[0]) == 4
