"""Chores of claims: agents that are here keep their leases, those that are gone lose them."""

import json
from collections.abc import Iterable, Mapping

from crewhall.app import Tick
from crewhall.app.hub_process import machine
from crewhall.errors import Unavailable
from crewhall.families.work.agent.model import AgentFound, AgentLapsed
from crewhall.families.work.agent.names import welcome
from crewhall.families.work.claim.leases import grace_ms, lease_ms, lock_with_tasks, log, put_back
from crewhall.families.work.family import work
from crewhall.notices import withdraw
from crewhall.outages import log_failure
from crewhall.outside.processes import is_dead
from crewhall.presence import Seen
from crewhall.store.transaction import Tx

EXPIRED_AT_ONCE = 50  # agents in one tick
MOST_OF_BRIDGE = 10_000  # agents that one bridge can have registered


@work.chore("presence", everywhere=True)
def note_presence(tick: Tick) -> None:
    """Make the leases longer of agents whose calls this hub saw, and of those whose bridges are connected to it."""
    with tick.hub.presence.drain() as (seen, bridges):
        if not seen and not bridges:
            return
        with tick.begin() as tx:
            here = {row["id"] for row in tx.all("agents_at_bridges", bridges=json.dumps(list(bridges)))}
            found = tx.all("agents_lock", ids=json.dumps(sorted(here | set(seen))))
            agents = [agent for agent in found if agent["id"] in here or is_back(agent, seen[agent["id"]].at)]
            for agent in agents:
                _keep_here(tick, tx, agent)
            _note_bridges(tick, tx, seen, [agent["id"] for agent in agents], bridges)


def is_back(agent: AgentFound, called_at: int) -> bool:
    """Whether a call is a sign of life, and not the last one of a process that has ended since."""
    return agent["disconnected_since"] is None or called_at > agent["disconnected_since"]


def _note_bridges(
    tick: Tick, tx: Tx, seen: Mapping[str, Seen], agents: Iterable[str], bridges: Mapping[str, str]
) -> None:
    """Note which of the connected bridges agents spoke through."""
    where = {"machine": machine(tick.settings.node), "now": tick.now}
    spoken = [(agent_id, seen[agent_id].bridge) for agent_id in agents if agent_id in seen]
    rows = [
        {"bridge": bridge, "agent_id": agent_id, "process": bridges[bridge], **where}
        for agent_id, bridge in spoken
        if bridge is not None and bridge in bridges
    ]
    tx.many("bridge_agent_put", rows)


def _keep_here(tick: Tick, tx: Tx, agent: AgentFound) -> None:
    until = tick.now + lease_ms(tick.settings, beats=agent["last_heartbeat_at"] is not None)
    back = agent["status"]
    if back == "offline":
        back = "busy" if agent["holds_tasks"] else "online"
        welcome(tx, agent, tick.now)
    tx.run("agent_here", id=agent["id"], until=until, status=back)
    if back != agent["status"]:
        tx.event("agent.updated", agent["id"], before=agent["status"], after=back)


@work.chore("bridges", everywhere=True)
def end_bridges(tick: Tick) -> None:
    """Agents whose last bridge has ended are gone, and keep what they hold for the grace.

    A bridge that is not connected here may be with another hub, or between two: it has ended when its process is dead.
    """
    node, connected = tick.settings.node.replace(" ", "_"), tick.hub.presence.bridges()
    own = machine(node)
    with tick.look() as look:
        rows = look.all("bridges_of_node", node=node)
    for row in rows:
        is_here = connected.get(row["bridge"]) == row["process"]
        if not is_here and _has_ended(tick, row["machine"], row["process"], own):
            _end_bridge(tick, row["bridge"])


def _has_ended(tick: Tick, where: str, process: str, own: str) -> bool:
    """Whether a bridge of this node has ended: its process is dead, or the machine was started again since.

    On the same boot it is in another container. A hall for many machines may have two of one name by mistake: there
    another boot proves nothing.
    """
    if where == own:
        return is_dead(process)
    return tick.hub.store.is_local and where.rsplit("/", 2)[1] != own.rsplit("/", 2)[1]


def _end_bridge(tick: Tick, bridge: str) -> None:
    until = tick.now + grace_ms(tick.settings)
    with tick.begin() as tx:
        spoken_for = [row["id"] for row in tx.all("bridge_agents", bridge=bridge, process=None, limit=MOST_OF_BRIDGE)]
        tx.run("bridge_forget", bridge=bridge)
        gone = tx.all("agents_without_bridge", ids=json.dumps(spoken_for))
        for agent in gone:
            tx.run("agent_disconnected", id=agent["id"], until=until, now=tick.now)
            if agent["status"] != "offline":
                tx.event("agent.disconnected", agent["id"], before=agent["status"], after="offline")
    for agent in gone:
        tick.hub.presence.forget(agent["id"])


@work.chore("leases")
def expire_leases(tick: Tick) -> None:
    """Agents whose leases are over are offline, and what they held goes back.

    A hub that was away itself, or has just started, could not have heard them: it waits for one whole lease first.
    """
    spans = {"beats": lease_ms(tick.settings, beats=True), "lease": lease_ms(tick.settings, beats=False)}
    spans["grace"] = grace_ms(tick.settings)
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
    how = "went quiet" if lapsed["disconnected_since"] is None else "ended"
    reason = f"{lapsed['name']} ({lapsed['id']}) {how} while it held this task; what it noted is kept."
    agent, tasks = lock_with_tasks(tx, lapsed["id"])
    if agent["lease_until"] is None or agent["lease_until"] >= now:
        return  # it is back
    for task in tasks:
        put_back(tx, task, "expired", now, reason=reason)
    withdraw(tx, "handed", [task["id"] for task in tasks])
    tx.run("reservations_drop", agent_id=agent["id"])
    tx.run("agent_turn", id=agent["id"], status="offline", task=None, now=now)
    if agent["status"] != "offline":
        tx.event("agent.expired", agent["id"], before=agent["status"], after="offline")
