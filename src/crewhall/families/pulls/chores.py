"""Chores of pulls: what was left half open on a host is finished or removed."""

from crewhall.app import Tick
from crewhall.families.pulls.family import pulls
from crewhall.families.pulls.journal import LEASE_MS, left_behind
from crewhall.families.pulls.providers import accesses, host_at
from crewhall.families.pulls.recovery import settle_left
from crewhall.outside.hosting.wire import Patience
from crewhall.stop import Stop

EVERY_SECONDS = 30.0
SECONDS = 10.0  # for all that is left, so that the other chores go on


@pulls.chore("pulls_settle", seconds=EVERY_SECONDS, everywhere=True)
def settle_all(tick: Tick) -> None:
    """On every host for which this hub has a token of its own; others are settled when a client brings one.

    After a start or a gap it waits for one lease: a call that slept with the machine goes on first.
    """
    if tick.now - tick.awake_since < LEASE_MS:
        return
    stop = Stop(SECONDS)
    for access in accesses(tick.settings, {}).values():
        if left_behind(tick.hub, access.web):
            with host_at(access, Patience(stop, tick.settings["pulls.pause"])) as host:
                settle_left(host, tick.hub)
