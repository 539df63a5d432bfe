"""Chores of claims: agents that are here keep their leases, those that are gone lose them."""

import json

from crewhall.app import Tick
from crewhall.errors import Unavailable
from crewhall.families.work.agent.model import AgentLapsed, AgentPresence
from crewhall.families.work.claim.leases import lease_ms, lock_with_tasks, log, put_back
from crewhall.families.work.family import work
from crewhall.outages import log_failure
from crewhall.store.transaction import Tx

EXPIRED_AT_ONCE = 50  # agents in one tick


@work.chore("presence", everywhere=True)
def note_presence(tick: Tick) -> None:
    """Make the leases longer of agents whose calls this hub saw, and of those whose bridges are connected to it."""
    with tick.hub.presence.drain() as (seen, bridges):
        if not seen and not bridges:
            return
        with tick.begin() as tx:
            here = {row["id"] for row in tx.all("agents_at_bridges", bridges=json.dumps(bridges))} | set(seen)
            for agent in tx.all("agents_lock", ids=json.dumps(sorted(here))):
                if seen.get(agent["id"]) is not None:
                    tx.run("agent_bridge_set", id=agent["id"], bridge=seen[agent["id"]])
                _keep_here(tick, tx, agent)


def _keep_here(tick: Tick, tx: Tx, agent: AgentPresence) -> None:
    until = tick.now + lease_ms(tick.settings, beats=agent["last_heartbeat_at"] is not None)
    back = "online" if agent["status"] == "offline" else agent["status"]
    tx.run("agent_here", id=agent["id"], until=until, status=back)
    if back != agent["status"]:
        tx.event("agent.updated", agent["id"], before=agent["status"], after=back)


@work.chore("leases")
def expire_leases(tick: Tick) -> None:
    """Agents whose leases are over are offline, and what they held goes back.

    A hub that was away itself, or has just started, could not have heard them: it waits for one whole lease first.
    """
    spans = {"beats": lease_ms(tick.settings, beats=True), "lease": lease_ms(tick.settings, beats=False)}
    with tick.look() as look:
        lapsed = look.all("agents_lapsed", now=tick.now, awake=tick.awake_since, limit=EXPIRED_AT_ONCE, **spans)
    for agent in lapsed:
        try:
            with tick.begin() as tx:
                _expire(tx, agent, tick.now)
        except Unavailable:
            raise  # the other leases can't be ended either
        except Exception as error:
            log_failure(log, "an agent's lease could not be ended", error, agent=agent["id"])


def _expire(tx: Tx, lapsed: AgentLapsed, now: int) -> None:
    reason = f"{lapsed['name']} ({lapsed['id']}) went quiet while it held this task; what it noted is kept."
    agent, tasks = lock_with_tasks(tx, lapsed["id"])
    if agent["lease_until"] is None or agent["lease_until"] >= now:
        return  # it is back
    for task in tasks:
        put_back(tx, task, "expired", now, reason=reason)
    tx.run("reservations_drop", agent_id=agent["id"])
    tx.run("agent_turn", id=agent["id"], status="offline", task=None, now=now)
    if agent["status"] != "offline":
        tx.event("agent.expired", agent["id"], before=agent["status"], after="offline")
