"""New agents, as the hall writes them down: those that register, and those that the hall itself starts."""

from crewhall.app import Call
from crewhall.families.work.agent.model import AgentIntroduced, AgentStatus, AgentType, Role
from crewhall.families.work.agent.names import free_name, hint_free_name
from crewhall.families.work.agent.rules import refuse_more_agents
from crewhall.families.work.claim.leases import lease_ms
from crewhall.identity import new_id
from crewhall.store.transaction import Row, Tx


def insert_agent(
    call: Call, tx: Tx, fields: Row, role: Role, agent_type: AgentType | None, status: AgentStatus
) -> AgentIntroduced:
    """Insert an agent with a new id, under the next free name. Raises LimitExceeded when the hall is full."""
    tx.run("hall_lock")
    hint_free_name(tx, fields["name"], call.now)
    refuse_more_agents(tx.value("agents_live_count"), call.settings["agent.max"])
    agent_id, name = new_id("ag"), free_name(tx, fields["name"], call.now)
    cargo = {"capabilities": fields["capabilities"] or "[]", "metadata": fields["metadata"] or "{}"}
    fields = fields | {"name": name, **cargo}
    until = None if status == "offline" else call.now + lease_ms(call.settings, beats=False)
    here = {"status": status, "until": until}
    tx.run("agent_insert", id=agent_id, role=role, type=agent_type, now=call.now, **here, **fields)
    return {"id": agent_id, "name": name, "status": status, "role": role}
