"""
Agents: who is in the hall (seed 003, agent management).

    register ──▶ online ◀─ heartbeat, update ─▶ busy
                   └────── unregister, update ─────▶ offline ── heartbeat, register ──▶ online
"""

import json

from crewhall.app import Call
from crewhall.declared import KEEP
from crewhall.errors import Conflict, InvalidInput, NotFound
from crewhall.families.work.family import work
from crewhall.families.work.model import (
    Agent,
    AgentId,
    Agents,
    AgentStatus,
    AgentToken,
    AgentType,
    Beat,
    Capabilities,
    Done,
    Limit,
    LiveStatus,
    Me,
    Metadata,
    Name,
    Offset,
    Registered,
    Revoked,
    Role,
    Runtime,
    TaskId,
    WorkspacePath,
)
from crewhall.families.work.rules import cargo, page, refuse_more_agents, status_after_beat
from crewhall.identity import make_token, new_id
from crewhall.store.transaction import Look, Row, Tx
from crewhall.tool import OPERATOR

EVERYONE = ("worker", "coordinator", "reviewer", "standard")


@work.tool("agent_register", changes=True, profiles=EVERYONE)
def agent_register(
    call: Call,
    name: Name,
    runtime: Runtime,
    role: Role = "worker",
    capabilities: Capabilities | None = None,
    workspace_path: WorkspacePath | None = None,
    metadata: Metadata | None = None,
) -> Registered:
    """Join the hall: call this once when you start, and keep the id it returns.

    With an agent's own token it updates that agent, whose role stays what the operator gave it.
    """
    told = {
        "name": name,
        "runtime": runtime,
        "capabilities": None if capabilities is None else json.dumps(capabilities),
        "workspace_path": workspace_path,
        "metadata": None if metadata is None else cargo("metadata", metadata),
    }
    with call.begin() as tx:
        if call.actor.kind == "agent":
            before = _held(tx, call.actor.id)
            row = tx.one("agent_introduce", id=call.actor.id, now=call.now, **told)
            assert row is not None
            tx.event("agent.registered", row["id"], before=before["status"], after="online")
        else:
            row = _new_agent(call, tx, told, role, None, "online")
            tx.event("agent.registered", row["id"], after="online")
    return Registered(**row)


def _new_agent(call: Call, tx: Tx, told: Row, role: str, agent_type: str | None, status: str) -> Row:
    tx.run("hall_lock")
    refuse_more_agents(tx.value("agents_live_count"), call.settings["agent.max"])
    agent_id = new_id("ag")
    told = told | {"capabilities": told["capabilities"] or "[]", "metadata": told["metadata"] or "{}"}
    tx.run("agent_insert", id=agent_id, role=role, type=agent_type, status=status, now=call.now, **told)
    return {"id": agent_id, "name": told["name"], "status": status, "role": role}


@work.tool("agent_heartbeat", changes=True, idempotent=True, profiles=EVERYONE)
def agent_heartbeat(
    call: Call, agent_id: Me, current_task_id: TaskId | None = None, status: LiveStatus | None = None
) -> Beat:
    """Say that you are alive. Call it again within next_heartbeat_ms; an agent that was offline is back."""
    with call.begin() as tx:
        before = _held(tx, agent_id)
        after = status_after_beat(before["status"], status)
        tx.run("agent_beat", id=agent_id, status=after, task=current_task_id, now=call.now)
        if after != before["status"]:
            tx.event("agent.updated", agent_id, before=before["status"], after=after)
    return Beat(success=True, next_heartbeat_ms=int(call.settings["agent.heartbeat"] * 1000))


@work.tool("agent_update", changes=True, idempotent=True, profiles=("worker", "coordinator", "standard"))
def agent_update(
    call: Call,
    id: Me,
    status: AgentStatus | None = None,
    current_task_id: TaskId | None = KEEP,
    workspace_path: WorkspacePath | None = None,
    metadata: Metadata | None = None,
) -> Done:
    """Change your status, task, directory or metadata. What is left out stays; current_task_id null clears it."""
    text = None if metadata is None else cargo("metadata", metadata)
    with call.begin() as tx:
        before = _held(tx, id)
        after = status or before["status"]
        task = before["current_task_id"] if current_task_id is KEEP else current_task_id
        tx.run(
            "agent_set",
            id=id,
            status=after,
            task=task,
            workspace_path=workspace_path,
            metadata=text,
            now=call.now,
        )
        tx.event("agent.updated", id, before=before["status"], after=after)
    return Done(success=True)


