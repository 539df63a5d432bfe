"""Rules of claims: who may take a task, and whose claim is over. No clock, no database, no world."""

from collections.abc import Sequence

from crewhall.errors import InvalidState, LimitExceeded, StaleClaim
from crewhall.families.work.task.model import FINISHED, TaskRow, shown_status
from crewhall.families.work.task.rules import refuse_blocked
from crewhall.families.work.workflow.model import WorkflowLocked


def refuse_unclaimable(task: TaskRow, waited_for: Sequence[str] = ()) -> None:
    """Raise InvalidState for a finished task, TaskBlocked for one that waits."""
    if task["status"] in FINISHED:
        raise InvalidState(
            f"task {task['id']} is {task['status']}", hint="It needs no one any more; task_get_available shows others."
        )
    if task["status"] in ("pending", "failed"):
        refuse_blocked(task, waited_for)


def refuse_incapable(task: TaskRow, missing: Sequence[str], agent: str) -> None:
    """Raise InvalidState for an agent that is not good at what the task needs."""
    if missing:
        raise InvalidState(
            f"task {task['id']} needs {', '.join(missing)}, and agent {agent} is not said to be good at it",
            hint="task_get_available shows tasks that fit; agent_register states what an agent is good at.",
        )


def full_workflow(workflow: WorkflowLocked, running: int, own: str | None) -> LimitExceeded:
    """The error for whoever would start a task while so many run as may, perhaps one of its own."""
    most = workflow["max_parallel_tasks"]
    end = "Wait until one is finished or released" if own is None else f"Finish or release task {own}, which you hold"
    return LimitExceeded(
        f"workflow {workflow['id']} is full: {running} running (held, planning or in_progress), "
        f"and max_parallel_tasks is {most}",
        hint=f"{end}, then call again. If more should run at once, ask a coordinator or the operator for "
        "workflow_set_parallelism.",
    )


def stale_claim(task: TaskRow) -> StaleClaim:
    """The error for a writer whose claim is not the current one."""
    held = f"held by {task['claimed_by']}" if task["claimed_by"] else f"{shown_status(task)} and held by no one"
    return StaleClaim(
        f"you have no current claim on task {task['id']}: it is {held}, at epoch {task['claim_epoch']}",
        hint="Stop working on it: nothing you send for it is taken. task_get shows what became of it; "
        "task_claim takes it if it is free.",
        current_epoch=task["claim_epoch"],
        claimed_by=task["claimed_by"],
    )
