"""
Tasks: take one, plan it, do it, and say how it ended (seed 003, task management and claiming).

    claim ─▶ plan ─▶ in_progress ─▶ completed | failed        a failed one is planned anew, or tried again
"""

import json
from contextlib import suppress
from typing import Annotated, Any, cast

from pydantic import Field

from crewhall.app import Call
from crewhall.bounded import LIST_BYTES, WHOLE_BYTES, AnyOf, Limit, Offset, json_text, page, take_fitting
from crewhall.errors import InvalidState, InvalidTransition
from crewhall.families.work.checkpoint.model import Checkpoint
from crewhall.families.work.checkpoint.record import add_checkpoint
from crewhall.families.work.claim.leases import (
    Holder,
    end_claim,
    hint_holder,
    hint_task,
    holder_beside,
    mark_in_progress,
    refuse_incapable_agent,
    settle_agent,
    take,
    task_to_write,
    turn,
    writer,
)
from crewhall.families.work.claim.model import Epoch
from crewhall.families.work.claim.parallelism import ENFORCE, hint_enforced, is_enforced, refuse_past_parallelism
from crewhall.families.work.family import work
from crewhall.families.work.hall.pause import refuse_in_paused_hall
from crewhall.families.work.lookup import get, get_locked, hint_get, hint_get_locked
from crewhall.families.work.model import AgentId, Cargo, Done, Me, PageCursor, Path, Short, TaskId, Text, WorkflowId
from crewhall.families.work.repository.tools import site_of
from crewhall.families.work.task.model import (
    FINISHED,
    NewPlan,
    Task,
    TaskList,
    TaskPlan,
    TaskReplanned,
    TaskRow,
    Tasks,
    TaskStatus,
)
from crewhall.families.work.task.pages import (
    available_tasks,
    blocker_names,
    count_step,
    hint_available,
    hint_near,
    near,
    summaries,
)
from crewhall.families.work.task.rules import BINDING, REPLANNED, RUNNING, is_begun, refuse_task_step
from crewhall.families.work.workflow.model import WorkflowLocked
from crewhall.families.work.workflow.plans import recompute_standings
from crewhall.families.work.workflow.rules import refuse_not_running, refuse_paused
from crewhall.store.transaction import Tx

SEEN = 200  # checkpoints looked at for one task
STEPS = ("planning", "in_progress", "paused")  # of the holder of a task; most of them concern nobody else


@work.tool("task_get", profiles=("coordinator", "reviewer", "review"), resources=("crewhall://tasks/{id}",))
def task_get(
    call: Call,
    id: TaskId,
    include_checkpoints: Annotated[bool, Field(description="Its newest checkpoints too.")] = False,
    checkpoint_limit: Limit | None = None,
) -> Task:
    """A task: what is to be done, who holds it, and how it ended."""
    with call.begin() as tx:
        hint_get(tx, "task", id)
        hint_near(tx, [id])
        noted = _newest_checkpoints(tx, id, checkpoint_limit or SEEN) if include_checkpoints else None
        return Task.from_row(get(tx, "task", id), near(tx, [id]), whole=True, checkpoints=noted)


