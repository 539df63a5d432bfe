"""What a hub tells who watches it: every call counted once, and whether it is well, even when its database hangs."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from starlette.applications import Starlette

from crewhall import __version__
from crewhall.app import Call, Hub
from crewhall.edges.http import health as health_module
from crewhall.edges.http import metrics
from crewhall.edges.http.metrics import Metrics
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.errors import Cancelled, Failure, Unavailable
from crewhall.families.all import registry
from crewhall.families.work.model import Done
from crewhall.identity import OPERATOR, operator_token
from crewhall.meter import BUCKETS, Meter
from crewhall.outside.leftovers import process_ids, read_process
from crewhall.stop import Stop
from crewhall.store import calls
from crewhall.tool import Family, Registry
from tests.conftest import BOTH, Clock, Live, eventually, settings_for
from tests.edges.conftest import SharedHubs, newcomer
from tests.edges.interfaces import MODERN, mcp
from tests.edges.raw_http import assert_refused, http
from tests.edges.sample_family import SampleFamily
from tests.edges.test_leaving import Deaf
from tests.own_mounts import fill, mount_small, with_own_mounts

sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
on_sqlite = pytest.mark.parametrize("hall", ["sqlite"], indirect=True)
postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)
Serve = Callable[..., Live]
MakeHub = Callable[..., Hub]
BOUNDED = 6.0  # seconds: the two that the hub waits, and a slow machine


class Scrape:
    """A text as Prometheus's own parser reads it."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: list[Sample] = [sample for family in self.families.values() for sample in family.samples]

    def values(self, name: str, **labels: str) -> list[float]:
        return [one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        (value,) = self.values(name, **labels)
        return value

    def outcomes(self, tool: str) -> dict[str, float]:
        """How often each outcome was; what never was is left out."""
        calls = [one for one in self.samples if one.name == "crewhall_calls_total" and one.labels["tool"] == tool]
        return {one.labels["outcome"]: one.value for one in calls if one.value}


def scrape(live: Live) -> Scrape:
    answer = http.get(f"{live.url}/metrics")
    assert answer.status_code == 200, answer.text
    return Scrape(answer.text)


def health(live: Live) -> tuple[int, dict[str, str]]:
    """The hub's answer about itself, which has to come in time."""
    began = time.monotonic()
    answer = http.get(f"{live.url}/healthz")
    assert time.monotonic() - began < BOUNDED
    return answer.status_code, answer.json()


WELL = (200, {"status": "ok"})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub waits for half a second where the product waits for two; one test has those."""
    monkeypatch.setattr(metrics, "PATIENCE_SECONDS", 0.5)


@pytest.fixture(params=BOTH)
def hall(request: pytest.FixtureRequest, shared_hubs: SharedHubs) -> Live:
    """One hub on each database for the tests that count what no other test does there, or nothing."""
    return shared_hubs.find("hall", request.param)


# The calls


def test_every_way_that_a_call_ends_is_counted(serve: Serve) -> None:
    live = serve(tools=SampleFamily().registry)
    rest = f"{live.url}/api/v1/lab"
    for _ in range(2):
        assert http.post(f"{rest}/count", json={}).status_code == 200
    assert not mcp(live, MODERN, "tools/call", {"name": "lab_count", "arguments": {}})["result"]["isError"]
    assert http.post(f"{rest}/count", json={"steps": "many"}).status_code == 400
    assert http.post(f"{rest}/refuse", json={}).status_code == 409
    assert http.post(f"{rest}/break", json={}).status_code == 500
    cancelled = Stop()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        live.hub.call("lab_quiet", {}, OPERATOR, stop=cancelled)
    told = scrape(live)
    assert told.outcomes("lab_count") == {"ok": 3, "INVALID_INPUT": 1}
    assert told.outcomes("lab_refuse") == {"INVALID_STATE": 1}
    assert told.outcomes("lab_break") == {"INTERNAL": 1}
    assert told.outcomes("lab_quiet") == {"CANCELLED": 1}
    assert told.value("crewhall_call_seconds_count", tool="lab_count") == 4
    assert told.value("crewhall_calls_running") == 0


@sqlite
def test_a_call_that_ends_outside_its_handler_is_counted_too(serve: Serve) -> None:
    clock = BreakingClock()
    live = serve(tools=Deaf().registry, clock=clock)
    with pytest.raises(SystemExit):
        live.hub.call("deaf_exit", {}, OPERATOR)
    clock.error = Unavailable("the server's clock is gone", hint="Look.")
    with pytest.raises(Unavailable):
        live.hub.call("deaf_exit", {}, OPERATOR)
    assert scrape(live).outcomes("deaf_exit") == {"INTERNAL": 1, "UNAVAILABLE": 1}


class BreakingClock(Clock):
    """A clock that is asked of a server, which may have trouble."""

    error: Exception | None = None

    def __call__(self) -> int:
        if self.error is not None:
            raise self.error
        return super().__call__()


@sqlite
def test_a_name_that_no_tool_has_never_becomes_a_label(live: Live) -> None:
    for name in ("agent_lst", "", 'a"} 1\nb 1\n'):
        with pytest.raises(Failure):
            live.hub.call(name, {}, OPERATOR)
        mcp(live, "2025-06-18", "tools/call", {"name": name, "arguments": {}})
    http.post(f"{live.url}/api/v1/no/such", json={})
    told = scrape(live)
    assert {one.labels["tool"] for one in told.samples if "tool" in one.labels} == {
        tool.name for tool in live.hub.registry.tools
    }
    assert sum(told.values("crewhall_calls_total")) == 0
    assert told.values("crewhall_call_seconds_count") == []


@sqlite
def test_an_odd_name_cannot_break_the_format(serve: Serve) -> None:
    name = 'odd "name" \\ with\nlines, {a="b"} 1\r\n\\n é'
    family = Family("odd", "", "crewhall.families.work")

    @family.tool(name, command="odd name")
    def odd(call: Call) -> Done:
        """Be odd."""
        return Done(success=True)

    live = serve(tools=Registry([family]))
    assert http.post(f"{live.url}/api/v1/odd/name", json={}).status_code == 200
    told = scrape(live)
    assert told.outcomes(name) == {"ok": 1}
    assert told.value("crewhall_call_seconds_bucket", tool=name, le="+Inf") == 1


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that change at every chance, so that a count without a lock is wrong."""
    kept = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(kept)


def at_once(threads: int, work: Callable[[], Any]) -> None:
    start = threading.Barrier(threads)

    def wait_and_work() -> None:
        start.wait(10)
        work()

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(wait_and_work) for _ in range(threads)]:
            done.result(60)


