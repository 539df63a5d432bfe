"""
Parallelism: how many tasks of a workflow run at once. A task runs while it is held, planning or in progress.

    pending, failed, paused ── claim, start ──▶ running      refused past max_parallel_tasks
    expired ── its holder's late write ──▶ running           never refused: its agent is at work whatever the hall says

The caller holds the workflow's row, and so no two that start a task at the same time see the same count.
"""

from crewhall.app import Call
from crewhall.families.work.claim.rules import full_workflow
from crewhall.families.work.task.model import TaskRow
from crewhall.families.work.task.rules import is_running
from crewhall.families.work.workflow.model import WorkflowLocked
from crewhall.live_settings import hint_live_setting, live_setting
from crewhall.store.transaction import Look, Tx

ENFORCE = "work.enforce_parallelism"


def refuse_past_parallelism(call: Call, tx: Tx, workflow: WorkflowLocked, task: TaskRow, agent_id: str) -> None:
    """Raise LimitExceeded when a task is to start that its workflow has no room for. One that runs has its place.

    An agent that holds another of the workflow's tasks is told so: it would wait for itself, and each try of it would
    make its lease longer.
    """
    if is_running(task):
        return
    running: int = tx.value("tasks_running_beside", id=task["id"])
    if running >= workflow["max_parallel_tasks"] and is_enforced(call, tx):
        own = tx.one("task_held_in", workflow_id=workflow["id"], agent_id=agent_id)
        raise full_workflow(workflow, running, None if own is None else own["id"])


def hint_enforced(tx: Tx) -> None:
    hint_live_setting(tx, ENFORCE)


def is_enforced(call: Call, look: Look) -> bool:
    return bool(live_setting(look, call.settings, ENFORCE))
