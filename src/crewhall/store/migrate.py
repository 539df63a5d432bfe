"""
Schema migrations: numbered SQL files, forward only, each applied together with its record.

`0003_name.sql` serves both databases; `0003_name.sqlite.sql` and `0003_name.postgres.sql` serve one each.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from crewhall.errors import Unavailable
from crewhall.store.sql import files_of
from crewhall.store.sqlite import SqliteStore
from crewhall.store.transaction import Store

_RECORD = (
    "CREATE TABLE IF NOT EXISTS migration (number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)"
)


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    text: str


def migrations(dialect: str, package: str = "crewhall.store.migrations") -> list[Migration]:
    """The migrations that this program has for a database, in order."""
    return list(_read_migrations(dialect, package))


@cache
def _read_migrations(dialect: str, package: str) -> tuple[Migration, ...]:
    known = []
    for item in files_of(package):
        stem, _, kind = item.name.removesuffix(".sql").partition(".")
        if item.name.endswith(".sql") and kind in ("", dialect):
            known.append(Migration(int(stem[:4]), stem, item.read_text("utf-8")))
    return tuple(known)


def migrate(store: Store, known: list[Migration] | None = None) -> list[str]:
    """Bring the hall's schema up to date; the names of the migrations applied.

    Raises Unavailable when the hall is newer than this program.
    """
    known = migrations(store.dialect.name) if known is None else known
    pending = _pending(store, known)
    if pending and pending[0].number > 1 and isinstance(store, SqliteStore):
        _keep_a_copy(store, pending[0])
    applied = []
    now = store.now()  # asked for before the transaction: it may need a connection of its own
    for migration in pending:
        with store.reshape() as (tx, execute):
            execute(_RECORD)
            if migration.number in {row["number"] for row in tx.all("migrations_applied")}:
                continue  # another process applied it first
            for statement in store.dialect.fill_markers(migration.text).split(";\n"):
                if statement.strip():
                    execute(statement)
            tx.run("migration_note", number=migration.number, name=migration.name, now=now)
        applied.append(migration.name)
    return applied


def _pending(store: Store, known: list[Migration]) -> list[Migration]:
    applied: set[int] = set()
    if "migration" in store.tables():
        with store.read() as tx:
            applied = {row["number"] for row in tx.all("migrations_applied")}
    newest = max((migration.number for migration in known), default=0)
    if applied and max(applied) > newest:
        raise Unavailable(
            f"this hall's database is at schema {max(applied)}, and this crewhall knows {newest} at the most",
            hint="A newer crewhall has used it: run that one, or upgrade this one.",
        )
    return [migration for migration in known if migration.number not in applied]


def _keep_a_copy(store: SqliteStore, first: Migration) -> None:
    """Copy the file before the first migration, whole or not at all; another process that migrates waits for it."""
    copy = Path(f"{store.path}.before-{first.number:04d}")
    part = copy.with_name(copy.name + ".part")
    with store.reshape():
        if not copy.exists():
            part.unlink(missing_ok=True)
            part.touch(0o600)
            store.copy_to(part)
            part.rename(copy)
