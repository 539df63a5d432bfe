"""
Claims: who holds a task, until when, and what happens when they go quiet.

    free ── claim ──▶ held ── finish, fail, release, leave ──▶ free
     ▲                 │
     └──── expire ─────┘     an expired task is pending again, and its epoch stays: the holder's next write takes it up
                             where it was, unless somebody else has claimed it; then that write is stale

A lease is the agent's, and all its claims share it: `agent.lease_until` grows with each call and each beat. Whoever
changes a task holds its workflow's row, then the agent's: always in that order, workflows by id. A change that concerns
one task alone (a note, a plan, a step of its holder) shares the workflow's row with others and holds the task's.
"""

import json
import logging
from dataclasses import dataclass
from typing import Literal

from crewhall.app import Call
from crewhall.config import Settings
from crewhall.families.work.agent.model import AgentLocked, AgentPresence
from crewhall.families.work.agent.names import welcome
from crewhall.families.work.checkpoint.record import add_checkpoint
from crewhall.families.work.claim.model import ClaimRow
from crewhall.families.work.claim.rules import refuse_incapable, stale_claim
from crewhall.families.work.lookup import get, get_locked, no_such
from crewhall.families.work.task.model import TaskRow
from crewhall.families.work.task.pages import count_step
from crewhall.families.work.task.rules import UNDER_WAY
from crewhall.families.work.workflow.model import WorkflowLocked, WorkflowState
from crewhall.families.work.workflow.rules import refuse_paused
from crewhall.store.transaction import Row, Tx

PutBackReason = Literal["released", "expired"]
log = logging.getLogger(__name__)


def lease_ms(settings: Settings, *, beats: bool) -> int:
    """How long an agent counts as here without a sign of life; one that beats is missed sooner."""
    if beats:
        return int(settings["agent.heartbeat"] * settings["agent.missed_beats"] * 1000)
    return int(settings["agent.lease"] * 1000)


def grace_ms(settings: Settings) -> int:
    """How long an agent whose process has ended keeps what it holds; never longer than one that is merely silent."""
    return int(min(settings["agent.grace"], settings["agent.lease"]) * 1000)


def lease_from(call: Call, agent: AgentPresence) -> int:
    """The lease of an agent that gives a sign of life now."""
    return call.now + lease_ms(call.settings, beats=agent["last_heartbeat_at"] is not None)


# Writing to a task


def locked_task(tx: Tx, task_id: str, *, is_shared: bool = False) -> tuple[WorkflowLocked, TaskRow]:
    """The workflow, locked, and the task: nothing about it changes until commit. Raises NotFound.

    Where it is shared, others may change other tasks of the workflow, and the task has a lock of its own.
    """
    hint_task(tx, task_id, is_shared=is_shared)
    workflow: WorkflowLocked | None = tx.one(_lock_of(is_shared), task_id=task_id)
    task: TaskRow | None = tx.one("task_lock" if is_shared else "task_get", id=task_id)
    if workflow is None or task is None:  # it may be gone by now
        raise no_such("task", task_id)
    return workflow, task


def hint_task(tx: Tx, task_id: str, *, is_shared: bool = False) -> None:
    """Let a task and the lock on its workflow travel together."""
    tx.ahead(_lock_of(is_shared), task_id=task_id)
    tx.ahead("task_lock" if is_shared else "task_get", id=task_id)


def _lock_of(is_shared: bool) -> str:
    return "workflow_share_of_task" if is_shared else "workflow_lock_of_task"


def task_to_write(
    call: Call, tx: Tx, task_id: str, epoch: int | None, *, notes_only: bool = False, is_shared: bool = False
) -> tuple[WorkflowLocked, TaskRow]:
    """The workflow, locked, and a task that the caller may write to. Raises NotFound, StaleClaim.

    Whoever changes a task that nobody holds, and not only notes something, supersedes the claim that lapsed on it.

    A lapsed claim of the caller's that nobody took goes on, unless its workflow was abandoned, which frees all claims.
    While the workflow is paused it does not: that would be a claim. Raises InvalidState then, except for notes.
    """
    workflow, task = locked_task(tx, task_id, is_shared=is_shared)
    claim = _lapsed_claim(call, tx, task, epoch)
    if claim is not None and workflow["status"] == "paused":
        if not notes_only:
            refuse_paused(workflow, "taken up again")
    elif claim is not None and workflow["status"] != "abandoned":
        _renew(call, tx, task, claim)
        task = get(tx, "task", task_id)
    elif task["claimed_by"] is None and not notes_only:
        tx.run("claim_supersede", task_id=task_id, epoch=task["claim_epoch"])
    if task["claimed_by"] is not None:
        call.saw(task["claimed_by"])
    return workflow, task


