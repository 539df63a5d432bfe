"""Claims: take a task, give it back (seed 003)."""

import json
from typing import Annotated

from pydantic import Field

from crewhall.app import Call
from crewhall.errors import InvalidState
from crewhall.families.work.claim.leases import (
    hint_holder,
    hint_task,
    holder_beside,
    keep_busy,
    locked_task,
    put_back,
    refuse_incapable_agent,
    take,
    turn,
)
from crewhall.families.work.claim.model import Claim, Epoch
from crewhall.families.work.claim.parallelism import refuse_past_parallelism
from crewhall.families.work.claim.rules import refuse_unclaimable, stale_claim
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get_locked, no_such
from crewhall.families.work.model import Done, Me, Short, TaskId
from crewhall.families.work.task.model import TaskRow
from crewhall.families.work.task.pages import blocker_names
from crewhall.families.work.workflow.rules import refuse_not_running, refuse_paused
from crewhall.families.work.workspace.creation import workspace_for
from crewhall.families.work.workspace.model import TaskWorkspace
from crewhall.store.transaction import Tx


@work.tool("task_claim", changes=True, idempotent=True, profiles=("worker", "coordinator", "standard", "coding"))
def task_claim(call: Call, task_id: TaskId, agent_id: Me) -> Claim:
    """Take a task for an agent. Two agents never hold the same task; asking again makes the lease longer.

    success is false when someone else holds it. LIMIT_EXCEEDED: its workflow runs max_parallel_tasks. The claim
    lasts while the agent is there: each call and each heartbeat of yours makes it longer. Where the workflow wants
    it, you get a git worktree of your own for the task.
    """
    with call.begin() as tx:
        hint_task(tx, task_id)
        tx.ahead("agent_lock", id=agent_id)
        tx.ahead("capabilities", ids=json.dumps([task_id]))
        tx.ahead("tasks_running_beside", id=task_id)
        workflow, task = locked_task(tx, task_id)
        agent = get_locked(tx, "agent", agent_id)
        if task["claimed_by"] not in (None, agent_id):
            return _claim(task["claimed_by"], None, None)
        if task["claimed_by"] == agent_id:
            epoch, until = task["claim_epoch"], keep_busy(call, tx, agent, task_id)
        else:
            refuse_paused(workflow, "claimed")
            refuse_unclaimable(task, blocker_names(tx, task))
            refuse_not_running(workflow, "claimed")
            refuse_incapable_agent(tx, task, agent)
            refuse_past_parallelism(call, tx, workflow, task, agent_id)
            epoch, until = take(call, tx, workflow, task, agent)
        call.speak_for(tx, agent_id)
    place, problem = workspace_for(call, workflow, task)
    return _claim(None, epoch, until, place, problem)


def _claim(
    other: str | None,
    epoch: int | None,
    until: int | None,
    place: TaskWorkspace | None = None,
    problem: str | None = None,
) -> Claim:
    return Claim(
        success=other is None,
        already_claimed_by=other,
        claim_epoch=epoch,
        lease_expires_at=until,
        workspace=place,
        workspace_problem=problem,
    )


@work.tool("task_release", changes=True, idempotent=True, profiles=("worker", "coordinator", "standard", "coding"))
def task_release(
    call: Call,
    task_id: TaskId,
    agent_id: Me,
    reason: Annotated[Short, Field(description="Why, for whoever takes it next.")] | None = None,
    claim_epoch: Epoch | None = None,
) -> Done:
    """Give a task back that you hold: it is pending again, and what you noted stays. Nothing happens twice."""
    with call.begin() as tx:
        hint_task(tx, task_id)
        hint_holder(tx, agent_id, task_id)
        _, task = locked_task(tx, task_id)
        holder = holder_beside(tx, agent_id, task_id)
        if holder is None:
            raise no_such("agent", agent_id)
        if task["claimed_by"] != agent_id:
            _refuse_stranger(tx, task, agent_id)
            return Done(success=True)
        if claim_epoch is not None and claim_epoch != task["claim_epoch"]:
            raise stale_claim(task)
        put_back(tx, task, "released", call.now, reason=reason)
        turn(tx, holder, call.now)
    return Done(success=True)


def _refuse_stranger(tx: Tx, task: TaskRow, agent_id: str) -> None:
    """Raise StaleClaim or InvalidState unless the agent was the last to hold the task, and no one does now."""
    claim = tx.one("claim_of", task_id=task["id"], agent_id=agent_id)
    if claim is None and task["claimed_by"] is None:
        raise InvalidState(f"agent {agent_id} does not hold task {task['id']}", hint="task_claim takes it.")
    if claim is None or claim["epoch"] != task["claim_epoch"]:
        raise stale_claim(task)
