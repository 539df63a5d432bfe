"""The faults: what befalls the first hub, or the server, and for how long; and how the others fared meanwhile."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tests.conftest import eventually
from tests.faults.lab import Lab

BACK_SECONDS = 90.0
REST_SECONDS = 2.0


def stop(lab: Lab, seconds: float) -> None:
    """The first hub is stopped, as a machine that is paused."""
    lab.hubs[0].stop()
    try:
        wait(seconds)
    finally:
        lab.hubs[0].resume()


def stall(lab: Lab, seconds: float) -> None:
    """Nothing goes either way between the first hub and the database."""
    proxy = lab.hubs[0].proxy
    assert proxy is not None
    proxy.stall()
    try:
        wait(seconds)
    finally:
        proxy.heal()


def cut(lab: Lab, seconds: float) -> None:
    """The first hub's connections to the database break, and it gets no new ones."""
    proxy = lab.hubs[0].proxy
    assert proxy is not None
    proxy.cut()
    try:
        wait(seconds)
    finally:
        proxy.heal()


def kill(lab: Lab, seconds: float) -> None:
    """The first hub dies, and is started again later."""
    lab.hubs[0].kill()
    wait(seconds)
    lab.hubs[0].start()


def backends(lab: Lab, seconds: float) -> None:
    """The server ends every connection, again and again for so long."""
    end = time.monotonic() + seconds
    lab.server.end_backends()
    while time.monotonic() < end:
        wait(0.5)
        lab.server.end_backends()


def fast(lab: Lab, seconds: float) -> None:
    """The server is stopped in order, and started after that time."""
    lab.server.halt("fast")
    wait(seconds)
    lab.server.start()


def crash(lab: Lab, seconds: float) -> None:
    """The server ends as in a crash, and is started after that time."""
    lab.server.halt("immediate")
    wait(seconds)
    lab.server.start()


def nothing(lab: Lab, seconds: float) -> None:
    """What the load itself is like."""
    wait(seconds)


Fault = Callable[[Lab, float], None]
FAULTS: dict[str, Fault] = {one.__name__: one for one in (stop, stall, cut, kill, backends, fast, crash, nothing)}
OF_ONE_HUB = ("stop", "stall", "cut", "kill")
BY_PROXY = ("stall", "cut")


def wait(seconds: float) -> None:
    """A fault lasts so long; nothing ends it sooner."""
    threading.Event().wait(seconds)


@dataclass(frozen=True)
class Measured:
    """One fault: how the agents of the hubs that it did not hit fared, and when all were back after it."""

    fault: str
    began: float
    ended: float
    gap: float  # the longest time without an acknowledged write of any of them, while it lasted
    longest: float  # a call of one of them, any
    writes: int  # that were acknowledged to them while it lasted
    back: float  # until every agent had a write acknowledged after its end


def measure(lab: Lab, name: str, seconds: float) -> Measured:
    """Have the fault happen, and wait until everyone is back."""
    wait(REST_SECONDS)
    began = time.monotonic()
    FAULTS[name](lab, seconds)
    ended = time.monotonic()
    back = eventually(lambda: _back(lab, ended), BACK_SECONDS)
    wait(REST_SECONDS)
    hit = {0} if name in OF_ONE_HUB else set()
    until = ended if seconds else ended + REST_SECONDS
    others = [one for one in lab.history.read() if one.home not in hit and one.hub not in hit]
    times = [one.ended for one in others if one.is_write]
    calls = [one for one in others if one.ended > began and one.began < until]
    return Measured(
        name, began, ended, gap(times, began, until), max((one.ended - one.began for one in calls), default=0.0),
        sum(began <= one < until for one in times), back - ended,
    )  # fmt: skip


def _back(lab: Lab, since: float) -> float | None:
    """When the last agent had a write acknowledged, if all have."""
    first: dict[str, float] = {}
    for one in lab.writes():
        if one.ended > since:
            first.setdefault(one.agent, one.ended)
    return max(first.values()) if len(first) >= lab.load.agents else None


def gap(times: list[float], began: float, ended: float) -> float:
    """The longest time between two that follow each other, or from the beginning or to the end."""
    inside = [began, *sorted(one for one in times if began < one < ended), ended]
    return max(later - earlier for earlier, later in pairwise(inside))