def _lapsed_claim(call: Call, tx: Tx, task: TaskRow, epoch: int | None) -> ClaimRow | None:
    """The caller's claim that lapsed and that nobody took. Raises StaleClaim when another claim is the current one.

    The writer is the agent that calls; a client that is not known to be one is known by the epoch, if it gives one.
    """
    if epoch is not None and epoch != task["claim_epoch"]:
        raise stale_claim(task)
    writer = call.agent_id
    if task["claimed_by"] is not None:
        if writer not in (None, task["claimed_by"]):
            raise stale_claim(task)
        return None
    claim = _claim_by(tx, task, writer, epoch)
    if claim is None:
        return None
    if claim["epoch"] != task["claim_epoch"]:
        raise stale_claim(task)
    if claim["ended_how"] not in ("expired", "superseded"):
        return None  # its own doing: it finished or released the task
    since = "pending" if claim["status_then"] in UNDER_WAY else claim["status_then"]
    if claim["ended_how"] == "superseded" or task["status"] != since or task["waits_for"] > 0:
        raise stale_claim(task)
    return claim


def _claim_by(tx: Tx, task: TaskRow, writer: str | None, epoch: int | None) -> ClaimRow | None:
    if writer is not None:
        return tx.one("claim_of", task_id=task["id"], agent_id=writer)
    return None if epoch is None else tx.one("claim_at", task_id=task["id"], epoch=epoch)


def _renew(call: Call, tx: Tx, task: TaskRow, claim: ClaimRow) -> None:
    """The claim is as it was before it lapsed."""
    agent_id, epoch, status = claim["agent_id"], claim["epoch"], claim["status_then"]
    assert status is not None, "a claim that ended has the status that its task had then"
    count_step(tx, task, status)
    tx.run("claim_renew", task_id=task["id"], epoch=epoch)
    tx.run("task_hold", id=task["id"], agent_id=agent_id, epoch=epoch, status=status, now=call.now)
    set_busy(call, tx, agent_id, task["id"])
    tx.event(
        "task.renewed",
        task["id"],
        before=task["status"],
        after=status,
        data=_holder_data(agent_id, epoch),
    )


def take(call: Call, tx: Tx, workflow: WorkflowLocked, task: TaskRow, agent: AgentLocked) -> tuple[int, int]:
    """A task that no one holds is the agent's; the epoch and the lease. The first claim sets a ready workflow going."""
    epoch, agent_id = task["claim_epoch"] + 1, agent["id"]
    tx.run("task_hold", id=task["id"], agent_id=agent_id, epoch=epoch, status=task["status"], now=call.now)
    tx.run("claim_insert", task_id=task["id"], epoch=epoch, agent_id=agent_id, now=call.now)
    tx.event("task.claimed", task["id"], data=_holder_data(agent_id, epoch))
    mark_in_progress(call, tx, workflow)
    return epoch, keep_busy(call, tx, agent, task["id"])


def mark_in_progress(call: Call, tx: Tx, workflow: WorkflowState) -> None:
    """Set a ready workflow in progress; any other stays as it is."""
    if workflow["status"] == "ready":
        tx.run(
            "workflow_status_set", id=workflow["id"], status="in_progress", reason=None, halted_by=None, now=call.now
        )
        tx.event("workflow.updated", workflow["id"], before="ready", after="in_progress")


def set_busy(call: Call, tx: Tx, agent_id: str, task_id: str) -> int:
    """The agent is at this task, and its lease is as long as it may be: its end."""
    return keep_busy(call, tx, get_locked(tx, "agent", agent_id), task_id)


def keep_busy(call: Call, tx: Tx, agent: AgentLocked, task_id: str) -> int:
    """The same for one that is locked."""
    until = lease_from(call, agent)
    if agent["status"] == "offline":
        welcome(tx, agent, call.now)
    tx.run("agent_busy", id=agent["id"], task=task_id, until=until, now=call.now)
    if agent["status"] != "busy":
        tx.event("agent.updated", agent["id"], before=agent["status"], after="busy")
    return until


def _holder_data(agent_id: str | None, epoch: int) -> str:
    return json.dumps({"agent_id": agent_id, "epoch": epoch})


# The end of a claim


