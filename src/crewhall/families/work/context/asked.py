"""
What is asked about a task and its surroundings: the parameters of each query, and what travels together.

    by the task's id: task, checkpoints, dependencies ──▶ by its columns: workflow, workspace, siblings, prior tasks
"""

from crewhall.families.work.context.model import Include
from crewhall.families.work.lookup import hint_get
from crewhall.families.work.message.hints import hint_counts
from crewhall.families.work.task.model import TaskRow
from crewhall.store.transaction import Row, Tx

PAGE = 20  # rows read at a time
SIBLINGS, DEPENDENCIES = 50, 200  # rows looked at
BRIEF, LONG = 40, 1_500  # tokens of a text in a list: a sibling's, one in full
LETTERS = 8 * LONG
FIRST = {"before": 2**53, "before_id": "~"}  # before this place of the finished tasks are all of them


def hint_by_task_id(tx: Tx, task_id: str, include: Include) -> None:
    """Let a task, and what is asked by its id alone, travel with what is asked next."""
    hint_get(tx, "task", task_id)
    tx.ahead("context_checkpoints", **checkpoints_after(task_id, None))
    if include.dependency_outcomes:
        tx.ahead("context_dependencies", **dependencies_first(task_id))


def hint_by_task(tx: Tx, task: TaskRow, include: Include, now: int) -> None:
    """The same with what is asked by the task's columns."""
    hint_get(tx, "workflow", task["workflow_id"])
    hint_get(tx, "workspace", task["workspace_id"])
    if task["claimed_by"] is not None:
        hint_counts(tx, task["claimed_by"], now)
    if include.sibling_status:
        tx.ahead("context_siblings", **siblings_first(task))
        tx.ahead("context_siblings_count", **beside(task))
    if include.prior_task_outcomes:
        tx.ahead("context_prior", **prior_after(task, None))


def checkpoints_after(task_id: str, last: Row | None) -> Row:
    return {"task_id": task_id, "before": 2**31 - 1 if last is None else last["sequence"], "limit": PAGE}


def dependencies_first(task_id: str) -> Row:
    return {"id": task_id, "letters": LETTERS, "limit": DEPENDENCIES}


def beside(task: TaskRow) -> Row:
    return {name: task[name] for name in ("workflow_id", "sequence", "parallel_group")}


def siblings_first(task: TaskRow) -> Row:
    return {"id": task["id"], "letters": 8 * BRIEF, "limit": SIBLINGS, **beside(task)}


def prior_after(task: TaskRow, last: Row | None) -> Row:
    place = FIRST if last is None else {"before": last["finished_at"], "before_id": last["id"]}
    return {"workflow_id": task["workflow_id"], "id": task["id"], "letters": LETTERS, "limit": PAGE, **place}
