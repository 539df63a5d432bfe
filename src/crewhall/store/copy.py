"""
Copies of a hall: out of either database into a SQLite file, and back into either.

The backup is itself a hall's file: `crewhall --home … up` can serve it, and `restore` is how a hall moves
from SQLite to PostgreSQL.
"""

from contextlib import closing, suppress
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from crewhall.errors import Conflict, InvalidInput, NotFound, Unavailable
from crewhall.store.events import PRUNED
from crewhall.store.migrate import migrate
from crewhall.store.sql import Queries
from crewhall.store.sqlite import DAMAGE, SqliteStore
from crewhall.store.transaction import Row, Store

CHUNK = 1000
NOT_COPIED = ("migration", "chore")


def backup(store: Store, target: Path) -> int:
    """Write the hall as it is at this moment to a new file; how many rows it has. Others go on meanwhile."""
    if target.exists():
        raise Conflict(f"{target} exists", hint="Give a name that is free; a backup never overwrites one.")
    if not target.parent.is_dir():
        raise NotFound(f"there is no directory {target.parent}", hint="Make it first, or give another place.")
    with TemporaryDirectory(prefix=".crewhall-backup-", dir=target.parent) as folder:  # others may write beside it
        part = Path(folder) / target.name
        with closing(SqliteStore(part, Queries([]))) as copy:
            migrate(copy)
            rows = _copy(store, copy)
        part.rename(target)
    return rows


def restore(source: Path, store: Store, *, replace: bool) -> int:
    """Put a backup's rows in place of the hall's own; how many there are. Raises Conflict for a hall in use."""
    if not source.is_file():
        raise NotFound(f"there is no file {source}", hint="Give a file that `crewhall backup` wrote.")
    with store.read() as tx:
        used = tx.value("event_newest") or tx.value("hall_get", key=PRUNED)
    if used and not replace:
        raise Conflict(
            f"this hall is in use: it has counted {used} events",
            hint="--replace puts the backup in its place; `crewhall backup` keeps it first.",
        )
    with TemporaryDirectory(prefix="crewhall-restore-") as folder:
        working = Path(folder) / source.name  # an older backup is brought up to date on a copy of it
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                copyfile(f"{source}{suffix}", f"{working}{suffix}")
        with closing(_open_copy(working, source)) as copy:
            try:
                migrate(copy)
                return _copy(copy, store)
            except DAMAGE as error:
                raise _no_backup(source, str(error)) from error


def _open_copy(working: Path, source: Path) -> SqliteStore:
    """Open the working copy of a backup. Raises InvalidInput unless it holds a whole hall."""
    try:
        copy = SqliteStore(working, Queries([]))
    except Unavailable as failure:
        raise _no_backup(source, failure.message.replace(str(working), "it")) from None
    damage = copy.check() or (None if "migration" in copy.tables() else "it holds no hall") or _dangling_row(copy)
    if damage:
        copy.close()
        raise _no_backup(source, damage)
    return copy


def _dangling_row(copy: SqliteStore) -> str | None:
    """What refers to a missing row, in words, or None."""
    with copy.read() as tx:
        row = tx.one("foreign_key_check")
    return None if row is None else f"a row of {row['table']} refers to a row of {row['parent']} that is not in it"


def _no_backup(source: Path, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{source} is no whole backup of a hall: {reason}",
        hint="Give a file that `crewhall backup` wrote. Nothing in this hall was changed.",
    )


def _copy(source: Store, target: Store) -> int:
    """All rows of one hall in place of the other's, in one transaction on each side."""
    total = 0
    ours = set(target.tables()) - set(NOT_COPIED)  # a schema may hold views and tables of others
    tables = [name for name in source.tables() if name in ours]
    source.texts |= {f"all of {table}": f"SELECT * FROM {table}" for table in tables}  # noqa: S608
    with source.read() as tx, target.reshape() as (put, execute):
        put.run("foreign_keys_defer")  # tables refer to each other, and a row perhaps to one of its own table
        # A follower's cursor from before a restore must stay in the past.
        counted = max(put.value("event_newest"), int(put.value("hall_get", key=PRUNED) or 0))
        for table in tables:
            execute(f"DELETE FROM {table}")  # noqa: S608 - the names come from the schema
            for rows in tx.chunks(f"all of {table}", CHUNK):
                target.texts[f"into {table}"] = _insert(table, rows[0], target)
                put.many(f"into {table}", rows)
                total += len(rows)
        put.run("event_number_set", least=counted)
    return total


def _insert(table: str, row: Row, target: Store) -> str:
    columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    numbered = " OVERRIDING SYSTEM VALUE" if target.dialect.name == "postgres" and "seq" in row else ""
    return target.dialect.query(f"INSERT INTO {table} ({columns}){numbered} VALUES ({values})")  # noqa: S608