def test_calls_of_many_threads_and_the_event_loop_are_counted_exactly(hall: Live, restless: None) -> None:
    agent = hall.hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)["id"]

    def work() -> None:
        for _ in range(25):
            hall.hub.call("agent_get", {"id": agent}, OPERATOR)
            with suppress(Failure):
                hall.hub.call("agent_get", {"id": "ag_nobody"}, OPERATOR)
        for _ in range(5):
            assert http.get(f"{hall.url}/api/v1/agent/get", params={"id": agent}).status_code == 200

    at_once(8, work)
    told = scrape(hall)
    assert told.outcomes("agent_get") == {"ok": 8 * (25 + 5), "NOT_FOUND": 8 * 25}
    assert told.value("crewhall_call_seconds_count", tool="agent_get") == 8 * (25 + 5 + 25)
    assert told.value("crewhall_calls_running") == 0


def test_the_meter_loses_nothing_however_threads_change(restless: None) -> None:
    meter = Meter(["a"])

    def work() -> None:
        for _ in range(10_000):
            with meter.measure("a"):
                pass

    at_once(8, work)
    tally = meter.tallies()["a"]
    assert (tally.outcomes, sum(tally.buckets), meter.running) == ({"ok": 80_000}, 80_000, 0)


def test_a_histogram_is_cumulative_and_agrees_with_itself(live: Live) -> None:
    began = time.perf_counter()
    for _ in range(20):
        live.hub.call("agent_list", {}, OPERATOR)
    took = time.perf_counter() - began
    told = scrape(live)
    buckets = [one for one in told.samples if one.name == "crewhall_call_seconds_bucket"]
    bounds, counts = [float(one.labels["le"]) for one in buckets], [one.value for one in buckets]
    assert bounds == [*BUCKETS, float("inf")] and (bounds[0], bounds[-2]) == (0.001, 300)
    assert counts == sorted(counts)
    assert counts[-1] == told.value("crewhall_call_seconds_count", tool="agent_list") == 20
    total = told.value("crewhall_call_seconds_sum", tool="agent_list")
    assert 0 < total <= took
    at_most = sum(above * (n - m) for above, n, m in zip(bounds, counts, [0, *counts], strict=False) if n > m)
    at_least = sum(below * (n - m) for below, n, m in zip([0, *bounds], counts, [0, *counts], strict=False) if n > m)
    assert at_least <= total <= at_most, "the sum is what the buckets say"


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.0, 0), (0.001, 0), (0.00101, 1), (1.0, 9), (299.0, 15), (300.0, 15), (300.1, 16)]
)
def test_a_bound_belongs_to_its_bucket(seconds: float, bucket: int) -> None:
    meter, tally = Meter([]), Meter(["a"]).tallies()["a"]
    meter.end(tally, "ok", seconds)
    assert tally.buckets.index(1) == bucket and tally.seconds == seconds


