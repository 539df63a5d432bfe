"""Every kind of operation survives kill -9 at every point: before, in and after each step, and while it is undone."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Tick
from crewhall.families.all import registry
from crewhall.journal import BEGUN, Kind, settle_all
from tests.conftest import Clock, settings_for
from tests.contract.writer import SERVER
from tests.families.work.workflows import sql
from tests.trials import START, TRIALS, Trial

pytestmark = pytest.mark.slow

KINDS = registry().operations
DAY_MS = 86_400_000


def turning(kind: Kind[Any]) -> str:
    """The last step that can still be undone when it begins."""
    return kind.keeps or kind.steps[-1].name


def steps_to_undo(kind: Kind[Any]) -> list[str]:
    names = [step.name for step in kind.steps]
    if kind.keeps == BEGUN:
        return []
    return names[: names.index(turning(kind)) + 1]


DOING = [(kind, f"{step.name} {at}") for kind in KINDS for step in kind.steps for at in ("begins", "acted", "recorded")]
UNDOING = [(kind, f"{step} {at}") for kind in KINDS for step in steps_to_undo(kind) for at in ("undoes", "undone")]


class Walk:
    """A hall whose hubs work on one operation, and are killed."""

    def __init__(self, kind: Kind[Any], trial: Trial, home: Path, clock: Clock) -> None:
        self.kind, self.trial, self.home, self.clock = kind, trial, home, clock

    def hub(self) -> Hub:
        return hub_at(self.home, self.trial.settings, self.clock.now)

    def kill_at(self, point: str, *, settles: bool = False) -> None:
        """A hub in a process of its own does it, or settles it, and is killed at a point of that."""
        where = (self.kind.name, self.home, dict(self.trial.settings), self.clock.now, point, settles, self.trial.words)
        process = SERVER.Process(target=work_until, args=where)
        process.start()
        process.join(40)
        assert process.exitcode == -signal.SIGKILL, f"the operation has no point '{point}'"

    def settle(self) -> None:
        """What the chores of later hubs do, until nobody has anything left to look at."""
        hub = self.hub()
        try:
            for _ in range(12):
                leases = [row["lease_until"] for row in sql(hub, "SELECT lease_until FROM operation")]
                if not leases:
                    return
                hub.journal.clock = self.clock
                self.clock.now = max(self.clock.now, *leases)
                for kind in KINDS:  # one may have begun another
                    settle_all(kind, Tick(hub, self.clock.now, awake_since=0))
            pytest.fail(f"the operation is still there: {sql(hub, 'SELECT * FROM operation')}")
        finally:
            hub.close()


def hub_at(home: Path, settings: Any, now: int) -> Hub:
    return Hub(settings_for(str(home / "hall.db"), home, **settings), registry(), clock=lambda: now)


def work_until(
    kind: str, home: Path, settings: dict[str, Any], now: int, point: str, settles: bool, words: tuple[Any, ...]
) -> None:
    """In a process of its own: work on the operation, and die at the point."""
    hub = hub_at(home, settings, now)
    hub.journal.at = lambda here: os.kill(os.getpid(), signal.SIGKILL) if here == point else None
    if settles:
        settle_all(next(one for one in hub.registry.operations if one.name == kind), Tick(hub, now, awake_since=0))
    else:
        START[kind](hub, *words)
    os._exit(3)  # nobody killed it


@pytest.fixture
def walk(request: pytest.FixtureRequest, tmp_path: Path, sqlite_file: Path, clock: Clock) -> Any:
    kind: Kind[Any] = request.param
    if kind.name not in TRIALS:
        pytest.fail(f"tests/trials.py has no trial of the operation '{kind.name}': add one, so that it is killed here")
    shutil.copy(sqlite_file, tmp_path / "hall.db")
    with TRIALS[kind.name](tmp_path) as trial:
        yield Walk(kind, trial, tmp_path, clock)


def ids(value: Any) -> str:
    return value.name if isinstance(value, Kind) else str(value)


@pytest.mark.parametrize(("walk", "point"), DOING, ids=ids, indirect=["walk"])
def test_an_operation_killed_at_any_point_is_finished_or_undone(walk: Walk, point: str) -> None:
    walk.kill_at(point)
    walk.settle()
    assert walk.trial.outside() in ("all", "nothing")
    step, at = point.split()
    if walk.kind.keeps == BEGUN or (at == "recorded" and walk.kind.is_kept(step)):
        assert walk.trial.outside() == "all", "what is kept is never undone"


@pytest.mark.parametrize(("walk", "point"), UNDOING, ids=ids, indirect=["walk"])
def test_a_hub_killed_while_it_undoes_leaves_the_rest_to_the_next(walk: Walk, point: str) -> None:
    walk.kill_at(f"{turning(walk.kind)} begins")
    walk.clock.advance(DAY_MS / 1000)
    walk.kill_at(point, settles=True)
    walk.settle()
    assert walk.trial.outside() == "nothing"


def test_every_kind_has_a_trial() -> None:
    missing = {kind.name for kind in KINDS} - TRIALS.keys()
    assert not missing, f"tests/trials.py has no trial of {missing}: add one, and kill -9 walks through its steps"
    assert DOING and UNDOING
