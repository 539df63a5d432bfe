"""Opening a hall's database, whichever it is."""

from pathlib import Path

from crewhall.errors import InvalidInput, Unavailable
from crewhall.hall_directory import make_database_directory, refuse_open_database
from crewhall.store.migrate import migrate
from crewhall.store.sql import Queries
from crewhall.store.sqlite import SqliteStore
from crewhall.store.transaction import Store


def open_store(database: str, queries: Queries, pool: int = 8) -> Store:
    """The store at this URL or path, its schema up to date."""
    store = connect(database, queries, pool)
    try:
        migrate(store)
    except BaseException:
        store.close()
        raise
    return store


def connect(database: str, queries: Queries, pool: int = 8) -> Store:
    """The store at this URL or path, its schema as it is. Raises Forbidden for a file that others can change."""
    scheme, separator, _ = database.partition("://")
    if not separator:
        return _sqlite(Path(database), queries)
    if scheme not in ("postgresql", "postgres"):
        raise InvalidInput(
            f"database URLs begin with postgresql://, not {scheme}://",
            hint="For SQLite, give a path and no URL.",
        )
    try:
        from crewhall.store.postgres import PostgresStore  # noqa: PLC0415 - psycopg is an extra
    except ImportError:
        raise Unavailable(
            "PostgreSQL needs the driver psycopg, which is not installed",
            hint="pip install 'crewhall[postgres]'",
        ) from None
    return PostgresStore(database, queries, pool)


def _sqlite(path: Path, queries: Queries) -> Store:
    try:
        make_database_directory(path)
    except OSError:  # the store itself says what is wrong with the place
        refuse_open_database(path)
    return SqliteStore(path, queries)
