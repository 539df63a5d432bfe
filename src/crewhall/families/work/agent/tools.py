"""
Agents: who is in the hall (seed 003, agent management).

    register ──▶ online ◀─ heartbeat, update ─▶ busy
                   └────── unregister, update ─────▶ offline ── heartbeat, register ──▶ online
"""

import json

from crewhall.app import Call
from crewhall.bounded import AnyOf, Limit, Offset, json_text, page, rows_and_total
from crewhall.declaration import KEEP
from crewhall.errors import Conflict, InvalidInput, InvalidState
from crewhall.families.work.agent.model import (
    Agent,
    AgentIntroduced,
    AgentRegistered,
    Agents,
    AgentStatus,
    AgentToken,
    AgentType,
    Capabilities,
    Heartbeat,
    LiveStatus,
    Metadata,
    Role,
    Runtime,
    TokensRevoked,
    WorkspacePath,
)
from crewhall.families.work.agent.names import welcome
from crewhall.families.work.agent.record import insert_agent
from crewhall.families.work.agent.rules import METADATA_BYTES, status_after_beat
from crewhall.families.work.agent.rules_name import refuse_reserved_name
from crewhall.families.work.claim.leases import lease_from, lease_ms, put_all_back
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get, get_locked, hint_get_locked
from crewhall.families.work.model import AgentId, Done, IncludeArchived, Me, Name, TaskId
from crewhall.identity import make_token
from crewhall.store.transaction import Row, Tx
from crewhall.tool import OPERATOR


@work.tool("agent_register", changes=True, creates=True, profiles=("worker", "coordinator", "reviewer", "standard"))
def agent_register(
    call: Call,
    name: Name,
    runtime: Runtime,
    role: Role = "worker",
    capabilities: Capabilities | None = None,
    workspace_path: WorkspacePath | None = None,
    metadata: Metadata | None = None,
) -> AgentRegistered:
    """Join the hall: call this once when you start, and keep the id it returns.

    With an agent's own token it updates that agent, whose name and role stay what the operator gave it.
    """
    fields = {
        "name": name,
        "runtime": runtime,
        "capabilities": None if capabilities is None else json.dumps(capabilities),
        "workspace_path": workspace_path,
        "metadata": None if metadata is None else json_text("metadata", metadata, METADATA_BYTES),
    }
    if call.actor.kind != "agent":
        refuse_reserved_name(name)
    with call.begin() as tx:
        if call.actor.kind == "agent":
            row = _introduce(call, tx, call.actor.id, fields)
        else:
            row = insert_agent(call, tx, fields, role, None, "online")
            if call.actor.proof == "local":
                call.named = row["id"]  # it registers itself
            tx.event("agent.registered", row["id"], after="online", actor=call.author)
        call.speak_for(tx, row["id"])
    if row["name"] != name and call.actor.kind != "agent":
        _tell_name(call, name, row)
    return AgentRegistered(**row | {"status": "online"})


def _tell_name(call: Call, name: str, row: AgentIntroduced) -> None:
    """Let a client know that it has another name than it asked for, and who it may have been before."""
    text = f"You are called '{row['name']}': another agent has the name '{name}'. Your id is {row['id']}."
    bridge = call.origin.bridge if call.actor.proof == "local" else None
    own = {} if bridge is None else call.hub.bindings.agents(call.hub.store, bridge, call.origin.process or "")
    before = next((one.id for one in own.values() if one.name == name), None)
    if before is not None:
        text += f" That is {before}, and it came by your own connection. If it was you, before your memory was cleared,"
        text += f' call agent_unregister(id="{row["id"]}") and go on as {before}.'
    call.mention(text)


