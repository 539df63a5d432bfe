"""What both databases promise: all or nothing, on disk, seen by others, in a snapshot."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.errors import InvalidInput, Unavailable
from crewhall.store import postgres
from crewhall.store.events import events_after
from crewhall.store.open import connect, open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Row, Store, Work
from tests.postgres import free_port

QUERIES = """
-- name: calls
-- All calls.
SELECT id, tool, success, error, duration_ms FROM call_log ORDER BY id;

-- name: broken
-- A statement that no database can do.
INSERT INTO no_such_table VALUES (1);
"""
SQLITE_SETTINGS = """
-- name: synchronous
-- How much a commit waits for.
PRAGMA synchronous;

-- name: journal_mode
-- How changes are kept until they are in the file.
PRAGMA journal_mode;

-- name: foreign_keys
-- Whether references are looked after.
PRAGMA foreign_keys;
"""
POSTGRES_SETTINGS = """
-- name: synchronous_commit
-- How much a commit waits for.
SHOW synchronous_commit;
"""


def call_row(id: str, *, success: int = 1, error: str | None = None) -> Row:
    about = {"at": 1, "tool": "t", "actor": "operator", "edge": "python", "duration_ms": 5 + success}
    return {"id": id, "success": success, "error": error, **about}


def work(**more: Any) -> Work:
    return Work("operator", "t", now=1, **more)


@pytest.fixture
def open_another(database: str) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def another() -> Store:
        stores.append(open_store(database, Queries([QUERIES])))
        return stores[-1]

    yield another
    for store in stores:
        store.close()


@pytest.fixture
def store(open_another: Callable[[], Store]) -> Store:
    return open_another()


def content(store: Store) -> tuple[Any, list[Row], list[Row]]:
    with store.read(of_events=True) as tx:
        return tx.value("hall_get", key="k"), events_after(tx, 0, 100), tx.all("calls")


def test_a_write_is_seen_by_another_store_with_its_event_and_its_call(
    store: Store, open_another: Callable[[], Store]
) -> None:
    other = open_another()
    with store.write(work(log=lambda: call_row("c1"))) as tx:
        tx.run("hall_set", key="k", value="v")
        tx.event("hall.set", "k", before="none", after="v", commit="c0ffee", data="{}")
        assert content(other) == (None, [], [])
    value, events, calls = content(other)
    assert value == "v" and [call["id"] for call in calls] == ["c1"]
    told = {
        "at": 1,
        "actor": "operator",
        "what": "hall.set",
        "subject": "k",
        "tool": "t",
        "data": "{}",
        "changes": None,
    }
    assert events == [{"seq": 1, "before_status": "none", "after_status": "v", "git_commit": "c0ffee", **told}]


def test_a_check_may_write_before_what_was_asked_ahead_is_read(store: Store) -> None:
    with store.write(work()) as tx:
        tx.guard("calls", lambda _: tx.run("hall_set", key="k", value="v"))
        tx.ahead("hall_get", key="k")
        assert tx.value("hall_get", key="k") == "v"


@pytest.mark.parametrize("where", ["block", "statement", "log", "before_commit"])
def test_a_write_that_raises_leaves_no_row_no_event_and_no_call(store: Store, where: str) -> None:
    def stop(*_: Any) -> Any:
        raise ValueError("stopped")

    own = work(log=stop if where == "log" else lambda: call_row("c1"))
    if where == "before_commit":
        own.before_commit = stop
    with pytest.raises(Exception, match=r"stopped|no_such_table"), store.write(own) as tx:
        tx.run("hall_set", key="k", value="v")
        tx.event("hall.set", "k")
        if where == "block":
            stop()
        if where == "statement":
            tx.run("broken")
    assert content(store) == (None, [], [])
    with store.write(work()) as tx:
        tx.run("hall_set", key="k", value="again")
    assert content(store)[0] == "again"


def test_a_read_is_a_snapshot(store: Store) -> None:
    with store.write(work()) as tx:
        tx.run("hall_set", key="k", value="old")
    with store.read() as reading:
        assert reading.value("hall_get", key="k") == "old"
        with store.write(work()) as tx:
            tx.run("hall_set", key="k", value="new")
            tx.event("hall.set", "k")
        assert reading.value("hall_get", key="k") == "old"
        assert reading.value("event_newest") == 0
    assert content(store)[0] == "new"


def test_a_read_cannot_write(store: Store) -> None:
    with pytest.raises(Exception, match=r"read.?only"), store.read() as tx:
        tx.run("hall_set", key="k", value="v")
    with pytest.raises(AssertionError, match="writing transactions"), store.read() as tx:
        tx.event("hall.set", "k")
    assert content(store) == (None, [], [])


def test_a_second_row_for_a_call_says_how_it_really_ended(store: Store) -> None:
    with store.write(work(log=lambda: call_row("c1"))):
        pass
    with store.write(work()) as tx:
        tx.log_calls([call_row("c1", success=0, error="INTERNAL"), call_row("c2")])
    assert [(row["id"], row["success"], row["error"], row["duration_ms"]) for row in content(store)[2]] == [
        ("c1", 0, "INTERNAL", 5),
        ("c2", 1, None, 6),
    ]


def test_one_hub_holds_a_chore_until_its_time_is_over(store: Store) -> None:
    def take(holder: str, now: int, dead: str | None = None) -> int:
        with store.write(work()) as tx:
            return tx.count("chore_take", name="prune", holder=holder, until=now + 100, now=now, dead=dead)

    assert take("a", now=1000) == 1
    assert take("b", now=1099) == 0
    assert take("a", now=1099) == 1
    assert take("b", now=1198) == 0
    assert take("b", now=1199) == 1
    assert take("a", now=1200) == 0
    assert take("a", now=1201, dead="c") == 0
    assert take("a", now=1201, dead="b") == 1


def test_every_sqlite_connection_waits_for_the_disk(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "hall.db"), Queries([SQLITE_SETTINGS]))
    names = ("synchronous", "journal_mode", "foreign_keys")
    with store.write(work()) as tx:
        assert [tx.value(name) for name in names] == [2, "wal", 1]
    with store.read() as one, store.read() as two:
        for reading in (one, two):
            assert [reading.value(name) for name in names] == [2, "wal", 1]
    store.close()


def test_every_postgres_connection_waits_for_the_disk(postgres_url: str) -> None:
    store = open_store(postgres_url + "?options=-csynchronous_commit%3Doff", Queries([POSTGRES_SETTINGS]))
    with store.read() as one, store.write(work()) as two, store.write(work()) as three:
        assert [tx.value("synchronous_commit") for tx in (one, two, three)] == ["on", "on", "on"]
    store.close()


def test_a_write_inside_a_write_of_the_same_thread_is_refused_on_sqlite(tmp_path: Path) -> None:
    store, refused = open_store(str(tmp_path / "hall.db"), Queries([])), threading.Event()

    def nest() -> None:
        with pytest.raises(AssertionError, match="would wait for itself"), store.write(work()), store.write(work()):
            pass
        refused.set()

    threading.Thread(target=nest, daemon=True).start()
    assert refused.wait(5)
    with store.write(work()) as tx:
        tx.run("hall_set", key="k", value="v")
    store.close()


def test_a_closed_store_refuses_at_once_and_may_be_closed_again(store: Store) -> None:
    store.close()
    store.close()
    refused = threading.Event()

    def come_late() -> None:
        with pytest.raises(Unavailable), store.write(work()):
            pass
        with pytest.raises(Unavailable), store.read():
            pass
        refused.set()

    threading.Thread(target=come_late, daemon=True).start()
    assert refused.wait(5)


def test_only_their_owner_may_read_a_halls_files(tmp_path: Path) -> None:
    path = tmp_path / "new" / "hall.db"
    store = open_store(str(path), Queries([]))
    modes = {item.name: item.stat().st_mode & 0o777 for item in (path.parent, *path.parent.iterdir())}
    store.close()
    names = ("hall.db", "hall.db-wal", "hall.db-shm", "hall.db.line")
    assert modes == {"new": 0o700} | dict.fromkeys(names, 0o600)


@pytest.mark.parametrize("what", ["no database", "a directory", "below a file", "where nothing can be made"])
def test_a_place_that_is_no_halls_file_is_refused_with_a_hint(tmp_path: Path, what: str) -> None:
    file, folder = tmp_path / "notes.txt", tmp_path / "folder"
    file.write_text("these are my notes\n" * 100)
    folder.mkdir(0o755)
    places = {"no database": file, "a directory": folder, "below a file": file / "hall.db"}
    path = places.get(what, Path("/proc/nowhere/hall.db"))
    with pytest.raises(Unavailable, match="cannot be opened as a hall's database") as refused:
        open_store(str(path), Queries([]))
    assert str(path) in refused.value.message and refused.value.hint
    assert file.read_text() == "these are my notes\n" * 100
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "notes.txt"]
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.slow
@pytest.mark.parametrize("listens", [False, True])
def test_a_postgres_that_does_not_answer_is_unavailable_within_seconds(
    listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert postgres.CONNECT_SECONDS <= 10
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", 2)  # the least that the driver knows
    began_at = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if listens else free_port()
        with pytest.raises(Unavailable, match="does not answer") as refused:
            connect(f"postgresql://hall@127.0.0.1:{port}/hall", Queries([]))
    assert time.monotonic() - began_at < 10
    assert "CREWHALL_DATABASE_URL" in refused.value.hint


@pytest.mark.parametrize("url", ["mysql://hall@127.0.0.1/hall", "sqlite:///tmp/hall.db"])
def test_a_url_of_another_database_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="begin with postgresql://"):
        open_store(url, Queries([]))


def test_damage_in_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "hall.db"
    store = open_store(str(path), Queries([]))
    with store.write(work()) as tx:
        tx.many("hall_set", [{"key": f"k{number}", "value": "v" * 200} for number in range(500)])
    assert store.check() is None
    store.close()
    damaged = bytearray(path.read_bytes())
    damaged[-20_000:-10_000] = b"x" * 10_000
    path.write_bytes(damaged)
    store = connect(str(path), Queries(["-- name: everything\nSELECT * FROM hall"]))
    assert store.check()
    with pytest.raises(Unavailable, match="cannot be used") as refused, store.read() as tx:
        tx.all("everything")
    assert "crewhall doctor" in refused.value.hint
    with pytest.raises(Unavailable, match="malformed"), store.write(work()) as tx:
        tx.all("everything")
    store.close()
