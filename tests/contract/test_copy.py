"""Copies of a hall: while it is in use, from either database to either, whole or not at all."""

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crewhall.errors import Conflict, Failure, InvalidInput, NotFound, Unavailable
from crewhall.store.copy import backup, restore
from crewhall.store.events import DAY_MS, events_after, prune
from crewhall.store.migrate import Migration, migrate, migrations
from crewhall.store.open import connect, open_store
from crewhall.store.sql import Queries
from crewhall.store.transaction import Store, Work
from tests.conftest import BOTH, eventually
from tests.contract.writer import PATIENCE

SETTINGS = 3  # rows that a new hall has in user_config
pytestmark = pytest.mark.slow

QUERIES = """
-- name: hall_facts
-- The hall's facts, but its own.
SELECT key, value FROM hall WHERE key <> 'events_pruned_through' ORDER BY key;

-- name: token_ids
-- The ids of all tokens, and a column that is often null.
SELECT id, expires_at FROM token ORDER BY id;

-- name: token_new
-- A token.
INSERT INTO token (id, hash, kind, label, created_at) VALUES (:id, :id, 'operator', 'ünïcode', 1);

-- name: repository_new
-- A row of a table that came with the second step.
INSERT INTO repository (id, path, name, created_at, updated_at) VALUES ('rp_1', '/r', 'r', 1, 1);

-- name: repository_ids
-- The ids of all repositories.
SELECT id FROM repository;

-- name: work_kept
-- Every checkpoint with its task, what that waits for, and its workflow.
SELECT workflow.name AS workflow, task.id AS task, task_dependency.depends_on_id AS waits_for, checkpoint.summary
  FROM checkpoint
  JOIN task ON task.id = checkpoint.task_id
  JOIN workflow ON workflow.id = task.workflow_id
  LEFT JOIN task_dependency ON task_dependency.task_id = task.id
 ORDER BY checkpoint.id;

-- name: loose_constraints
-- The foreign keys that cannot wait for the commit.
SELECT conname FROM pg_constraint WHERE contype = 'f' AND NOT condeferrable;
"""
MANY = 2500  # more than one chunk