def _introduce(call: Call, tx: Tx, agent_id: str, fields: Row) -> AgentIntroduced:
    """An agent that the hall knows says who it is; its name and its role stay."""
    before = get_locked(tx, "agent", agent_id)
    if before["status"] == "offline":
        welcome(tx, before, call.now)
    until = call.now + lease_ms(call.settings, beats=False)
    row: AgentIntroduced | None = tx.one("agent_introduce", id=agent_id, now=call.now, until=until, **fields)
    assert row is not None
    tx.event("agent.registered", row["id"], before=before["status"], after=row["status"])
    return row


@work.tool("agent_heartbeat", changes=True, idempotent=True, profiles=("worker", "coordinator", "reviewer", "standard"))
def agent_heartbeat(
    call: Call, agent_id: Me, current_task_id: TaskId | None = None, status: LiveStatus | None = None
) -> Heartbeat:
    """Say that you are alive. Call it again within next_heartbeat_ms; an agent that was offline is back."""
    until = call.now + lease_ms(call.settings, beats=True)
    with call.begin() as tx:
        if current_task_id is not None:
            hint_get_locked(tx, "agent", agent_id)
            get(tx, "task", current_task_id)
        before = get_locked(tx, "agent", agent_id)
        after = status_after_beat(before["status"], status)
        if before["status"] == "offline":
            welcome(tx, before, call.now)
        tx.run("agent_beat", id=agent_id, status=after, task=current_task_id, until=until, now=call.now)
        call.speak_for(tx, agent_id)
        if after != before["status"]:
            tx.event("agent.updated", agent_id, before=before["status"], after=after)
    return Heartbeat(success=True, next_heartbeat_ms=int(call.settings["agent.heartbeat"] * 1000))


@work.tool("agent_update", changes=True, idempotent=True, profiles=("coordinator",))
def agent_update(
    call: Call,
    id: Me,
    status: AgentStatus | None = None,
    current_task_id: TaskId | None = KEEP,
    workspace_path: WorkspacePath | None = None,
    metadata: Metadata | None = None,
) -> Done:
    """Change your status, task, directory or metadata. What is left out stays; current_task_id null clears it."""
    fields = {"workspace_path": workspace_path}
    fields["metadata"] = None if metadata is None else json_text("metadata", metadata, METADATA_BYTES)
    with call.begin() as tx:
        if current_task_id is not KEEP and current_task_id is not None:
            if status != "offline":  # who leaves is locked after the workflows
                hint_get_locked(tx, "agent", id)
            get(tx, "task", current_task_id)
        if status == "offline":
            _leave(call, tx, id, **fields)
            return Done(success=True)
        before = get_locked(tx, "agent", id)
        after = status or before["status"]
        if before["status"] == "offline" and (after != "offline" or before["archived_at"] is not None):
            welcome(tx, before, call.now)
        task = before["current_task_id"] if current_task_id is KEEP else current_task_id
        here: dict[str, int | None] = {"until": lease_from(call, before), "has_left": 0}
        if after == "offline":
            here = {"until": before["lease_until"], "has_left": before["has_left"]}
        tx.run("agent_set", id=id, status=after, task=task, now=call.now, **here, **fields)
        tx.event("agent.updated", id, before=before["status"], after=after)
    return Done(success=True)


@work.tool("agent_get", pace="quick", profiles=("coordinator", "reviewer"), resources=("crewhall://agents/{id}",))
def agent_get(call: Call, id: AgentId) -> Agent:
    """An agent's details."""
    return Agent.from_row(get(call, "agent", id))


LISTED_BYTES = 17_000  # of an agent in a list