@work.tool("agent_get", quick=True, profiles=EVERYONE, resources=("crewhall://agents/{id}",))
def agent_get(call: Call, id: AgentId) -> Agent:
    """An agent's details."""
    return Agent.from_row(_found(call, id))


@work.tool("agent_list", profiles=EVERYONE, resources=("crewhall://agents",))
def agent_list(
    call: Call,
    status: list[AgentStatus] | None = None,
    role: Role | None = None,
    runtime: Runtime | None = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Agents:
    """The agents of the hall, perhaps of some statuses, one role or one runtime, the longest known first."""
    chosen = {"statuses": json.dumps(status) if status else None, "role": role, "runtime": runtime}
    with call.begin() as tx:
        rows = tx.all("agents", limit=limit, offset=offset, **chosen)
        total = tx.value("agents_count", **chosen)
    items, following = page([Agent.from_row(row) for row in rows], total, offset)
    return Agents(agents=items, total=total, next_offset=following)


@work.tool("agent_unregister", changes=True, idempotent=True, profiles=EVERYONE)
def agent_unregister(call: Call, id: Me) -> Done:
    """Leave the hall: call this when you end. What you did stays; a heartbeat brings you back."""
    with call.begin() as tx:
        before = _held(tx, id)
        if before["status"] != "offline":
            tx.run(
                "agent_set",
                id=id,
                status="offline",
                task=None,
                workspace_path=None,
                metadata=None,
                now=call.now,
            )
            tx.event("agent.unregistered", id, before=before["status"], after="offline")
    return Done(success=True)


@work.tool("agent_token_create", changes=True, who=OPERATOR, command="agent token")
def agent_token_create(
    call: Call,
    agent_id: AgentId | None = None,
    name: Name | None = None,
    role: Role | None = None,
    type: AgentType | None = None,
    runtime: Runtime | None = None,
) -> AgentToken:
    """Make a token that lets a client act as one agent and as no other: an agent that is there, or a new one by name.

    The token is shown this once. A new agent gets the role (worker), type and runtime (custom) given here.
    """
    if (agent_id is None) == (name is None):
        raise InvalidInput(
            "give either agent_id or name", hint="agent_id for an agent of the hall, name for a new one."
        )
    if agent_id is not None and (role or type or runtime):
        raise InvalidInput(
            "role, type and runtime are for a new agent", hint="An agent that is there keeps those it was made with."
        )
    with call.begin() as tx:
        if agent_id is None:
            _refuse_taken(tx, name)
            told = {"name": name, "runtime": runtime or "custom"}
            told |= {"capabilities": None, "workspace_path": None, "metadata": None}
            row = _new_agent(call, tx, told, role or "worker", type, "offline")
        else:
            row = _found(tx, agent_id)
        token = make_token(tx, "agent", row["name"], call.now, agent_id=row["id"])
        tx.event("agent.token_made", row["id"])
    return AgentToken(agent_id=row["id"], role=row["role"], token=token)


def _refuse_taken(tx: Tx, name: str | None) -> None:
    """Raise Conflict when an agent has this name: a token for it is asked for by its id."""
    tx.run("hall_lock")
    taken = tx.one("agent_named", name=name)
    if taken is not None:
        raise Conflict(
            f"an agent named '{name}' is in the hall already: {taken['id']}",
            hint=f"agent_id {taken['id']} makes a token for it; another name makes a new agent.",
        )


@work.tool("agent_token_revoke", changes=True, who=OPERATOR, idempotent=True, destructive=True, command="agent revoke")
def agent_token_revoke(call: Call, agent_id: AgentId) -> Revoked:
    """Make all tokens of an agent worthless, at once and on every hub."""
    with call.begin() as tx:
        _held(tx, agent_id)
        revoked = tx.run("tokens_revoke", agent_id=agent_id, now=call.now)
        if revoked:
            tx.event("agent.token_revoked", agent_id)
    return Revoked(agent_id=agent_id, revoked=revoked)


def _found(look: Look, agent_id: str) -> Row:
    """The agent. Raises NotFound."""
    row = look.one("agent_get", id=agent_id)
    if row is None:
        raise _unknown(agent_id)
    return row


def _held(tx: Tx, agent_id: str) -> Row:
    """The agent's changing parts, locked. Raises NotFound."""
    row = tx.one("agent_lock", id=agent_id)
    if row is None:
        raise _unknown(agent_id)
    return row


def _unknown(agent_id: str) -> NotFound:
    return NotFound(f"there is no agent '{agent_id}'", hint="agent_list shows the agents; agent_register makes one.")
