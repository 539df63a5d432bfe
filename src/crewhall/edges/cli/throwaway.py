"""
A throw-away hall beside a real one: a copy of its SQLite file, or a schema of its own in the same PostgreSQL.

    copy ─▶ a directory of its own, bridges start a hub there ─▶ the hub is ended, the copy removed

It has the real hall's config.toml and environment, so that it behaves alike, but for the port, and its own database.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from crewhall.config import BY_KEY, Settings, load
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.edges.bridge.launch import hub_environment
from crewhall.errors import Forbidden, Unavailable
from crewhall.store.open import connect
from crewhall.store.sql import Queries
from crewhall.store.sqlite import DAMAGE, SqliteStore

ENDING_SECONDS = 30.0
SPARE_BYTES = 64 * 1024 * 1024
REAL = (*BY_KEY["database.path"].variables, *BY_KEY["database.url"].variables)  # where the real hall is
DENIED = "42501"  # what PostgreSQL says to a role that may not


class Throwaway:
    """A hall to be used up: its environment, its settings, and in a sentence what it is."""

    def __init__(self, home: Path, database: str, about: str) -> None:
        own = {"HOME": str(home), "SERVER_PORT": "0", "SERVER_HOST": "127.0.0.1", "SERVER_IDLE": "60s"}
        own |= {"AUTH_LOCAL_WITHOUT_TOKEN": "true", "AGENT_MAX": "1000000", "LOG_LEVEL": "warning"}
        own["DATABASE_URL" if "://" in database else "DATABASE_PATH"] = database
        kept = {name: value for name, value in hub_environment(os.environ).items() if name not in REAL}
        self.environment = kept | {f"CREWHALL_{name}": value for name, value in own.items()}
        self.settings = load(self.environment)
        assert self.settings.database == database, "never the real hall"
        self.about = about

    def hubs(self) -> list[int]:
        """The processes that serve it."""
        found = []
        for notice in self.settings.home.glob("hub-*.json"):
            with suppress(OSError, ValueError, KeyError):
                found.append(int(json.loads(notice.read_text("utf-8"))["pid"]))
        return found

    def end_hubs(self) -> None:
        """End its hub, one that is still starting too, and wait: a hub holds the hall's lock while it serves."""
        end = time.monotonic() + ENDING_SECONDS
        signalled: set[tuple[int, int]] = set()
        while self._is_served() or any(_lives(pid) for pid, _ in signalled):
            number = signal.SIGTERM if time.monotonic() < end else signal.SIGKILL
            for pid in self.hubs():
                if (pid, number) not in signalled:
                    signalled.add((pid, number))
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            if time.monotonic() > end + ENDING_SECONDS:
                home = self.settings.home
                raise Unavailable(
                    f"the hub of the throw-away hall in {home} does not end",
                    hint=f"Look at {home / 'hub.log'}, end it by hand, and remove that directory.",
                )
            time.sleep(0.02)

    def _is_served(self) -> bool:
        lock = HubSocket(self.settings).try_lock()
        if lock is not None:
            os.close(lock)
        return lock is None


def _lives(pid: int) -> bool:
    """Whether a process runs; one that nobody has buried yet does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except OSError:
        return sys.platform != "linux"  # where there is no /proc, the first question was the answer


@contextmanager
def throwaway(settings: Settings) -> Iterator[Throwaway]:
    """A throw-away hall like this one; nothing of it is left after the block. Raises Unavailable, Forbidden."""
    is_postgres = "://" in settings.database
    place = settings.home if is_postgres else Path(settings.database).parent
    beside = next(directory for directory in (place, *place.parents) if directory.is_dir())
    with TemporaryDirectory(prefix="crewhall-selftest-", dir=beside) as name:
        home = Path(name)
        with suppress(FileNotFoundError):
            shutil.copyfile(settings.home / "config.toml", home / "config.toml")
        with _schema(settings.database) if is_postgres else _file(Path(settings.database), home) as (database, about):
            hall = Throwaway(home, database, about)
            try:
                yield hall
            finally:
                hall.end_hubs()


@contextmanager
def _file(source: Path, home: Path) -> Iterator[tuple[str, str]]:
    """A copy of a SQLite file, taken while others go on writing; its path, and what it is."""
    target = home / "hall.db"
    if not source.exists():
        yield str(target), f"a new SQLite hall: there is none at {source} yet"
        return
    size = sum(path.stat().st_size for path in (source, Path(f"{source}-wal")) if path.exists())
    if shutil.disk_usage(home).free < size + SPARE_BYTES:
        raise Unavailable(
            f"there is no room beside {source} for a copy of {size // 1024} KiB", hint="Free some of the disk first."
        )
    with closing(connect(str(source), Queries([]))) as store:
        assert isinstance(store, SqliteStore)
        try:
            store.copy_to(target)
        except DAMAGE as error:
            raise Unavailable(f"{source} cannot be copied: {error}", hint="`crewhall doctor` looks closer.") from None
    yield str(target), f"a copy of {source}, {size // 1024} KiB"


@contextmanager
def _schema(url: str) -> Iterator[tuple[str, str]]:
    """A schema of its own in the hall's database; the URL that leads to it, and what it is."""
    name = f"crewhall_selftest_{os.urandom(4).hex()}"
    with closing(connect(url, Queries([]), pool=1)) as store:

        def run(statement: str) -> None:
            with store.reshape() as (_, execute):
                execute(statement)

        try:
            run(f"CREATE SCHEMA {name}")
        except Exception as error:
            if getattr(error, "sqlstate", None) != DENIED:
                raise
            raise Forbidden(
                "the hall's PostgreSQL role may not create a schema, and the throw-away hall needs one",
                hint="Let its owner say: GRANT CREATE ON DATABASE <the hall's> TO <the role>; and take it back after.",
            ) from None
        try:
            yield within(url, name), f"an empty schema {name} in the hall's PostgreSQL; the hall's rows are not copied"
        finally:
            run(f"DROP SCHEMA {name} CASCADE")


def within(url: str, schema: str) -> str:
    """The URL with a search path; options that it has already stay."""
    base, _, query = url.partition("?")
    words = [word for word in query.split("&") if word]
    options = [word.removeprefix("options=") for word in words if word.startswith("options=")]
    merged = "%20".join([*options, f"-csearch_path%3D{schema}"])
    return f"{base}?{'&'.join([*(word for word in words if not word.startswith('options=')), f'options={merged}'])}"