@work.tool(
    "agent_list",
    profiles=("worker", "coordinator", "reviewer", "standard", "coding", "review", "planning"),
    resources=("crewhall://agents",),
)
def agent_list(
    call: Call,
    status: AnyOf[AgentStatus] | None = None,
    role: Role | None = None,
    runtime: Runtime | None = None,
    include_archived: IncludeArchived = False,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Agents:
    """The agents of the hall, the longest known first; filter by status, role or runtime."""
    chosen: Row = {"statuses": json.dumps(status) if status else None, "role": role, "runtime": runtime}
    chosen |= {"include_archived": int(include_archived)}
    with call.begin() as tx:
        rows, total = rows_and_total(tx, "agents", chosen, limit=limit, offset=offset)
    items, following = page((Agent.from_row(row, LISTED_BYTES) for row in rows), total, offset)
    return Agents(agents=items, total=total, next_offset=following)


@work.tool(
    "agent_unregister", changes=True, idempotent=True, profiles=("worker", "coordinator", "reviewer", "standard")
)
def agent_unregister(call: Call, id: Me) -> Done:
    """Leave the hall when you end: what you did stays, and what you hold is free. A heartbeat brings you back."""
    with call.begin() as tx:
        _leave(call, tx, id)
    return Done(success=True)


def _leave(call: Call, tx: Tx, agent_id: str, workspace_path: str | None = None, metadata: str | None = None) -> None:
    """The agent is gone of its own will: its lease is over, and what it held is free."""
    reason = "Its holder left the hall; what it noted is kept."
    before = put_all_back(tx, agent_id, "released", call.now, reason)
    fields = {"workspace_path": workspace_path, "metadata": metadata}
    tx.run("reservations_drop", agent_id=agent_id)
    call.speak_no_more_for(tx, agent_id)
    tx.run("agent_set", id=agent_id, status="offline", task=None, until=call.now, has_left=1, now=call.now, **fields)
    if before["status"] != "offline":
        tx.event("agent.unregistered", agent_id, before=before["status"], after="offline")


@work.tool("agent_token_create", ours=True, changes=True, who=OPERATOR, command="agent token")
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
    if name is not None:
        refuse_reserved_name(name)
    with call.begin() as tx:
        if agent_id is None:
            _refuse_taken(tx, name)
            fields = {"name": name, "runtime": runtime or "custom"}
            fields |= {"capabilities": None, "workspace_path": None, "metadata": None}
            row = insert_agent(call, tx, fields, role or "worker", type, "offline")
        else:
            row = get(tx, "agent", agent_id)
            _refuse_instance(tx, agent_id)
        token = make_token(tx, "agent", row["name"], call.now, agent_id=row["id"])
        tx.event("agent.token_made", row["id"])
    return AgentToken(agent_id=row["id"], role=row["role"], token=token)


def _refuse_instance(tx: Tx, agent_id: str) -> None:
    """Raise InvalidState for an instance's agent: nobody else is to act as it."""
    instance = tx.one("instance_of", agent_id=agent_id)
    if instance is not None:
        raise InvalidState(
            f"agent {agent_id} is instance {instance['id']}, and the hall alone makes its token",
            hint="Choose another name: that makes an agent of its own.",
        )


def _refuse_taken(tx: Tx, name: str | None) -> None:
    """Raise Conflict when an agent has this name: a token for it is asked for by its id."""
    tx.run("hall_lock")
    taken = tx.one("agent_named", name=name)
    if taken is not None:
        raise Conflict(
            f"an agent named '{name}' is in the hall already: {taken['id']}",
            hint=f"agent_id {taken['id']} makes a token for it; another name makes a new agent.",
        )


@work.tool(
    "agent_token_revoke",
    ours=True,
    changes=True,
    who=OPERATOR,
    idempotent=True,
    destructive=True,
    command="agent revoke",
)
def agent_token_revoke(call: Call, agent_id: AgentId) -> TokensRevoked:
    """Make all tokens of an agent worthless, at once and on every hub."""
    with call.begin() as tx:
        get_locked(tx, "agent", agent_id)
        revoked = tx.count("tokens_revoke", agent_id=agent_id, now=call.now)
        if revoked:
            tx.run("bridges_forget_agent", agent_id=agent_id)
            tx.event("agent.token_revoked", agent_id)
    return TokensRevoked(agent_id=agent_id, revoked=revoked)