def test_running_calls_are_told_while_they_run(serve: Serve) -> None:
    lab = SampleFamily()
    live = serve(tools=lab.registry)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.post, f"{live.url}/api/v1/lab/quiet", json={})
        try:
            assert lab.started.wait(10)
            told = scrape(live)
        finally:
            lab.proceed.set()
        assert answer.result(10).status_code == 200
    assert told.value("crewhall_calls_running") == 1
    assert told.outcomes("lab_quiet") == {}
    assert told.value("crewhall_events_newest") == 0
    later = scrape(live)
    assert (later.value("crewhall_calls_running"), later.outcomes("lab_quiet")) == (0, {"ok": 1})


# The hub


def test_the_hub_says_who_it_is_and_since_when(hall: Live) -> None:
    told = scrape(hall)
    kind = "postgres" if "://" in hall.hub.settings.database else "sqlite"
    assert told.value("crewhall_info", version=__version__, hub=hall.hub.id, database=kind) == 1
    assert 0 < time.time() - told.value("process_start_time_seconds") < 120
    kinds = {family.name: family.type for family in told.families.values()}
    assert kinds.items() >= {
        ("crewhall_calls", "counter"),
        ("crewhall_call_seconds", "histogram"),
        ("crewhall_open_connections", "gauge"),
        ("crewhall_calls_not_logged", "counter"),
        ("crewhall_chore_runs", "counter"),
        ("crewhall_chore_running", "gauge"),
    }
    assert all(family.documentation for family in told.families.values())


def test_calls_that_the_log_lost_are_told(hall: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BATCH_SECONDS", 0.05)
    assert scrape(hall).value("crewhall_calls_not_logged_total") == 0
    hall.hub.calls.put({"id": "not a whole row"})
    eventually(lambda: scrape(hall).value("crewhall_calls_not_logged_total") == 1)


def scrape_with(hub: Hub, connections: Mapping[str, Callable[[], int]], position: int) -> Scrape:
    """What a metrics edge says that is told of these connections and this position."""
    with hub.own_work() as tx:
        token = operator_token(tx, hub.settings.home, hub.clock())

    async def use() -> str:
        dispatcher = Dispatcher(hub)
        async with client_of(Metrics(dispatcher, connections, lambda: position)) as client:
            answer = await client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert await dispatcher.close(5)
        return answer.text

    return Scrape(asyncio.run(use()))


def client_of(metrics: Metrics) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(Starlette(routes=metrics.routes())), base_url="http://127.0.0.1"
    )


def test_open_connections_are_told_by_kind(hall: Live) -> None:
    told = scrape_with(hall.hub, {"http": lambda: 3, "bridge": lambda: 0, 'o"d\n\\d': lambda: 2}, 0)
    opened = {one.labels["kind"]: one.value for one in told.samples if one.name == "crewhall_open_connections"}
    assert opened == {"http": 3, "bridge": 0, 'o"d\n\\d': 2}


def three_events(live: Live) -> None:
    for number in range(3):
        live.hub.call("repository_register", {"path": f"/{number}"}, OPERATOR)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("position", "lag"), [(0, 3), (2, 1), (3, 0), (2**63, 0)])
def test_the_lag_is_what_watchers_were_not_told_yet(
    shared_hubs: SharedHubs, kind: str, position: int, lag: int
) -> None:
    live, _ = shared_hubs.furnished(kind, three_events)
    told = scrape_with(live.hub, {}, position)
    assert (told.value("crewhall_events_newest"), told.value("crewhall_event_lag")) == (3, lag)


