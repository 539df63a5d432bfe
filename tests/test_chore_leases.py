"""Chores that one hub of a hall does: another takes them when that hub dies, at once on its machine, soon elsewhere."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Tick
from crewhall.app.chore_leases import LEASE_MS
from crewhall.tool import Family, Registry
from tests.conftest import Clock, eventually, settings_for
from tests.contract.writer import PATIENCE, SERVER

MakeHub = Callable[..., Hub]
NOW = Clock().now


def toy(run: Callable[[Tick], None] = lambda tick: None) -> Registry:
    family = Family("toy", "For tests.", "tests")
    family.chore("toy", limit_seconds=5.0)(run)
    return Registry([family])


def hold(database: str, home: str, node: str, told: Any) -> None:
    """A hub of this process takes its chores, and lives on."""
    hub = Hub(settings_for(database, Path(home), node__name=node), toy(), clock=lambda: NOW)
    hub.chores.run_due()
    told.put(hub.chores.records["toy"].runs)
    threading.Event().wait()


@contextmanager
def holder(database: str, home: Path, node: str = "local") -> Iterator[int]:
    """Another hub's process, which has the chore."""
    told = SERVER.Queue()
    process = SERVER.Process(target=hold, args=(database, str(home), node, told))
    process.start()
    try:
        assert told.get(timeout=PATIENCE) == 1
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join(PATIENCE)


def has_run(hub: Hub) -> bool:
    """Whether the hub does the chore when it is due."""
    before = hub.chores.records["toy"].runs
    hub.chores.run_due()
    return hub.chores.records["toy"].runs > before


@pytest.mark.slow
def test_the_chores_of_a_killed_hub_are_taken_at_once_on_its_machine(
    make_hub: MakeHub, clock: Clock, database: str, tmp_path: Path
) -> None:
    with holder(database, tmp_path / "home") as pid:
        hub = make_hub(toy(), clock, node__name="local")
        assert not has_run(hub), "its holder lives"
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: has_run(hub))
        assert clock.now == NOW


@pytest.mark.slow
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_hub_on_another_machine_waits_for_the_lease(
    make_hub: MakeHub, clock: Clock, database: str, tmp_path: Path
) -> None:
    with holder(database, tmp_path / "home", "elsewhere") as pid:
        os.kill(pid, signal.SIGKILL)
    hub = make_hub(toy(), clock, node__name="here")
    assert not has_run(hub), "nobody here knows that it is dead"
    clock.advance(LEASE_MS / 1000 - 1)
    assert not has_run(hub)
    clock.advance(1)
    assert has_run(hub)


def test_a_hub_keeps_its_chores_as_long_as_it_runs(make_hub: MakeHub, clock: Clock) -> None:
    first, second = make_hub(toy(), clock), make_hub(toy(), clock)
    assert has_run(first)
    for _ in range(6):
        clock.advance(10)
        assert (has_run(second), has_run(first)) == (False, True)
    clock.advance(10)
    assert not has_run(second)
    clock.advance(6)
    assert has_run(second) and not has_run(first), "a hub that was away looks who has it now"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_chore_that_is_stuck_is_left_to_another_hub(make_hub: MakeHub, clock: Clock) -> None:
    began, let_go = threading.Event(), threading.Event()

    def hang(tick: Tick) -> None:
        began.set()
        let_go.wait(30)

    first, second = make_hub(toy(hang), clock), make_hub(toy(), clock)
    first.chores.tick()
    assert began.wait(10)
    for _ in range(3):
        assert not has_run(second)
        clock.advance(6)
        first.chores.run_one("chore_leases")
    assert has_run(second)
    let_go.set()
    assert first.chores.close(10)
