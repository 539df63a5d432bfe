"""What a task waits for."""

from crewhall.app import Call
from crewhall.bounded import cut, rows_and_total, take_fitting
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get, hint_get
from crewhall.families.work.model import PageCursor, TaskId
from crewhall.families.work.task.model import (
    FINISHED,
    CompletedDependency,
    Dependencies,
    PendingDependency,
    TaskDependency,
    TaskNamed,
    shown_status,
)
from crewhall.families.work.task.pages import cursor_numbers
from crewhall.store.transaction import Tx

PENDING_BYTES, COMPLETED_BYTES, NAMES_BYTES = 8_000, 10_000, 1_000
DEPENDENCIES = 50


@work.tool("task_check_dependencies", profiles=("coordinator",))
def task_check_dependencies(call: Call, task_id: TaskId, cursor: PageCursor | None = None) -> Dependencies:
    """What a task waits for, and how what it waited for turned out. A task without dependencies waits for all tasks
    of lower sequences."""
    waiting, done = (max(0, number) for number in cursor_numbers(cursor, (0, 0)))
    with call.begin() as tx:
        hint_get(tx, "task", task_id)
        finished, completed_total = _dependencies(tx, task_id, done, finished=1)
        task = get(tx, "task", task_id)
        if task["dependency_count"] or task["status"] in FINISHED:
            rows, pending_total = _dependencies(tx, task_id, waiting, finished=0)
        else:
            lower = {"workflow_id": task["workflow_id"], "sequence": task["sequence"]}
            rows, pending_total = rows_and_total(tx, "lower_open", lower, limit=DEPENDENCIES, offset=waiting)
    pending = take_fitting((_pending_dependency(row) for row in rows), PENDING_BYTES)
    completed = take_fitting((_completed_dependency(row) for row in finished), COMPLETED_BYTES)
    waiting, done = waiting + len(pending), done + len(completed)
    return Dependencies(
        satisfied=pending_total == 0,
        pending=pending,
        pending_total=pending_total,
        completed=completed,
        completed_total=completed_total,
        next_cursor=f"{waiting}:{done}" if waiting < pending_total or done < completed_total else None,
    )


def _dependencies(tx: Tx, task_id: str, offset: int, *, finished: int) -> tuple[list[TaskDependency], int]:
    chosen = {"id": task_id, "finished": finished}
    return rows_and_total(tx, "dependencies", chosen, limit=DEPENDENCIES, offset=offset)


def _pending_dependency(row: TaskNamed) -> PendingDependency:
    return PendingDependency(id=row["id"], name=row["name"], status=shown_status(row))


def _completed_dependency(row: TaskDependency) -> CompletedDependency:
    fields = {"id": row["id"], "name": row["name"], "outcome": row["outcome"]}
    return CompletedDependency(**cut(fields, ("outcome",), (), each=1_000))