def end_claim(tx: Tx, task: TaskRow, how: str, now: int) -> None:
    """No one holds the task any more; its agent turns to another that it holds, or is free."""
    tx.run("claim_end", task_id=task["id"], epoch=task["claim_epoch"], how=how, status=task["status"], now=now)
    tx.run("task_free", id=task["id"], now=now)


def settle_agent(tx: Tx, agent_id: str, now: int) -> None:
    """An agent that holds nothing more is online again; one that does turns to what it holds."""
    agent: AgentLocked | None = tx.one("agent_lock", id=agent_id)
    if agent is not None:
        turn(tx, Holder(agent, tx.one("task_held", agent_id=agent_id, current=agent["current_task_id"])), now)


@dataclass(frozen=True)
class Holder:
    """An agent, locked, and what it holds; `held` is what it turns to."""

    agent: AgentLocked
    held: Row | None


def hint_holder(tx: Tx, agent_id: str, task_id: str) -> None:
    """Let the holder of a task travel with what is asked before; a task's lock has to be."""
    tx.ahead("agent_lock", id=agent_id)
    tx.ahead("task_held_beside", agent_id=agent_id, task_id=task_id)


def holder_beside(tx: Tx, agent_id: str, task_id: str) -> Holder | None:
    """An agent, locked, and what it holds beside a task; None for one that is not there."""
    hint_holder(tx, agent_id, task_id)
    agent: AgentLocked | None = tx.one("agent_lock", id=agent_id)
    held = tx.one("task_held_beside", agent_id=agent_id, task_id=task_id)
    return None if agent is None else Holder(agent, held)


def turn(tx: Tx, holder: Holder, now: int) -> None:
    """An agent turns to what it holds; one that holds nothing more is online again."""
    agent, held, agent_id = holder.agent, holder.held, holder.agent["id"]
    status = "online" if agent["status"] == "busy" and held is None else agent["status"]
    tx.run("agent_turn", id=agent_id, status=status, task=None if held is None else held["id"], now=now)
    if status != agent["status"]:
        tx.event("agent.updated", agent_id, before=agent["status"], after=status)


def put_back(tx: Tx, task: TaskRow, how: PutBackReason, now: int, *, reason: str | None) -> None:
    """End the claim; a task under way is pending again. A reason becomes a `recovery` checkpoint."""
    end_claim(tx, task, how, now)
    after = task["status"]
    if task["status"] in UNDER_WAY:
        after = "pending"
        count_step(tx, task, after)
        tx.run("task_back", id=task["id"], now=now)
    who = _holder_data(task["claimed_by"], task["claim_epoch"])
    tx.event(f"task.{how}", task["id"], before=task["status"], after=after, data=who)
    if reason is not None:
        detail = {"agent_id": task["claimed_by"], "epoch": task["claim_epoch"], "status": task["status"]}
        add_checkpoint(tx, task, "recovery", reason, now, detail=json.dumps(detail))


def put_all_back(tx: Tx, agent_id: str, how: PutBackReason, now: int, reason: str) -> AgentLocked:
    """Every task that the agent holds is free, with a `recovery` checkpoint; the agent as it was. Raises NotFound.

    One that it claims at this very moment stays; the chore finds it.
    """
    agent, tasks = lock_with_tasks(tx, agent_id)
    for task in tasks:
        put_back(tx, task, how, now, reason=reason)
    return agent


def lock_with_tasks(tx: Tx, agent_id: str) -> tuple[AgentLocked, list[TaskRow]]:
    """An agent, and the tasks that it holds, with all locks that a change of them needs, in order. Raises NotFound."""
    workflows = {row["workflow_id"] for row in tx.all("tasks_of_agent", agent_id=agent_id)}
    for workflow_id in sorted(workflows):
        tx.run("workflow_lock", id=workflow_id)
    agent = get_locked(tx, "agent", agent_id)
    held = [row["id"] for row in tx.all("tasks_of_agent", agent_id=agent_id) if row["workflow_id"] in workflows]
    return agent, [get(tx, "task", task_id) for task_id in held]


# The end of a lease


def writer(call: Call, task: TaskRow) -> str | None:
    """The agent that writes: the one that calls, or whoever holds the task."""
    return call.agent_id or task["claimed_by"]


def refuse_incapable_agent(tx: Tx, task: TaskRow, agent: AgentLocked) -> None:
    needed = [row["capability"] for row in tx.all("capabilities", ids=json.dumps([task["id"]]))]
    good_at = json.loads(agent["capabilities"]) if needed else []
    refuse_incapable(task, [word for word in needed if word not in good_at], agent["id"])
