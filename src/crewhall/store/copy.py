"""
Copies of a hall: out of either database into a SQLite file, and back into either.

The backup is itself a hall's file: `crewhall --home … up` can serve it, and `restore` is how a hall moves
from SQLite to PostgreSQL.
"""

from pathlib import Path

from crewhall.errors import Conflict, NotFound
from crewhall.store.migrate import migrate
from crewhall.store.sql import Queries
from crewhall.store.sqlite import SqliteStore
from crewhall.store.transaction import Row, Store

CHUNK = 1000
NOT_COPIED = ("migration", "chore")


def backup(store: Store, target: Path) -> int:
    """Write the hall as it is at this moment to a new file; how many rows it has. Others go on meanwhile."""
    if target.exists():
        raise Conflict(f"{target} exists", hint="Give a name that is free; a backup never overwrites one.")
    part = target.with_name(target.name + ".part")
    _remove(part)
    copy = SqliteStore(part, Queries([]))
    try:
        migrate(copy)
        rows = _copy(store, copy)
    finally:
        copy.close()
    part.rename(target)
    _remove(part)
    return rows


def restore(source: Path, store: Store, *, replace: bool) -> int:
    """Put a backup's rows in place of the hall's own; how many there are. Raises Conflict for a hall in use."""
    if not source.is_file():
        raise NotFound(f"there is no file {source}", hint="Give a file that `crewhall backup` wrote.")
    with store.read() as tx:
        used = tx.value("event_newest")
    if used and not replace:
        raise Conflict(
            f"this hall holds {used} events already",
            hint="--replace puts the backup in their place; `crewhall backup` keeps them first.",
        )
    working = source.with_name(source.name + ".restoring")
    _remove(working)
    working.write_bytes(source.read_bytes())  # an older backup is brought up to date on a copy of it
    kept = SqliteStore(working, Queries([]))
    try:
        migrate(kept)
        return _copy(kept, store)
    finally:
        kept.close()
        _remove(working)


def _copy(source: Store, target: Store) -> int:
    """All rows of one hall in place of the other's, in one transaction on each side."""
    total = 0
    tables = [name for name in source.tables() if name not in NOT_COPIED]
    source.texts |= {f"all of {table}": f"SELECT * FROM {table}" for table in tables}  # noqa: S608
    with source.read() as tx, target.reshape() as (put, execute):
        for table in tables:
            execute(f"DELETE FROM {table}")  # noqa: S608 - the names come from the schema
            for rows in tx.chunks(f"all of {table}", CHUNK):
                target.texts[f"into {table}"] = _insert(table, rows[0], target)
                put.many(f"into {table}", rows)
                total += len(rows)
        put.run("event_number_set")
    return total


def _insert(table: str, row: Row, target: Store) -> str:
    columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    numbered = " OVERRIDING SYSTEM VALUE" if target.dialect.name == "postgres" and "seq" in row else ""
    return target.dialect.render(f"INSERT INTO {table} ({columns}){numbered} VALUES ({values})")  # noqa: S608


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", ".line"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