@pytest.fixture
def open_hall(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    """A new hall in the database asked for."""
    halls: list[Store] = []

    def new(kind: str) -> Store:
        url = str(tmp_path / f"{len(halls)}" / "hall.db")
        if kind == "postgres":
            url = request.getfixturevalue("cluster").create()
        halls.append(open_store(url, Queries([QUERIES])))
        return halls[-1]

    yield new
    for hall in halls:
        hall.close()


@pytest.fixture(params=BOTH)
def hall(request: pytest.FixtureRequest, open_hall: Callable[[str], Store]) -> Store:
    return open_hall(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


def note(store: Store, *keys: str, now: int = 1) -> None:
    with store.write(Work("operator", None, now)) as tx:
        for key in keys:
            tx.run("hall_set", key=key, value=f"value of {key}")
            tx.event("hall.set", key, data='{"é": "\\u2603"}')


def plan(store: Store, name: str) -> None:
    """A workflow of two tasks, the first waiting for the second, with a checkpoint each."""
    first, second = f"tk_{name}_1", f"tk_{name}_2"
    with store.reshape() as (_, execute):
        execute(
            "INSERT INTO workflow (id, name, status, source_type, source_content, max_parallel_tasks,"
            " auto_create_workspaces, created_at, updated_at)"
            f" VALUES ('wf_{name}', '{name}', 'ready', 'prompt', '', 1, 0, 1, 1)"
        )
        for task in (first, second):
            execute(
                "INSERT INTO task (id, workflow_id, name, description, status, sequence, place, files_likely_affected,"
                " dependency_count, waits_for, tail, created_at, updated_at)"
                f" VALUES ('{task}', 'wf_{name}', '{task}', '', 'pending', 1, 1, '[]', 0, 0, 1, 1, 1)"
            )
            execute(
                "INSERT INTO checkpoint (id, task_id, sequence, type, summary, files_changed, created_at)"
                f" VALUES ('cp_{task}', '{task}', 1, 'progress', 'as far as {task}', '[]', 1)"
            )
        execute(f"INSERT INTO task_dependency (task_id, depends_on_id) VALUES ('{first}', '{second}')")


def work_kept(store: Store) -> list[tuple[object, ...]]:
    with store.read() as tx:
        return [tuple(row.values()) for row in tx.all("work_kept")]


def work_of(name: str) -> list[tuple[object, ...]]:
    """What `work_kept` gives of a plan."""
    first, second = f"tk_{name}_1", f"tk_{name}_2"
    return [(name, first, second, f"as far as {first}"), (name, second, None, f"as far as {second}")]


def content(store: Store) -> tuple[object, ...]:
    with store.read(of_events=True) as tx:
        return tx.all("hall_facts"), tx.all("token_ids"), events_after(tx, 0, 1_000_000)


def numbers(store: Store) -> list[int]:
    with store.read(of_events=True) as tx:
        return [event["seq"] for event in events_after(tx, 0, 1_000_000)]


@pytest.mark.parametrize("to", BOTH)
def test_a_hall_moves_from_either_database_to_either_and_its_numbers_go_on(
    hall: Store, open_hall: Callable[[str], Store], folder: Path, to: str
) -> None:
    note(hall, *(f"k{number}" for number in range(MANY)))
    with hall.write(Work("operator", None, 1)) as tx:
        tx.run("token_new", id="to_1")
    file = folder / "hall.backup"
    assert backup(hall, file) == 2 * MANY + 1 + SETTINGS
    other = open_hall(to)
    assert restore(file, other, replace=False) == 2 * MANY + 1 + SETTINGS
    assert content(other) == content(hall)
    note(other, "next")
    assert numbers(other)[-1] == MANY + 1
    assert [item.name for item in folder.iterdir()] == ["hall.backup"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("to", BOTH)
def test_rows_that_refer_to_each_other_move_and_take_the_place_of_such_rows(
    hall: Store, open_hall: Callable[[str], Store], folder: Path, to: str
) -> None:
    plan(hall, "theirs")
    assert backup(hall, folder / "b") == 6 + SETTINGS
    other = open_hall(to)
    note(other, "in use")
    plan(other, "ours")
    restore(folder / "b", other, replace=True)
    assert work_kept(other) == work_kept(hall) == work_of("theirs")
    plan(other, "next")
    assert len(work_kept(other)) == 4


def test_foreign_keys_still_hold_after_a_restore(hall: Store, folder: Path) -> None:
    plan(hall, "kept")
    backup(hall, folder / "b")
    restore(folder / "b", hall, replace=True)
    with pytest.raises(Exception, match=r"(?i)foreign key"), hall.reshape() as (_, execute):
        execute("DELETE FROM task")
    assert work_kept(hall) == work_of("kept")


def test_every_foreign_key_can_wait_for_the_commit(open_hall: Callable[[str], Store]) -> None:
    """A copy fills the tables in the order of their names, so a key that cannot wait would make restores fail."""
    with open_hall("postgres").read() as tx:
        assert tx.all("loose_constraints") == []


def test_a_backup_is_itself_a_hall_that_can_be_served(hall: Store, folder: Path) -> None:
    note(hall, "a", "b")
    backup(hall, folder / "b.db")
    served = open_store(str(folder / "b.db"), Queries([QUERIES]))
    assert content(served) == content(hall) and served.check() is None
    note(served, "c")
    assert numbers(served) == [1, 2, 3]
    note(hall, "not in the backup")
    assert restore(folder / "b.db", hall, replace=True) == 6 + SETTINGS  # what the served one has only in its -wal, too
    assert content(hall) == content(served)
    served.close()


def test_a_backup_is_one_moment_of_a_hall_while_writers_go_on(hall: Store, folder: Path) -> None:
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            note(hall, f"left {number}", f"right {number}")  # in one transaction: a backup has both or neither
            number += 1

    writers = [threading.Thread(target=write) for _ in range(2)]
    for thread in writers:
        thread.start()
    try:
        eventually(lambda: numbers(hall))
        for number in range(3):
            backup(hall, folder / f"{number}")
            note(hall, f"left after {number}", f"right after {number}")
    finally:
        ended.set()
        for thread in writers:
            thread.join(PATIENCE)
    for number in range(3):
        copy = open_store(str(folder / f"{number}"), Queries([QUERIES]))
        with copy.read(of_events=True) as tx:
            keys = [row["key"].split(maxsplit=1) for row in tx.all("hall_facts")]
            events = [event["subject"] for event in events_after(tx, 0, 1_000_000)]
        copy.close()
        lefts, rights = ({n for side, n in keys if side == which} for which in ("left", "right"))
        assert lefts == rights and lefts
        assert {" ".join(key) for key in keys} == set(events)


def test_numbers_go_on_where_all_events_were_forgotten_before_the_backup(
    hall: Store, open_hall: Callable[[str], Store], folder: Path
) -> None:
    note(hall, "a", "b", "c")
    with hall.write(Work("operator", None, 50 * DAY_MS)) as tx:
        prune(tx, 50 * DAY_MS, 1, 1)
    backup(hall, folder / "b")
    for kind in BOTH:
        other = open_hall(kind)
        restore(folder / "b", other, replace=False)
        note(other, "next")
        assert numbers(other) == [4]
    with pytest.raises(Conflict):
        restore(folder / "b", hall, replace=False)  # a hall that has forgotten is not a new one


def test_a_name_that_is_taken_is_refused_and_kept(hall: Store, folder: Path) -> None:
    (folder / "taken").write_text("mine")
    with pytest.raises(Conflict, match="taken exists"):
        backup(hall, folder / "taken")
    assert (folder / "taken").read_text() == "mine"
    assert [item.name for item in folder.iterdir()] == ["taken"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's files")
def test_a_backup_is_written_where_others_may_write_and_touches_nothing_of_theirs(hall: Store, folder: Path) -> None:
    """What is half written is in a directory of its own: whoever knows its name could put a link or a journal there."""
    (folder / "victim").write_text("precious")
    public = folder / "public"
    public.mkdir()
    public.chmod(0o1777)
    ends = (".part", ".part-journal", ".part-wal", ".part.line", "-journal", ".line")
    for end in ends:
        (public / f"b.db{end}").symlink_to(folder / "victim")
        os.chown(public / f"b.db{end}", 65534, 65534, follow_symlinks=False)
    assert backup(hall, public / "b.db") > 0
    assert sorted(path.name for path in public.iterdir()) == sorted(["b.db", *(f"b.db{end}" for end in ends)])
    assert (folder / "victim").read_text() == "precious"
    assert stat.S_IMODE((public / "b.db").stat().st_mode) == 0o600


def test_a_backup_that_fails_leaves_nothing(hall: Store, folder: Path) -> None:
    hall.close()
    with pytest.raises(Failure):
        backup(hall, folder / "b")
    assert list(folder.iterdir()) == []


def test_a_hall_in_use_is_refused_unless_it_is_to_be_replaced(
    hall: Store, open_hall: Callable[[str], Store], folder: Path
) -> None:
    source = open_hall("sqlite")
    note(source, "theirs")
    backup(source, folder / "b")
    note(hall, "ours", "ours too")
    before = content(hall)
    with pytest.raises(Conflict, match="in use: it has counted 2 events") as refused:
        restore(folder / "b", hall, replace=False)
    assert "--replace" in refused.value.hint
    assert content(hall) == before
    restore(folder / "b", hall, replace=True)
    assert content(hall) == content(source)
    note(hall, "after it")
    with hall.read() as tx:
        assert tx.value("event_newest") == 3, "a cursor of 2 from before the restore sees what comes after it"


def test_an_older_backup_is_brought_up_to_date_and_left_as_it_is(hall: Store, folder: Path) -> None:
    file = folder / "old.db"
    old = connect(str(file), Queries([QUERIES]))
    migrate(old, migrations("sqlite")[:1])
    with old.reshape() as (_, execute):
        execute("INSERT INTO hall (key, value) VALUES ('from the old days', '')")
    old.close()
    (folder / "old.db.line").unlink()
    bytes_before = file.read_bytes()
    note(hall, "ours")
    with hall.write(Work("operator", None, 1)) as tx:
        tx.run("repository_new")
    restore(file, hall, replace=True)
    with hall.read() as tx:
        assert [row["key"] for row in tx.all("hall_facts")] == ["from the old days"]
        assert tx.all("repository_ids") == []  # a table that the old schema did not have
    assert file.read_bytes() == bytes_before
    assert [item.name for item in folder.iterdir()] == ["old.db"]


@pytest.mark.parametrize(
    "what", ["text", "nothing", "another program's", "torn", "overwritten", "bad text", "bad schema", "a lost row"]
)
def test_a_file_that_is_no_whole_backup_is_refused_and_the_hall_stays(
    hall: Store, open_hall: Callable[[str], Store], folder: Path, what: str
) -> None:
    file = folder / "b"
    source = open_hall("sqlite")
    note(source, *(f"k{number}" for number in range(300)))
    plan(source, "theirs")
    backup(source, file)
    whole = file.read_bytes()
    if what == "a lost row":
        lose_a_row(file)
    if what == "another program's":
        file.unlink()
        other = connect(str(file), Queries([]))
        migrate_other(other)
        whole = file.read_bytes()
        (folder / "b.line").unlink()
    damaged = {
        "text": b"these are my notes\n" * 400,
        "nothing": b"",
        "another program's": whole,
        "torn": whole[: len(whole) // 2],
        "overwritten": whole[:8192] + b"\xa5" * 16384 + whole[24576:],
        "bad text": whole.replace(b"value of k7", b"value \xff\xfe k7"),
        "a lost row": file.read_bytes(),
        "bad schema": whole.replace(b"CREATE TABLE hall", b"CREATE \xff\xfe\xfdLE hall"),
    }
    file.write_bytes(damaged[what])
    note(hall, "ours")
    before = content(hall)
    with pytest.raises(InvalidInput, match="is no whole backup of a hall") as refused:
        restore(file, hall, replace=True)
    assert str(file) in refused.value.message and refused.value.hint
    assert content(hall) == before
    assert [item.name for item in folder.iterdir()] == ["b"]


def lose_a_row(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:  # where foreign keys are off unless one asks
        connection.execute("DELETE FROM workflow")


def migrate_other(store: Store) -> None:
    with store.reshape() as (_, execute):
        execute("CREATE TABLE moz_places (id integer)")
    store.close()


def test_a_missing_file_and_a_backup_of_a_newer_program_are_refused(hall: Store, folder: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        restore(folder / "missing", hall, replace=True)
    newer = connect(str(folder / "newer"), Queries([]))
    migrate(newer, [*migrations("sqlite"), Migration(9000, "9000_future", "CREATE TABLE future (id text);\n")])
    newer.close()
    with pytest.raises(Unavailable, match="schema 9000"):
        restore(folder / "newer", hall, replace=True)


def test_tables_of_others_are_left_alone(open_hall: Callable[[str], Store], folder: Path) -> None:
    hall = open_hall("postgres")
    with hall.reshape() as (_, execute):
        execute("CREATE VIEW someones_view AS SELECT 1 AS one")
        execute("CREATE TABLE someones_table (one integer)")
    note(hall, "ours")
    assert backup(hall, folder / "b") > 0
    restored = open_hall("sqlite")
    restore(folder / "b", restored, replace=False)
    assert content(restored) == content(hall)


def test_numbers_do_not_go_back_in_a_hall_whose_events_were_forgotten(hall: Store, folder: Path) -> None:
    backup(hall, folder / "b")
    note(hall, *(f"n{number}" for number in range(9)))
    with hall.write(Work("operator", None, 0)) as tx:
        prune(tx, 100 * DAY_MS, 1, 0)
    restore(folder / "b", hall, replace=True)
    note(hall, "after it")
    with hall.read() as tx:
        assert tx.value("event_newest") == 10
