"""Schema steps on both databases: forward, once, whole, and never without a copy to go back to."""

import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crewhall.errors import Unavailable
from crewhall.store.migrate import Migration, migrate, migrations
from crewhall.store.open import connect, open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Store, Work
from tests.conftest import BOTH
from tests.contract.migration_process import migrate_together, open_together
from tests.contract.writer import PATIENCE, SERVER
from tests.postgres import Cluster

pytestmark = pytest.mark.slow

QUERIES = """
-- name: migrations
-- The steps taken.
SELECT number, name FROM migration ORDER BY number;

-- name: shelf_put
-- A row of the first step's table.
INSERT INTO shelf (id) VALUES (:id);

-- name: shelf_ids
-- The rows of the first step's table.
SELECT id FROM shelf ORDER BY id;
"""
ONE = Migration(
    1, "0001_shelf", "-- The first.\nCREATE TABLE shelf (id text PRIMARY KEY);\nCREATE INDEX by_id ON shelf (id);\n"
)
TWO = Migration(2, "0002_books", "CREATE TABLE book (seq {serial}, id text);\n")
BROKEN = Migration(2, "0002_books", "CREATE TABLE book (id text);\nINSERT INTO nowhere VALUES (1);\n")


@pytest.fixture(params=BOTH)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with nothing in it."""
    if request.param == "sqlite":
        yield str(tmp_path / "hall.db")
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    with psycopg.connect(cluster.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE empty TEMPLATE template1")
    yield cluster.url("empty")
    cluster.drop(cluster.url("empty"))


@pytest.fixture
def store(fresh: str) -> Iterator[Store]:
    store = connect(fresh, Queries([QUERIES]))
    yield store
    store.close()


def applied_names(store: Store) -> list[str]:
    with store.read() as tx:
        return [row["name"] for row in tx.all("migrations")]


def test_a_hall_goes_from_nothing_to_the_newest_schema_and_a_second_time_changes_nothing(store: Store) -> None:
    names = [step.name for step in migrations(store.dialect.name)]
    assert store.tables() == []
    assert migrate(store) == names
    assert applied_names(store) == names
    tables = store.tables()
    assert {"hall", "event", "call_log", "migration"} <= set(tables)
    assert migrate(store) == []
    assert (applied_names(store), store.tables()) == (names, tables)


def test_a_later_step_is_taken_on_top_of_what_is_there(store: Store) -> None:
    assert migrate(store, [ONE]) == ["0001_shelf"]
    with store.write(Work("operator", None, now=1)) as tx:
        tx.run("shelf_put", id="kept")
    assert migrate(store, [ONE, TWO]) == ["0002_books"]
    assert store.tables() == ["book", "migration", "shelf"]
    with store.read() as tx:
        assert tx.all("shelf_ids") == [{"id": "kept"}]


def test_a_hall_newer_than_the_program_is_refused_and_left_alone(fresh: str, store: Store) -> None:
    migrate(
        store, [*migrations(store.dialect.name), Migration(9000, "9000_future", "CREATE TABLE future (id text);\n")]
    )
    with pytest.raises(Unavailable, match="is at schema 9000, and this crewhall knows") as refused:
        open_store(fresh, Queries([]))
    assert "upgrade this one" in refused.value.hint
    assert "future" in store.tables()


def test_a_step_that_fails_leaves_nothing_of_itself_and_can_be_taken_later(store: Store) -> None:
    migrate(store, [ONE])
    with pytest.raises(Exception, match="nowhere"):
        migrate(store, [ONE, BROKEN])
    assert store.tables() == ["migration", "shelf"]
    assert applied_names(store) == ["0001_shelf"]
    assert migrate(store, [ONE, TWO]) == ["0002_books"]


def test_a_first_step_that_fails_leaves_an_empty_database(store: Store) -> None:
    with pytest.raises(Exception, match="nowhere"):
        migrate(store, [Migration(1, "0001_broken", BROKEN.text)])
    assert store.tables() == []


@pytest.mark.parametrize("already", [0, 1])
def test_processes_that_migrate_at_once_all_succeed_and_take_each_step_once(fresh: str, already: int) -> None:
    known = [
        *migrations("postgres" if "://" in fresh else "sqlite"),
        Migration(9000, "9000_z", "CREATE TABLE z (id text);\n"),
    ]
    if already:
        first = connect(fresh, Queries([]))
        migrate(first, known[:already])
        first.close()
    answers = at_once(migrate_together, fresh, known)
    for answer in answers:
        assert not isinstance(answer, str), answer
    assert sorted(name for answer in answers for name in answer) == [step.name for step in known[already:]]
    checked = connect(fresh, Queries([QUERIES]))
    assert applied_names(checked) == [step.name for step in known]
    checked.close()


def test_one_at_a_time_changes_the_schema(fresh: str, store: Store) -> None:
    other, entered = connect(fresh, Queries([])), threading.Event()

    def come_second() -> None:
        with other.reshape():
            entered.set()

    second = threading.Thread(target=come_second)
    with store.reshape():
        second.start()
        assert not entered.wait(0.3)
    assert entered.wait(PATIENCE)
    second.join(PATIENCE)
    other.close()


def test_processes_that_open_a_new_file_at_once_all_get_in(tmp_path: Path) -> None:
    """SQLite's own change to WAL does not wait; about one file in five showed it, so many are opened."""
    halls = [str(tmp_path / f"{number}" / "hall.db") for number in range(40)]
    problems = [problem for problem in at_once(open_together, halls, answers=len(halls)) if problem]
    assert not problems, problems[0]