def _newest_checkpoints(tx: Tx, task_id: str, limit: int) -> list[Checkpoint]:
    """The newest checkpoints that fit, oldest first."""
    rows = tx.all("checkpoints_newest", task_id=task_id, limit=limit)
    return take_fitting((Checkpoint.from_row(row) for row in rows), WHOLE_BYTES // 3)[::-1]


@work.tool("task_list", ours=True, profiles=("coordinator",), resources=("crewhall://workflows/{workflow_id}/tasks",))
def task_list(
    call: Call,
    workflow_id: WorkflowId,
    status: AnyOf[TaskStatus] | None = None,
    claimed_by: AgentId | None = None,
    limit: Limit = 100,
    cursor: PageCursor | None = None,
) -> TaskList:
    """The tasks of a workflow in their order, in short, perhaps of some statuses (blocked too) or one holder."""
    chosen = {"statuses": json.dumps(status) if status else None, "claimed_by": claimed_by}
    with call.begin() as tx:
        hint_get(tx, "workflow", workflow_id)
        tx.ahead("tasks_count", workflow_id=workflow_id, **chosen)
        tasks, following = summaries(tx, workflow_id, limit=limit, most=LIST_BYTES, cursor=cursor, **chosen)
        get(tx, "workflow", workflow_id)
        total = tx.value("tasks_count", workflow_id=workflow_id, **chosen)
    return TaskList(tasks=tasks, total=total, next_cursor=following)


@work.tool("task_get_available", profiles=("worker", "coordinator", "standard", "coding"))
def task_get_available(
    call: Call,
    agent_id: Me,
    workflow_id: WorkflowId | None = None,
    limit: Limit = 10,
    offset: Offset = 0,
    repository_path: Path | None = None,
) -> Tasks:
    """Tasks you could claim now: ready, held by no one, and needing only what you said you are good at."""
    where = None if repository_path is None else site_of(repository_path).path
    with call.begin() as tx:
        chosen: dict[str, Any] = {"workflow_id": workflow_id, "repository_path": where}
        hint_get(tx, "workflow", workflow_id)
        hint_enforced(tx)
        hint_available(tx, **chosen, full_too=int(not call.settings[ENFORCE]))  # if nobody changed it
        agent = get(tx, "agent", agent_id)
        if workflow_id is not None:
            get(tx, "workflow", workflow_id)
        chosen |= {"capabilities": agent["capabilities"], "full_too": int(not is_enforced(call, tx))}
        tx.ahead("tasks_available_count", **chosen)
        rows = available_tasks(tx, limit=limit, offset=offset, **chosen)
        if not rows:
            tx.ahead("tasks_available_count", **chosen | {"full_too": 1})
        total = tx.value("tasks_available_count", **chosen)
        no_room = 0 if total else tx.value("tasks_available_count", **chosen | {"full_too": 1})
        beside = near(tx, [row["id"] for row in rows])
    items, following = page((Task.from_row(row, beside, whole=False) for row in rows), total, offset)
    return Tasks(tasks=items, total=total, next_offset=following, no_room=no_room)


@work.tool("task_set_plan", changes=True, idempotent=True, profiles=("worker", "coordinator", "standard", "coding"))
def task_set_plan(
    call: Call,
    id: TaskId,
    plan: TaskPlan,
    context: Annotated[Cargo, Field(description="More to keep with the task; its keys join those that are there.")]
    | None = None,
    claim_epoch: Epoch | None = None,
) -> Done:
    """Say how you will do a task, step by step, before you begin. Who takes over later goes on from it."""
    text = json_text("plan", plan.model_dump(exclude_unset=True))
    with call.begin() as tx:
        _, task = task_to_write(call, tx, id, claim_epoch, is_shared=True)
        if task["status"] in FINISHED:
            raise InvalidState(f"task {id} is {task['status']}", hint="Its plan is history; plan a task that is open.")
        kept = task["context"]
        if context is not None:
            kept = json_text("context", json.loads(kept or "{}") | context)
        tx.run("task_plan_set", id=id, plan=text, context=kept, now=call.now)
        tx.event("task.planned", id)
    return Done(success=True)


@work.tool("task_update_status", changes=True, profiles=("worker", "coordinator", "standard", "coding"))
def task_update_status(
    call: Call,
    id: TaskId,
    status: TaskStatus,
    outcome: Annotated[Text, Field(description="What was done; completed needs it.")] | None = None,
    outcome_detail: Annotated[Cargo, Field(description="More about the outcome, as an object.")] | None = None,
    error: Annotated[Text, Field(description="What went wrong; failed needs it.")] | None = None,
    claim_epoch: Epoch | None = None,
) -> Done:
    """Move a task on: planning, in_progress, paused, completed, failed or skipped.
    An agent that is known by its token or its bridge, and moves on a task which no one holds, claims it by that.
    Completing, failing and skipping end the claim.
    """
    detail = None if outcome_detail is None else json_text("outcome_detail", outcome_detail)
    result = {"outcome": outcome, "outcome_detail": detail, "error": error}
    if status in STEPS:
        with suppress(ConcernsWorkflow):
            return _step(call, id, status, result, claim_epoch)
    return _update(call, id, status, result, claim_epoch)


class ConcernsWorkflow(Exception):
    """A change of one task would change its workflow too, or depend on others of its tasks."""


def _step(call: Call, id: str, status: TaskStatus, result: dict[str, str | None], epoch: int | None) -> Done:
    """Move on a task that its holder is at: nobody who changes another task waits for that. Raises ConcernsWorkflow."""
    with call.begin() as tx:
        workflow, task = task_to_write(call, tx, id, epoch, is_shared=True)
        _refuse_while_paused(tx, workflow, status)
        if task["claimed_by"] is None or workflow["status"] != "in_progress":
            raise ConcernsWorkflow
        refuse_task_step(task, status, result["outcome"], result["error"], blocker_names(tx, task))
        _set_status(call, tx, task, status, result)
    return Done(success=True)


def _refuse_while_paused(tx: Tx, workflow: WorkflowLocked, status: TaskStatus) -> None:
    if status in BINDING:
        refuse_paused(workflow, BINDING[status])
        if workflow["status"] == "failed":
            refuse_in_paused_hall(tx, workflow["id"], BINDING[status])


def _set_status(call: Call, tx: Tx, task: TaskRow, status: TaskStatus, result: dict[str, str | None]) -> None:
    count_step(tx, task, status)
    tx.run("task_status_set", id=task["id"], status=status, now=call.now, **result)
    tx.event("task.updated", task["id"], before=task["status"], after=status)


def _update(call: Call, id: str, status: TaskStatus, result: dict[str, str | None], epoch: int | None) -> Done:
    ends = status in (*FINISHED, "failed")
    with call.begin() as tx:
        hint_task(tx, id)
        if ends and call.agent_id is not None:
            hint_holder(tx, call.agent_id, id)
        workflow, task = task_to_write(call, tx, id, epoch)
        _refuse_while_paused(tx, workflow, status)
        refuse_task_step(task, status, result["outcome"], result["error"], blocker_names(tx, task))
        if workflow["status"] == "abandoned":
            refuse_not_running(workflow, status)
        taker = call.agent_id if task["claimed_by"] is None and status != "skipped" else None
        if taker is not None or (status in RUNNING and not is_begun(task)):
            refuse_not_running(workflow, "begun")
            mark_in_progress(call, tx, workflow)
        if taker is not None:
            _hint_taking(tx, id, taker, starts=status in RUNNING)
        if status in RUNNING:
            refuse_past_parallelism(call, tx, workflow, task, call.author)
        holder = holder_beside(tx, task["claimed_by"], id) if ends and task["claimed_by"] is not None else None
        if taker is not None:
            task = _take_for_writer(call, tx, workflow, task, taker)
        _set_status(call, tx, task, status, result)
        if ends:
            _end(call, tx, workflow, task, status, holder)
    return Done(success=True)


def _hint_taking(tx: Tx, task_id: str, agent_id: str, *, starts: bool) -> None:
    """Let what a claim is checked against travel together."""
    if starts:
        tx.ahead("tasks_running_beside", id=task_id)
    hint_get_locked(tx, "agent", agent_id)
    tx.ahead("capabilities", ids=json.dumps([task_id]))


def _take_for_writer(call: Call, tx: Tx, workflow: WorkflowLocked, task: TaskRow, taker: str) -> TaskRow:
    """Claim a task for the agent that writes to it; the row. Without a claim two agents could work on it."""
    agent = get_locked(tx, "agent", taker)
    refuse_incapable_agent(tx, task, agent)
    epoch, until = take(call, tx, {**workflow, "status": "in_progress"}, task, agent)
    held = {"claimed_by": agent["id"], "claim_epoch": epoch, "claimed_at": call.now, "lease_expires_at": until}
    return cast("TaskRow", {**task, **held})


def _end(call: Call, tx: Tx, workflow: WorkflowLocked, task: TaskRow, status: str, holder: Holder | None) -> None:
    """A task is over, for now or for good: nobody holds it, and others that waited for it may begin."""
    if status in FINISHED:
        _release_dependents(tx, task)
        done = {"finished": 1, "completed": int(status == "completed")}
        tx.run("workflow_count", id=workflow["id"], tasks=0, now=call.now, **done)
    if task["waits_for"] > 0:  # skipped before its turn: chains through it are shorter now
        recompute_standings(tx, workflow["id"])
    if task["claimed_by"] is not None:
        end_claim(tx, task, status, call.now)
        if holder is None:
            settle_agent(tx, task["claimed_by"], call.now)
        else:
            turn(tx, holder, call.now)


def _release_dependents(tx: Tx, task: TaskRow) -> None:
    """Free the tasks that waited for this one: by name, or because every lower sequence is finished."""
    tx.run("dependents_release", id=task["id"])
    tx.run("gate_open", workflow_id=task["workflow_id"], sequence=task["sequence"])


@work.tool("task_replan", changes=True, creates=True, profiles=("coordinator", "standard"))
def task_replan(
    call: Call, id: TaskId, reason: Short, new_plan: NewPlan, claim_epoch: Epoch | None = None
) -> TaskReplanned:
    """Begin a task anew with another plan, after it failed or while you are at it; a holder keeps it.

    The reason and the old plan are kept as a checkpoint; the task is pending again.
    """
    text = json_text("new_plan", new_plan.model_dump(exclude_unset=True))
    with call.begin() as tx:
        _, task = task_to_write(call, tx, id, claim_epoch)
        if task["status"] not in REPLANNED:
            raise InvalidTransition(
                f"task {id} is {task['status']}, and only what was begun or has failed is planned anew",
                hint="task_set_plan plans a task that is pending.",
            )
        before = {"plan": json.loads(task["plan"] or "null"), "error": task["error"], "status": task["status"]}
        detail = json.dumps(before, ensure_ascii=False)
        made, _ = add_checkpoint(tx, task, "replan", reason, call.now, detail=detail, agent_id=writer(call, task))
        count_step(tx, task, "pending")
        tx.run("task_replan_set", id=id, plan=text, now=call.now)
        tx.event("task.replanned", id, before=task["status"], after="pending")
    return TaskReplanned(success=True, checkpoint_id=made)
