"""Chores of reservations: what nobody renewed is forgotten."""

from crewhall.app import Tick
from crewhall.families.work.family import work

FORGOTTEN = 500  # agents whose dead reservations are forgotten in one tick


@work.chore("reservations", seconds=600)
def forget_reservations(tick: Tick) -> None:
    """Reservations whose time is over are forgotten."""
    with tick.look() as look:
        agents = look.all("agents_with_dead_reservations", now=tick.now, limit=FORGOTTEN)
    for row in agents:
        with tick.begin() as tx:
            tx.run("agent_lock", id=row["agent_id"])
            tx.run("reservations_dead_drop", agent_id=row["agent_id"], now=tick.now)