def insert_instance(hub: Hub, clock: Clock, instance_id: str) -> None:
    fields: dict[str, Any] = {
        "agent_id": f"ag_{instance_id}",
        "type": "coding",
        "runtime": "custom",
        "node": "n",
        "repository_path": "/r",
    }
    fields |= {
        "worktree": f"/w/{instance_id}",
        "branch": instance_id,
        "base_branch": "main",
        "session": instance_id,
        "conversation_id": "c",
    }
    fields |= {"prompt": "p", "tier": 2, "issue_number": None, "parent": None, "ports": "[]"}
    with hub.own_work() as tx:
        tx.run("instance_insert", id=instance_id, now=clock.now, **fields)


def test_instances_and_the_oldest_operation_are_counted(make_hub: MakeHub, clock: Clock) -> None:
    hub = make_hub(clock=clock)
    assert scrape_with(hub, {}, 0).value("crewhall_operation_oldest_seconds") == 0
    insert_instance(hub, clock, "work-1-a1")
    with hub.own_work() as tx:
        kind = next(one for one in hub.registry.operations if one.name == "instance_stop")
        hub.journal.begin(tx, kind, "work-1-a1", place="n", data={}, holder="h")
    clock.advance(90)
    told = scrape_with(hub, {}, 0)
    assert told.values("crewhall_instances") == [1] == told.values("crewhall_instances", status="started")
    assert told.value("crewhall_operation_oldest_seconds") == 90


def test_reviews_are_counted_by_how_they_came_out(make_hub: MakeHub, clock: Clock) -> None:
    hub = make_hub(clock=clock)
    insert_instance(hub, clock, "work-1-a1")
    with hub.own_work() as tx:
        for number in (1, 2):
            own = {"coder": "work-1-a1", "reviewer": f"review-1-a{number}", "forked_from": "c0ffee"}
            tx.run("review_insert", iteration=number, completion_message=None, now=tx.now, **own)
        ended = {"reviewer": "review-1-a1", "outcome": "feedback", "type": "spawned_review"}
        tx.run("review_end", **ended, now=tx.now + 90_000)
        tx.run("review_refused", id="work-1-a1", now=tx.now)
    told = scrape_with(hub, {}, 0)
    assert told.values("crewhall_reviews", outcome="feedback") == told.values("crewhall_reviews", outcome="open") == [1]
    assert (told.value("crewhall_review_seconds"), told.value("crewhall_review_refusals")) == (90, 1)


ENDS = {
    "done": "done",
    "exit 0": "exit 0",
    "exit 3": "exit other",
    "killed by signal 9": "killed",
    "setup failed with 2": "setup failed",
    "could not be started: exit 127": "not started",
    "stopped": "stopped",
    "nobody knows how": "unknown",
}


def test_ends_of_instances_are_counted_in_a_few_words(make_hub: MakeHub, clock: Clock) -> None:
    hub = make_hub(clock=clock)
    for number, how in enumerate(ENDS):
        insert_instance(hub, clock, f"work-1-a{number + 1}")
        with hub.own_work() as tx:
            tx.run("instance_ended", id=f"work-1-a{number + 1}", how=how, at=clock.now, now=clock.now)
    told = scrape_with(hub, {}, 0)
    assert all(told.values("crewhall_instances_ended", how=word) == [1] for word in ENDS.values())


def test_the_newest_number_stays_when_its_event_is_pruned(make_hub: MakeHub, clock: Clock) -> None:
    hub = make_hub(clock=clock, events__keep_days=1)
    hub.call("repository_register", {"path": "/a"}, OPERATOR)
    clock.advance(86_400 * 2)
    hub.chores.run_due()
    assert hub.call("event_list", {}, OPERATOR)["events"] == []
    told = scrape_with(hub, {}, 1)
    assert (told.value("crewhall_events_newest"), told.value("crewhall_event_lag")) == (1, 0)


# Who may ask, and how


@on_sqlite
def test_metrics_are_for_actors_alone(hall: Live) -> None:
    stranger = {"X-Forwarded-For": "10.0.0.1"}
    assert_refused(hall, http.get(f"{hall.url}/metrics", headers=stranger), 401, "FORBIDDEN")
    assert_refused(hall, http.get(f"{hall.url}/metrics", headers={"Authorization": "Bearer wrong"}), 401, "FORBIDDEN")
    for token in (hall.token, newcomer(hall).token):
        headers = stranger | {"Authorization": f"Bearer {token}"}
        assert "crewhall_info{" in http.get(f"{hall.url}/metrics", headers=headers).text


