"""
Schema steps: numbered SQL files, forward only, each applied together with its record.

`0003_name.sql` serves both databases; `0003_name.sqlite.sql` and `0003_name.postgres.sql` serve one each.
"""

from dataclasses import dataclass
from pathlib import Path

from crewhall.errors import Unavailable
from crewhall.store.sql import files_of
from crewhall.store.sqlite import SqliteStore
from crewhall.store.transaction import Store

_RECORD = (
    "CREATE TABLE IF NOT EXISTS migration (number integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)"
)


@dataclass(frozen=True)
class Step:
    number: int
    name: str
    text: str


def steps(dialect: str, package: str = "crewhall.store.migrations") -> list[Step]:
    """The steps this program knows for a database, in order."""
    found = []
    for item in files_of(package):
        stem, _, kind = item.name.removesuffix(".sql").partition(".")
        if item.name.endswith(".sql") and kind in ("", dialect):
            found.append(Step(int(stem[:4]), stem, item.read_text("utf-8")))
    return found


def migrate(store: Store, known: list[Step] | None = None) -> list[str]:
    """Bring the hall's schema up to date; the names of the steps taken.

    Raises Unavailable when the hall is newer than this program.
    """
    known = steps(store.dialect.name) if known is None else known
    pending = _pending(store, known)
    if pending and pending[0].number > 1 and isinstance(store, SqliteStore):
        _keep_a_copy(store, pending[0])
    taken = []
    now = store.now()  # asked for before the transaction: it may need a connection of its own
    for step in pending:
        with store.reshape() as (tx, execute):
            execute(_RECORD)
            if step.number in {row["number"] for row in tx.all("migrations_applied")}:
                continue  # another process was quicker
            for statement in store.dialect.marked(step.text).split(";\n"):
                if statement.strip():
                    execute(statement)
            tx.run("migration_note", number=step.number, name=step.name, now=now)
        taken.append(step.name)
    return taken


def _pending(store: Store, known: list[Step]) -> list[Step]:
    applied: set[int] = set()
    if "migration" in store.tables():
        with store.read() as tx:
            applied = {row["number"] for row in tx.all("migrations_applied")}
    newest = max((step.number for step in known), default=0)
    if applied and max(applied) > newest:
        raise Unavailable(
            f"this hall's database is at schema {max(applied)}, and this crewhall knows {newest} at the most",
            hint="A newer crewhall has used it: run that one, or upgrade this one.",
        )
    return [step for step in known if step.number not in applied]


def _keep_a_copy(store: SqliteStore, first: Step) -> None:
    """The file as it is before a step, whole or not at all; a process that migrates too waits for it."""
    copy = Path(f"{store.path}.before-{first.number:04d}")
    part = copy.with_name(copy.name + ".part")
    with store.reshape():
        if not copy.exists():
            part.unlink(missing_ok=True)
            part.touch(0o600)
            store.copy_to(part)
            part.rename(copy)
