"""A database that is away is two lines in the log, one when that begins and one when it is over; no row is lost."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as http
import pytest

from crewhall.app import Hub
from crewhall.edges.hub import logs
from crewhall.errors import InvalidInput, Unavailable
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from crewhall.store import calls, postgres
from tests.conftest import Live, eventually, settings_for
from tests.postgres import Cluster

pytestmark = pytest.mark.slow

STARTS = 30  # seconds in which a server that is back has been found again


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A server that no other test needs."""
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def live(own_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A hub that is less patient with its database than the product, and writes its call log sooner."""
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(calls, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(calls, "BATCH_SECONDS", 0.05)
    hub = Hub(settings_for(own_cluster.create(), tmp_path), registry())
    live = Live(hub)
    yield live
    live.stop()
    hub.close()


def health(live: Live) -> tuple[int, Any]:
    answer = http.get(f"{live.url}/healthz", timeout=10)
    return answer.status_code, answer.json()


def refused_call(hub: Hub) -> None:
    """A call that needs no database to be refused, and is in the call log all the same."""
    with pytest.raises(InvalidInput):
        hub.call("agent_get", {}, OPERATOR)


def logged(hub: Hub) -> int:
    try:
        with hub.store.read() as tx:
            return len(tx.all("all_calls"))
    except Unavailable:
        return -1


def not_logged(live: Live) -> float:
    text = http.get(f"{live.url}/metrics", timeout=10).text
    (line,) = [line for line in text.splitlines() if line.startswith("crewhall_calls_not_logged_total ")]
    return float(line.split()[1])


def test_an_outage_is_two_lines_in_the_log_and_costs_no_row_of_the_call_log(
    live: Live, own_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    live.hub.store.texts["all_calls"] = "SELECT id FROM call_log WHERE error = 'INVALID_INPUT'"
    assert health(live) == (200, {"status": "ok"})
    caplog.clear()
    own_cluster.halt("immediate")
    try:
        refused_call(live.hub)
        records = live.hub.chores.records
        for name in ("presence", "leases", "worktrees", "instances"):  # every one of them, and more than once
            for _ in range(2):
                live.hub.chores.run_one(name)
            assert name == "presence" or (records[name].failures and "does not answer" in str(records[name].error))
        status, body = health(live)
        assert (status, body["status"]) == (503, "unavailable") and body["reason"]
        assert live.hub.calls.dropped == 0
    finally:
        own_cluster.start()
    eventually(lambda: health(live) == (200, {"status": "ok"}), STARTS)
    eventually(lambda: logged(live.hub) == 1, STARTS)
    live.hub.chores.run_one("leases")
    assert records["leases"].error is None
    assert not_logged(live) == 0
    told = [record for record in caplog.records if record.name.startswith("crewhall")]
    assert [record.getMessage().partition(":")[0] for record in told] == [
        "the hall's PostgreSQL does not answer",
        "an outage is over",
    ]
    assert not any(record.exc_info for record in caplog.records)


def test_rows_for_which_there_is_no_room_are_lost_and_counted(
    live: Live, own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live.hub.store.texts["all_calls"] = "SELECT id FROM call_log WHERE error = 'INVALID_INPUT'"
    monkeypatch.setattr(calls, "ROWS_WAITING", 3)
    own_cluster.halt("immediate")
    try:
        for _ in range(10):
            refused_call(live.hub)
        eventually(lambda: live.hub.calls.dropped)
        lost = live.hub.calls.dropped
    finally:
        own_cluster.start()
    eventually(lambda: logged(live.hub) == 10 - lost, STARTS)
    assert not_logged(live) == lost
    assert [record.message for record in caplog.records].count("call log rows are lost") == 1


def test_the_pool_is_silent_about_each_try_to_connect(capsys: pytest.CaptureFixture[str]) -> None:
    root, ours, driver = logging.getLogger(), logging.getLogger("crewhall"), logging.getLogger("psycopg")
    handlers, levels = list(root.handlers), [one.level for one in (root, ours, driver)]
    try:
        logs.set_up("info")
        logging.getLogger("psycopg.pool").warning("error connecting in 'pool-1': Connection refused")
        logging.getLogger("crewhall.outages").warning("the hall's PostgreSQL does not answer")
    finally:
        root.handlers[:] = handlers
        for one, level in zip((root, ours, driver), levels, strict=True):
            one.setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("the hall's PostgreSQL does not answer")
