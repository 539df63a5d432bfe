"""Processes that open new halls and bring schemas up to date, at the same moment as others."""

import traceback
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from crewhall.store.migrate import Migration, migrate
from crewhall.store.open import connect, open_store
from crewhall.store.sql import Queries
from tests.contract.writer import PATIENCE


def migrate_together(
    database: str, known: list[Migration] | None, together: Barrier, told: "Queue[list[str] | str]"
) -> None:
    try:
        together.wait(PATIENCE)
        store = connect(database, Queries([]), pool=2)
        told.put(migrate(store, known))
        store.close()
    except BaseException:
        told.put(traceback.format_exc())


def open_together(databases: list[str], together: Barrier, told: "Queue[str | None]") -> None:
    """Open one new hall after the other; for each, None or what went wrong."""
    for database in databases:
        together.wait(PATIENCE)
        try:
            open_store(database, Queries([]), pool=2).close()
            told.put(None)
        except BaseException:
            told.put(traceback.format_exc())
