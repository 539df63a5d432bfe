"""
Agents that are long gone: put away, so that lists leave them out.

    offline, holds nothing ── archive ──▶ archived ── restore, or any sign of life ──▶ offline, online or busy
"""

from crewhall.app import Call
from crewhall.errors import InvalidState
from crewhall.families.work.agent.model import AgentLocked
from crewhall.families.work.agent.names import welcome
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get_locked, hint_get_locked
from crewhall.families.work.model import AgentId, Done, Restore
from crewhall.notices import forget
from crewhall.store.transaction import Tx


@work.tool(
    "agent_archive",
    ours=True,
    changes=True,
    idempotent=True,
    who=("operator", "coordinator"),
    profiles=("coordinator",),
)
def agent_archive(call: Call, id: AgentId, restore: Restore = False) -> Done:
    """Archive an agent that is gone: lists leave it out, and its name is free.

    It must be offline and hold nothing. Nothing is deleted: a call of the agent, or restore, brings it back.
    """
    with call.begin() as tx:
        hint_get_locked(tx, "agent", id)
        if not restore:
            tx.ahead("agent_holds", agent_id=id, now=call.now)
            tx.ahead("instance_open_of", agent_id=id)
        agent = get_locked(tx, "agent", id)
        if restore and agent["archived_at"] is not None:
            welcome(tx, agent, call.now)
        elif not restore and agent["archived_at"] is None:
            _refuse_present(tx, agent, call.now)
            tx.run("agent_archived_set", id=id, at=call.now, now=call.now)
            forget(tx, id)
            tx.event("agent.archived", id)
    return Done(success=True)


def _refuse_present(tx: Tx, agent: AgentLocked, now: int) -> None:
    """Raise InvalidState for an agent that is here, that holds something, or whose instance is not over."""
    if agent["status"] != "offline":
        raise InvalidState(
            f"agent {agent['id']} is {agent['status']}, and only an offline agent can be archived",
            hint="agent_unregister lets it leave; otherwise wait until its lease is over.",
        )
    held = tx.one("agent_holds", agent_id=agent["id"], now=now)
    if held is not None:
        raise InvalidState(
            f"agent {agent['id']} still holds {held['kind']} {held['what']}",
            hint="Wait until its lease is over, or free what it holds: agent_unregister frees everything.",
        )
    instance = tx.one("instance_open_of", agent_id=agent["id"])
    if instance is not None:
        raise InvalidState(
            f"agent {agent['id']} is instance {instance['id']}, which is {instance['status']} and may go on",
            hint=f"`crewhall instance abandon {instance['id']}` ends it for good.",
        )
