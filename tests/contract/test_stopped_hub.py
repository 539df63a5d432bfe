"""Two hubs on one PostgreSQL, and one of them is stopped in the middle of a write."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crewhall import config
from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from tests.conftest import eventually, settings_for
from tests.contract.writer import PATIENCE, SERVER
from tests.sizes import size

pytestmark = pytest.mark.slow

WRITES = size(20, 500)
IDLE = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"


@pytest.fixture
def hub(postgres_url: str, tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(settings_for(postgres_url, tmp_path), registry())
    yield hub
    hub.close()


def register(hub: Hub, path: str) -> Any:
    return hub.call("repository_register", {"path": path}, OPERATOR)


def write_and_stop(url: str, path: str, told: Any) -> None:
    """A hub of this process registers a repository, and stops itself before it commits."""
    hub = Hub(config.load({}, {"home": "/nowhere", "database.url": url, "database.pool": 2}), registry())
    hub.before_commit = lambda: os.kill(os.getpid(), signal.SIGSTOP)
    try:
        register(hub, path)
        told.put("done")
    except Failure as failure:
        told.put(f"{failure.code}: {failure.hint}")
    hub.close()


@contextmanager
def stopped_hub(url: str, path: str) -> Iterator[tuple[ForkServerProcess, Any]]:
    """Another hub, stopped with a write of this path in its hand, and what it says of it when it goes on."""
    told = SERVER.Queue()
    process = SERVER.Process(target=write_and_stop, args=(url, path, told))
    process.start()
    try:
        eventually(lambda: is_stopped(process), seconds=PATIENCE)
        yield process, told
    finally:
        if process.is_alive():
            process.kill()
        process.join(PATIENCE)


def is_stopped(process: ForkServerProcess) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_hub_that_is_stopped_holds_up_no_other_and_what_it_began_is_refused(hub: Hub, postgres_url: str) -> None:
    with (
        psycopg.connect(postgres_url, autocommit=True) as watcher,
        stopped_hub(postgres_url, "/stopped") as (one, told),
    ):
        assert watcher.execute(IDLE).fetchone() == (1,)
        for number in range(WRITES):
            register(hub, f"/{number}")
        assert watcher.execute(IDLE).fetchone() == (1,), "all of that took less than the stopped hub is given"
        register(hub, "/stopped")  # what it holds is free after some seconds
        assert watcher.execute(IDLE).fetchone() == (0,)
        assert one.pid is not None
        os.kill(one.pid, signal.SIGCONT)
        assert told.get(timeout=PATIENCE).startswith("UNAVAILABLE: Nothing of this call was kept.")
    paths = [one["path"] for one in hub.call("repository_list", {"limit": 200}, OPERATOR)["repositories"]]
    assert paths.count("/stopped") == 1


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_hub_goes_by_the_servers_clock_whatever_its_own_says(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    store = open_store(postgres_url, Queries([]))
    with psycopg.connect(postgres_url, autocommit=True) as server:
        wall = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: wall() + hours * 3600 * 10**9)
        row = server.execute("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)").fetchone()
        assert row is not None
        assert abs(store.now() - row[0]) < 5_000
    store.close()
