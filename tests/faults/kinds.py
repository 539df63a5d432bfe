"""The faults: what befalls the first hub, or the server, and for how long; and how the others fared meanwhile."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tests.conftest import eventually
from tests.faults.lab import Lab
from tests.faults.silent import fall_silent, longest_claim
from tests.sizes import size

BACK_SECONDS = size(20, 90)
REST_SECONDS = 1.0
SILENT, TWICE = 4, 3  # agents, messages
CATCH_SECONDS, SETTLED_SECONDS = 20.0, 0.02


def stop(lab: Lab, seconds: float) -> None:
    """The first hub is stopped in the middle of a write, as a machine that is paused."""
    hub = lab.hubs[0]
    try:
        catch_in_a_write(lab, hub.stop, hub.resume)
        with lab.asking_twice(TWICE):
            wait(seconds)
    finally:
        hub.resume()


def stall(lab: Lab, seconds: float) -> None:
    """From the middle of a write on, nothing goes either way between the first hub and the database."""
    proxy = lab.hubs[0].proxy
    assert proxy is not None
    try:
        catch_in_a_write(lab, proxy.stall, proxy.heal)
        with lab.asking_twice(TWICE):
            wait(seconds)
    finally:
        proxy.heal()


def catch_in_a_write(lab: Lab, begin: Callable[[], None], undo: Callable[[], None]) -> None:
    """Begin the fault when the first hub has a transaction open that others may have to wait for."""

    def is_caught() -> bool:
        begin()
        wait(SETTLED_SECONDS)  # the server has done by then what it was sent before
        if lab.server.open_writes("hub0"):
            return True
        undo()
        return False

    eventually(is_caught, CATCH_SECONDS)


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


def kill_half(lab: Lab, seconds: float) -> None:
    """Half of the hubs die at once, and are started again later."""
    half = lab.hubs[: len(lab.hubs) // 2]
    for hub in half:
        hub.kill()
    wait(seconds)
    for hub in half:
        hub.start()


def silence(lab: Lab, seconds: float) -> None:
    """Some agents fall silent, the first hub dies, and it is not started until the others have ended their claims."""
    silent = fall_silent(lab, SILENT)
    lab.hubs[0].kill()
    began = time.monotonic()
    lab.longest_claims.append(longest_claim(lab, silent))
    wait(seconds - (time.monotonic() - began))
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
EVERY: tuple[Fault, ...] = (stop, stall, cut, kill, kill_half, silence, backends, fast, crash, nothing)
FAULTS = {one.__name__: one for one in EVERY}
OF_ONE_HUB = ("stop", "stall", "cut", "kill", "silence")
BY_PROXY = ("stall", "cut")


def wait(seconds: float) -> None:
    """A fault lasts so long; nothing ends it sooner."""
    threading.Event().wait(max(0.0, seconds))


@dataclass(frozen=True)
class Measured:
    """One fault: how the agents of the hubs that it did not hit fared, and when all were back after it."""

    fault: str
    gap: float  # the longest time without an acknowledged write of any of them, while it lasted
    longest: float  # a call of one of them, any
    writes: int  # that were acknowledged to them while it lasted
    back: float  # until every agent had a write acknowledged after its end
    pending: Counter[str]  # calls to the hubs that it hit which had an answer only after it: how they ended


def measure(lab: Lab, name: str, seconds: float) -> Measured:
    """Have the fault happen, and wait until everyone is back."""
    wait(REST_SECONDS)
    before, began = len(lab.history.read()), time.monotonic()
    FAULTS[name](lab, seconds)
    ended = time.monotonic()
    back = eventually(lambda: _back(lab, before, ended), BACK_SECONDS)
    wait(REST_SECONDS)
    return _measured(lab, f"{name} {seconds:g} s", began, ended if seconds else ended + REST_SECONDS, back, before)


def _measured(lab: Lab, title: str, began: float, ended: float, back: float, before: int) -> Measured:
    hit = hubs_hit(lab, title.partition(" ")[0])
    since = [one for one in lab.history.read()[before:] if one.began < ended]
    others = [one for one in since if one.home not in hit and one.hub not in hit]
    times = [one.ended for one in others if one.is_write and began <= one.ended < ended]
    longest = max((one.ended - one.began for one in others), default=0.0)
    pending = [one.outcome for one in since if one.hub in hit and one.ended > ended]
    return Measured(title, gap(times, began, ended), longest, len(times), back, Counter(pending))


def hubs_hit(lab: Lab, name: str) -> set[int]:
    half = len(lab.hubs) // 2 if name == "kill_half" else 0
    return set(range(half)) or ({0} if name in OF_ONE_HUB else set())


def _back(lab: Lab, before: int, since: float) -> float | None:
    """How long after that moment the last agent had a write acknowledged, if all have."""
    first: dict[str, float] = {}
    for one in lab.history.read()[before:]:
        if one.is_write and one.ended > since:
            first.setdefault(one.agent, one.ended - since)
    return max(first.values()) if len(lab.agents & first.keys()) == lab.load.agents else None


def gap(times: list[float], began: float, ended: float) -> float:
    """The longest time between two that follow each other, or from the beginning or to the end."""
    inside = [began, *sorted(one for one in times if began < one < ended), ended]
    return max(later - earlier for earlier, later in pairwise(inside))