def at_once(target: Callable[..., None], *arguments: Any, answers: int = 1) -> list[Any]:
    """What four processes answer that are let go at the same moment."""
    together, told = SERVER.Barrier(4), SERVER.Queue()
    processes = [SERVER.Process(target=target, args=(*arguments, together, told)) for _ in range(4)]
    for process in processes:
        process.start()
    found = [told.get(timeout=PATIENCE) for _ in range(4 * answers)]
    for process in processes:
        process.join(PATIENCE)
    return found


def test_before_a_later_step_a_sqlite_hall_keeps_a_copy_that_works(tmp_path: Path) -> None:
    path, copy = tmp_path / "hall.db", tmp_path / "hall.db.before-0002"
    store = connect(str(path), Queries([QUERIES]))
    migrate(store, [ONE])
    assert not copy.exists()
    with store.write(Work("operator", None, now=1)) as tx:
        tx.run("shelf_put", id="kept")
    migrate(store, [ONE, TWO])
    store.close()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sorted(item.name for item in tmp_path.iterdir()) == ["hall.db", "hall.db.before-0002", "hall.db.line"]
    kept = connect(str(copy), Queries([QUERIES]))
    with kept.read() as tx:
        assert tx.all("shelf_ids") == [{"id": "kept"}]
    assert kept.tables() == ["migration", "shelf"] and kept.check() is None
    assert migrate(kept, [ONE, TWO]) == ["0002_books"]
    kept.close()


def test_a_copy_is_whole_or_not_there_and_the_first_one_is_the_one_that_stays(tmp_path: Path) -> None:
    """What a hub that was killed while it copied has left behind is no copy."""
    path, copy = tmp_path / "hall.db", tmp_path / "hall.db.before-0002"
    store = connect(str(path), Queries([QUERIES]))
    migrate(store, [ONE])
    (tmp_path / "hall.db.before-0002.part").write_bytes(b"half a copy")
    with pytest.raises(Exception, match="nowhere"):
        migrate(store, [ONE, BROKEN])
    first = copy.read_bytes()
    with store.write(Work("operator", None, now=1)) as tx:
        tx.run("shelf_put", id="later")
    migrate(store, [ONE, TWO])
    store.close()
    assert copy.read_bytes() == first
    assert not (tmp_path / "hall.db.before-0002.part").exists()


def test_a_step_may_have_a_text_for_each_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "hall_steps"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("0002_b.sqlite.sql", "0002_b.postgres.sql", "0001_a.sql", "0003_c.postgres.sql"):
        (package / name).write_text(f"-- {name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    one, two = Migration(1, "0001_a", "-- 0001_a.sql\n"), Migration(2, "0002_b", "-- 0002_b.sqlite.sql\n")
    assert migrations("sqlite", "hall_steps") == [one, two]
    two, three = Migration(2, "0002_b", "-- 0002_b.postgres.sql\n"), Migration(3, "0003_c", "-- 0003_c.postgres.sql\n")
    assert migrations("postgres", "hall_steps") == [one, two, three]


@pytest.mark.parametrize("dialect", BOTH)
def test_the_steps_of_the_program_are_numbered_without_a_gap(dialect: str) -> None:
    known = migrations(dialect)
    assert [step.number for step in known] == list(range(1, len(known) + 1))


def test_a_step_may_hold_any_text(database: str) -> None:
    """A step has no parameters: percent signs and colons in it are its own."""
    store = connect(database, Queries(["-- name: kept\nSELECT word FROM odd"]))
    text = "CREATE TABLE odd (word text DEFAULT '100% :now');\nINSERT INTO odd (word) SELECT '%s 5%5 :x';\n"
    migrate(store, [*migrations(store.dialect.name), Migration(999, "0999_odd", text)])
    with store.read() as tx:
        assert tx.value("kept") == "%s 5%5 :x"
    store.close()


def test_one_connection_is_enough(cluster: Cluster) -> None:
    open_store(cluster.create_empty(), Queries([]), pool=1).close()