@on_sqlite
def test_metrics_are_prometheus_text(hall: Live) -> None:
    answer = http.get(f"{hall.url}/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text.endswith("\n")
    assert http.head(f"{hall.url}/metrics").headers["content-type"] == answer.headers["content-type"]
    assert_refused(hall, http.post(f"{hall.url}/metrics"), 405, "INVALID_INPUT")


def test_health_is_for_anyone_and_tells_nothing_else(serve: Serve) -> None:
    live = serve(auth__local_without_token=False)
    answer = http.get(f"{live.url}/healthz", headers={"X-Forwarded-For": "10.0.0.1", "Authorization": "Bearer wrong"})
    assert (answer.status_code, answer.json()) == WELL
    assert answer.headers["cache-control"] == "no-store"
    head = http.head(f"{live.url}/healthz")
    assert (head.status_code, head.content) == (200, b"")
    assert http.post(f"{live.url}/healthz").status_code == 405


def test_health_leaves_no_trace_in_the_hall(hall: Live) -> None:
    before = scrape(hall)
    for _ in range(3):
        assert health(hall) == WELL
    told = scrape(hall)
    for name in ("crewhall_events_newest", "crewhall_calls_total"):
        assert told.values(name) == before.values(name) != []


# When something is wrong


@sqlite
def test_a_writer_that_is_stuck_is_told_in_time(live: Live, make_hub: MakeHub) -> None:
    assert health(live) == WELL
    with make_hub().own_work():
        assert health(live) == (503, {"status": "unavailable", "reason": "no answer within 2 s"})
        assert scrape(live).value("crewhall_events_newest") == 0, "reads go on"
    assert eventually(lambda: health(live) == WELL)


@sqlite
def test_a_crowd_that_asks_for_health_takes_one_thread(serve: Serve, make_hub: MakeHub, impatient: None) -> None:
    live = serve(tool__threads=3)  # one may be with the chores
    with make_hub().own_work(), ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(health, live) for _ in range(20)]
        assert {answer.result(20)[0] for answer in answers} == {503}
        assert http.get(f"{live.url}/api/v1/agent/list", timeout=BOUNDED).json()["total"] == 0


@postgres
def test_a_postgres_that_hangs_is_told_in_time(live: Live, database: str, impatient: None) -> None:
    assert health(live) == WELL
    with backends_stopped(database):
        assert health(live) == (503, {"status": "unavailable", "reason": "no answer within 0.5 s"})
    assert eventually(lambda: health(live) == WELL)


@contextmanager
def backends_stopped(database: str) -> Iterator[None]:
    """PostgreSQL's processes, and the one that would start others, stopped as Ctrl-Z would stop them."""
    with psycopg.connect(server_of(database), autocommit=True) as server:
        first = parent_of(server.info.backend_pid)
        os.kill(first, signal.SIGSTOP)  # from now on there are no new ones
        others = [pid for pid in process_ids() if parent_of(pid) == first and pid != server.info.backend_pid]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in (*others, first):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def parent_of(pid: int) -> int:
    """The parent of a process; 0 for one that has just ended."""
    words = read_process(pid, "stat").rpartition(b")")[2].split()
    return int(words[1]) if words else 0


def server_of(database: str) -> str:
    return f"{database.rpartition('/')[0]}/postgres"


@postgres
def test_a_database_that_is_gone_is_told_and_the_counts_are_there_all_the_same(
    live: Live, database: str, impatient: None
) -> None:
    live.hub.call("agent_list", {}, OPERATOR)
    with database_shut(database):
        status, body = health(live)
        assert status == 503 and body.keys() == {"status", "reason"} and database not in str(body)
        began = time.monotonic()
        told = scrape(live)
        assert time.monotonic() - began < BOUNDED
    assert told.outcomes("agent_list") == {"ok": 1}
    assert told.values("crewhall_events_newest") == told.values("crewhall_event_lag") == []
    assert eventually(lambda: health(live) == WELL, 30)


