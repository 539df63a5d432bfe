"""Handing a task over: its claim goes to another agent, and all that it is stays."""

import json
from typing import Annotated

from pydantic import Field

from crewhall.app import Call
from crewhall.families.work.agent.model import AgentLocked
from crewhall.families.work.checkpoint.record import add_checkpoint
from crewhall.families.work.claim.leases import (
    Holder,
    end_claim,
    hint_holder,
    hint_task,
    locked_task,
    refuse_incapable_agent,
    turn,
)
from crewhall.families.work.claim.model import Epoch, HandedOver
from crewhall.families.work.claim.rules import stale_claim
from crewhall.families.work.claim.rules_hand_over import (
    HandOver,
    directs_others,
    not_the_holder,
    refuse_recipient,
    refuse_unheld,
)
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get_locked, hint_get_locked
from crewhall.families.work.model import AgentId, Short, TaskId
from crewhall.families.work.task.model import TaskRow
from crewhall.notices import full_name, notify, withdraw
from crewhall.store.transaction import Tx


@work.tool("task_hand_over", ours=True, changes=True, profiles=("coordinator",))
def task_hand_over(
    call: Call,
    task_id: TaskId,
    to: AgentId,
    reason: Annotated[Short, Field(description="Why, for both agents and whoever reads the task later.")],
    claim_epoch: Annotated[Epoch, Field(description="STALE_CLAIM unless it is the current claim's.")] | None = None,
) -> HandedOver:
    """Give a held task to another agent that is online. Its holder, a coordinator or the operator may.

    The task keeps its status, plan, checkpoints and worktree; the old holder's late writes are STALE_CLAIM. Both are
    told. It works while the workflow is paused too.
    """
    with call.begin() as tx:
        hint_task(tx, task_id)
        if call.agent_id is not None:
            tx.ahead("claim_of", task_id=task_id, agent_id=call.agent_id)
            tx.ahead("agent_get", id=call.agent_id)
        workflow, task = locked_task(tx, task_id)
        holder_id = refuse_unheld(task)
        _refuse_caller(call, tx, task, claim_epoch)
        by = _caller(call, tx)
        _hint_agents(tx, task, to)
        holder, taker = _lock_both(tx, holder_id, to)
        refuse_recipient(task, taker)
        refuse_incapable_agent(tx, task, taker)
        held = tx.one("task_held_beside", agent_id=holder_id, task_id=task_id)
        change = HandOver(task, holder, taker, by, reason, workflow["status"] == "paused")
        _record(call, tx, change, Holder(holder, held))
        _tell(call, tx, change)
    return HandedOver(success=True, handed_from=holder_id, handed_to=to, claim_epoch=change.epoch)


def _refuse_caller(call: Call, tx: Tx, task: TaskRow, epoch: int | None) -> None:
    """Raise StaleClaim for an epoch that is over or a caller whose claim is, Forbidden for who never held the task."""
    if epoch is not None and epoch != task["claim_epoch"]:
        raise stale_claim(task)
    if call.agent_id in (None, task["claimed_by"]) or directs_others(call.actor, call.bound):
        return
    assert call.agent_id is not None
    if tx.one("claim_of", task_id=task["id"], agent_id=call.agent_id) is not None:
        raise stale_claim(task)
    raise not_the_holder(task, call.agent_id)


def _caller(call: Call, tx: Tx) -> str:
    if call.agent_id is None:
        return "the operator"
    agent = tx.one("agent_get", id=call.agent_id)
    return call.agent_id if agent is None else full_name(agent["name"], call.agent_id)


def _hint_agents(tx: Tx, task: TaskRow, to: str) -> None:
    """Let all that is asked of both agents travel together; they are locked in the order of their ids."""
    assert task["claimed_by"] is not None
    for agent_id in sorted({task["claimed_by"], to}):
        hint_get_locked(tx, "agent", agent_id)
    hint_holder(tx, task["claimed_by"], task["id"])
    tx.ahead("capabilities", ids=json.dumps([task["id"]]))


def _lock_both(tx: Tx, holder: str, to: str) -> tuple[AgentLocked, AgentLocked]:
    """Both agents, locked. Raises NotFound."""
    locked = {agent_id: get_locked(tx, "agent", agent_id) for agent_id in sorted({holder, to})}
    return locked[holder], locked[to]


def _record(call: Call, tx: Tx, change: HandOver, holder: Holder) -> None:
    """The claim ends, another begins, and both agents turn to what they hold."""
    task, to, epoch = change.task, change.to, change.epoch
    end_claim(tx, task, "handed_over", call.now)
    tx.run("task_hold", id=task["id"], agent_id=to["id"], epoch=epoch, status=task["status"], now=call.now)
    tx.run("claim_insert", task_id=task["id"], epoch=epoch, agent_id=to["id"], now=call.now)
    facts = {"from": change.holder["id"], "to": to["id"], "epoch": epoch}
    tx.event("task.handed_over", task["id"], data=json.dumps(facts))
    add_checkpoint(tx, task, "recovery", change.summary, call.now, detail=json.dumps(facts), agent_id=call.agent_id)
    turn(tx, holder, call.now)
    _occupy(tx, to, task["id"], call.now)


def _occupy(tx: Tx, agent: AgentLocked, task_id: str, now: int) -> None:
    """An agent is busy, at this task unless it is at another. It gave no sign of life: its lease stays as it is."""
    current = agent["current_task_id"] if agent["status"] == "busy" else None
    tx.run("agent_turn", id=agent["id"], status="busy", task=current or task_id, now=now)
    if agent["status"] != "busy":
        tx.event("agent.updated", agent["id"], before=agent["status"], after="busy")


def _tell(call: Call, tx: Tx, change: HandOver) -> None:
    """Tell the new holder, and the old one unless it did it; who was to be told of it before has lost it again."""
    task_id, holder = change.task["id"], change.holder["id"]
    withdraw(tx, "handed", [task_id])
    notify(tx, [change.to["id"]], "handed", task_id, change.handed_notice(), call.now)
    if call.agent_id != holder:
        notify(tx, [holder], "taken", task_id, change.taken_notice(), call.now)
