"""Hubs of one hall that are stopped, cut off and killed under load: no other stands still, and nothing is lost."""

import fcntl
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pytest

from tests.faults.lab import LEASE_SECONDS, Load
from tests.faults.server import Server
from tests.faults.session import Result, try_faults
from tests.sizes import size

pytestmark = [pytest.mark.slow, pytest.mark.timeout(size(50, 900))]

SMALL = Load(agents=6, share=0.2, patience=2.0)
MANY, ONE = Load(pause=0.4), Load(shape="one", pause=0.4)
MIXED = replace(MANY, agents=24, share=0.2)
BACK_SECONDS = 30.0
TICK_SECONDS = 2.0
CHORE_SECONDS = 15.0  # after which a hub takes the chores of one that it can't see to be dead
LOCKED_SECONDS = 5.0  # after which the server ends a transaction that stands still
Faults = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Limits:
    """Seconds without an acknowledged write at the hubs that a fault did not hit: in the median, and in the worst."""

    median: float
    worst: float


@dataclass(frozen=True)
class Session:
    faults: Faults
    load: Load
    limits: Limits | None = None

    def __str__(self) -> str:
        names = dict.fromkeys(f"{name} {seconds:g}" for name, seconds in self.faults)
        return f"{self.load.hubs} hubs, {self.load.shape}: {', '.join(names)}{self.load.hours or ''}"


def limited() -> Iterator[Session]:
    """One hub is stopped or cut off, for how long the others are held up is limited."""
    for load, limits in ((MANY, Limits(1.0, 3.0)), (ONE, Limits(6.0, 6.0))):
        for hubs in (2, 4):
            lab = replace(load, hubs=hubs)
            yield Session((("stop", 8.0), ("stop", 20.0)) * 5, lab, limits)
            yield Session((("stop", 75.0),), lab, limits)
            yield Session((("stall", 20.0), ("stall", 45.0)), replace(lab, through_proxies=True), limits)


def checked() -> Iterator[Session]:
    """Everything else; all of it with the checker."""
    for load in (MIXED, ONE):
        yield Session((("kill", 3.0),) * 4, load)
        yield Session((("kill", 3.0), ("kill_half", 3.0)) * 2, replace(load, hubs=4))
        yield Session((("backends", 0.0), ("crash", 0.0), ("fast", 0.0)) * 3, load)
        yield Session((("backends", 3.0), ("crash", 5.0), ("fast", 5.0)) * 2, replace(load, hubs=4))
        yield Session((("crash", 15.0), ("fast", 15.0)), load)
        yield Session((("cut", 5.0), ("stall", 8.0)), replace(load, through_proxies=True))
    for hours in (-1, 0, 1):
        yield Session((("silence", 0.0),), replace(MIXED, hours=hours))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def alone() -> Iterator[None]:
    """Sessions take turns: two at once would measure each other."""
    with (Path(tempfile.gettempdir()) / "crewhall-faults.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def assert_sound(result: Result) -> None:
    assert result.verdict.is_sound, result.notes


def test_a_stopped_hub_holds_up_no_other_and_loses_nothing(tmp_path: Path, server: Server) -> None:
    result = try_faults(tmp_path, server, replace(SMALL, share=0.0), [("stop", 6.0)])
    assert_sound(result)
    assert result.faults[0].gap < LOCKED_SECONDS, result.notes
    assert sum(result.faults[0].pending.values()) >= 1, "the stopped hub answered nothing that it had been asked"


SESSIONS = [Session((("kill", 0.5),), SMALL), *limited(), *checked()]


@pytest.mark.parametrize("session", SESSIONS[: size(1, 100)], ids=str)
def test_nothing_is_lost_doubled_or_missed(tmp_path: Path, server: Server, alone: None, session: Session) -> None:
    result = try_faults(tmp_path, server, session.load, session.faults)
    assert_sound(result)
    assert max(one.back for one in result.faults) <= BACK_SECONDS, result.notes
    assert all(one <= LEASE_SECONDS + CHORE_SECONDS + TICK_SECONDS for one in result.claims), result.notes
    if session.limits is not None:
        assert_limited([one.gap for one in result.faults], session.limits, result.notes)


def assert_limited(gaps: Sequence[float], limits: Limits, notes: str) -> None:
    assert median(gaps) <= limits.median, notes
    assert max(gaps) <= limits.worst, notes