@contextmanager
def database_shut(database: str) -> Iterator[None]:
    """A database that ends its connections and takes no others."""
    name = database.rpartition("/")[2]
    with psycopg.connect(server_of(database), autocommit=True) as server:
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def test_a_database_that_refuses_costs_its_own_numbers_alone(live: Live) -> None:
    live.hub.call("agent_list", {}, OPERATOR)
    live.hub.store.close()
    told = scrape(live)
    assert told.outcomes("agent_list") == {"ok": 1}
    assert told.values("crewhall_events_newest") == told.values("crewhall_event_lag") == []
    assert health(live) == (503, {"status": "unavailable", "reason": "the database takes no changes"})


@sqlite
@pytest.mark.parametrize("error", [Unavailable("no disk in /secret", hint="Look."), ZeroDivisionError("a bug")])
def test_whatever_is_wrong_only_the_log_says_more(
    serve: Serve, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock = BreakingClock()
    live = serve(clock=clock)
    clock.error = error
    assert health(live) == (503, {"status": "unavailable", "reason": "the database takes no changes"})
    message = "a change does not get through" if isinstance(error, ZeroDivisionError) else error.args[0]
    (said,) = [record for record in caplog.records if record.message == message]
    assert str(error) in f"{said.message} {said.exc_info}"


def fill_the_disk_of_a_hall(directory: Path) -> None:
    health_module.WRITE_SECONDS = 0.05
    mount_small(directory / "home", 2000)
    live = Live(Hub(settings_for(str(directory / "home" / "hall.db"), directory / "home"), registry()))
    try:
        for spare in (0, 1, 3):
            live.hub.call("agent_register", {"name": f"agent {spare}", "runtime": "codex"}, OPERATOR)
            assert health(live) == WELL
            fill(directory / "home", spare)
            with pytest.raises(Unavailable):
                while True:  # what is left of the log's own room is used up
                    live.hub.call("agent_token_create", {"name": "x" * 100}, OPERATOR)
            eventually(lambda: health(live)[0] == 503, 10)
            assert health(live) == (503, {"status": "unavailable", "reason": "the database takes no changes"})
            fill(directory / "home", 1000)
            eventually(lambda: health(live) == WELL, 10)
    finally:
        live.stop()
        live.hub.close()


@pytest.mark.slow
def test_a_hub_whose_disk_is_full_is_not_well_until_there_is_room(tmp_path: Path) -> None:
    with_own_mounts(fill_the_disk_of_a_hall, tmp_path)


@sqlite
def test_many_who_ask_whether_a_hub_is_well_cost_one_write(live: Live) -> None:
    assert health(live) == WELL
    before = probe_of(live.hub)
    assert before and all(health(live) == WELL for _ in range(50))
    assert probe_of(live.hub) == before


def probe_of(hub: Hub) -> str | None:
    with hub.store.read() as tx:
        row = tx.one("hall_get", key="probe")
    return None if row is None else str(row["value"])


@sqlite
def test_metrics_come_though_every_thread_is_taken(serve: Serve, impatient: None) -> None:
    deaf = Deaf()
    live = serve(tools=deaf.registry, tool__threads=1)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.post, f"{live.url}/api/v1/deaf/wait", json={})
        try:
            assert deaf.started.wait(10)
            began = time.monotonic()
            told = scrape(live)
            assert time.monotonic() - began < BOUNDED
            assert health(live)[0] == 503, "no short call would be answered now"
        finally:
            deaf.proceed.set()
        assert answer.result(10).status_code == 200
    assert told.value("crewhall_calls_running") == 1
    assert told.values("crewhall_events_newest") == [0], "the hub asks in threads of its own"
    eventually(lambda: health(live)[0] == 200)


@sqlite
def test_a_hub_that_is_stopping_is_not_well(make_hub: MakeHub) -> None:
    lab = SampleFamily()
    hub = make_hub(lab.registry)

    async def use() -> httpx2.Response:
        dispatcher = Dispatcher(hub)
        running = asyncio.create_task(dispatcher.answer("lab_quiet", {}, OPERATOR, "test"))
        assert await asyncio.to_thread(lab.started.wait, 10)
        closing = asyncio.create_task(dispatcher.close(10))
        await asyncio.sleep(0)
        async with client_of(Metrics(dispatcher, {}, lambda: 0)) as client:
            answer = await client.get("/healthz")
        lab.proceed.set()
        await running
        assert await closing
        return answer

    answer = asyncio.run(use())
    assert (answer.status_code, answer.json()["reason"]) == (503, "the hub is stopping")
