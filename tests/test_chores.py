"""Chores: each in a thread of its own, with a record of how it went."""

import threading
from collections.abc import Callable

import httpx2
import pytest

from crewhall.app import Hub, Tick
from crewhall.edges.cli.doctor import examine
from crewhall.errors import Unavailable
from crewhall.families.all import registry
from crewhall.tool import Family, Registry
from tests.conftest import Clock, Live, eventually

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
MakeHub = Callable[..., Hub]


def hub_with(make_hub: MakeHub, clock: Clock, **chores: Callable[[Tick], None]) -> Hub:
    family = Family("toy", "For tests.", "tests")
    for name, run in chores.items():
        family.chore(name, everywhere=True, limit_seconds=5.0)(run)
    return make_hub(Registry([family]), clock)


def test_a_chore_that_hangs_delays_no_other_and_is_not_started_twice(make_hub: MakeHub, clock: Clock) -> None:
    let_go, runs = threading.Event(), []

    def hang(tick: Tick) -> None:
        let_go.wait(30)

    hub = hub_with(make_hub, clock, hang=hang, quick=lambda tick: runs.append(tick.now))
    for number in range(1, 4):
        hub.chores.tick()
        eventually(lambda: hub.chores.records["quick"].runs == number)  # noqa: B023
        clock.advance(10)
    hanging = hub.chores.records["hang"]
    assert (hanging.is_running, hanging.runs, hanging.is_stuck(clock.now)) == (True, 0, True)
    let_go.set()
    assert hub.chores.close(10) and (hanging.runs, hanging.is_running) == (1, False)


def test_a_record_says_when_a_chore_ran_how_long_and_what_went_wrong(make_hub: MakeHub, clock: Clock) -> None:
    def refuse(tick: Tick) -> None:
        threading.Event().wait(0.02)
        raise Unavailable("the disk is full", hint="Make room.")

    hub = hub_with(make_hub, clock, refuse=refuse, fine=lambda tick: None)
    began = clock.now
    hub.chores.run_due()
    record = hub.chores.records["refuse"]
    assert record.duration_ms is not None and record.duration_ms >= 20
    assert (record.started_at, record.ended_at) == (began, began + record.duration_ms)
    assert (record.error, record.runs, record.failures) == ("the disk is full", 1, 1)
    fine = hub.chores.records["fine"]
    assert (fine.error, fine.runs, fine.failures, fine.is_stuck(clock.now)) == (None, 1, 0, False)


@pytest.mark.slow
def test_rest_metrics_and_the_doctor_show_how_chores_went(serve: Callable[..., Live], clock: Clock) -> None:
    let_go = threading.Event()

    def refuse(tick: Tick) -> None:
        raise Unavailable("the disk is full", hint="Make room.")

    def hang(tick: Tick) -> None:
        let_go.wait(30)

    family = Family("toy", "For tests.", "tests")
    family.chore("refuse", everywhere=True)(refuse)
    family.chore("hang", everywhere=True, limit_seconds=5.0)(hang)
    live = serve(tools=Registry([*registry().families, family]), clock=clock)
    records = live.hub.chores.records
    eventually(lambda: records["refuse"].runs and records["hang"].is_running and records["prune"].runs)
    clock.advance(6)
    body = httpx2.get(f"{live.url}/api/v1/chores").json()
    shown = {one["name"]: one for one in body["chores"]}
    assert (body["hub"], shown["refuse"]["error"], shown["refuse"]["failures"]) == (live.hub.id, "the disk is full", 1)
    assert (shown["hang"]["is_running"], shown["hang"]["is_stuck"], shown["prune"]["is_stuck"]) == (True, True, False)
    metrics = httpx2.get(f"{live.url}/metrics").text
    assert 'crewhall_chore_runs_total{chore="refuse",outcome="failed"} 1' in metrics
    assert 'crewhall_chore_running{chore="hang"} 1' in metrics
    finding = examine(live.hub.settings, [live.url], body["chores"])[-1]
    assert (finding["state"], finding["what"]) == ("wrong", "chores")
    assert "hang has run for longer than 5 s" in finding["finding"]
    assert "refuse: the disk is full" in finding["finding"]
    let_go.set()


def test_a_chore_that_another_hub_holds_has_not_run_here(make_hub: MakeHub, clock: Clock) -> None:
    first, second = make_hub(clock=clock), make_hub(clock=clock)
    first.chores.run_due()
    second.chores.run_due()
    assert (first.chores.records["prune"].runs, second.chores.records["prune"].runs) == (1, 0)
    second.chores.run_one("prune")
    assert second.chores.records["prune"].runs == 1, "a test that says so runs it all the same"


def test_a_hub_that_stops_tells_its_chores(make_hub: MakeHub, clock: Clock) -> None:
    began = threading.Event()

    def wait(tick: Tick) -> None:
        began.set()
        tick.stop.wait(30)

    hub = hub_with(make_hub, clock, wait=wait)
    hub.chores.tick()
    assert began.wait(10) and hub.chores.close(10)
    assert hub.chores.records["wait"].error == "the hub stops"


def test_a_chore_ends_what_it_waits_for_at_its_limit(make_hub: MakeHub, clock: Clock) -> None:
    limits: list[float] = []
    hub = hub_with(make_hub, clock, look=lambda tick: limits.append(tick.stop.seconds_left or 0))
    hub.chores.run_due()
    assert 4.0 < limits[0] <= 5.0


def test_one_chore_runs_when_a_test_says_so(make_hub: MakeHub, clock: Clock) -> None:
    runs: list[str] = []
    hub = hub_with(make_hub, clock, this=lambda tick: runs.append("this"), other=lambda tick: runs.append("other"))
    hub.chores.run_one("this")
    hub.chores.run_one("this")
    assert (runs, hub.chores.records["this"].runs, hub.chores.records["other"].runs) == (["this", "this"], 2, 0)
