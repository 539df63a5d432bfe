"""Pages of tasks: rows, what other tables say of them, and where the next page begins."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from crewhall.bounded import ItemT, take_fitting
from crewhall.errors import InvalidInput
from crewhall.families.work.task.model import Near, Task, TaskRow, TaskSummary
from crewhall.store.transaction import Row, Tx

LISTED = 200  # tasks read for one page
BESIDE_BYTES = 9_000  # of the tasks that stand beside their workflow
WORKFLOWS = 20  # looked into at a time for tasks to claim
AT_ONCE = 4  # of these, after the first
FIRST_WORKFLOW: Row = {"created_at": -1, "id": ""}
BLOCKERS = 5  # named in a refusal
NAMES = 50  # dependencies named of one task


def count_step(tx: Tx, task: TaskRow, after: str) -> None:
    """A task goes from its status to another: counted in its workflow."""
    if task["status"] != after:
        where = {"workflow_id": task["workflow_id"], "parallel_group": task["parallel_group"] or ""}
        for status, tasks in sorted({task["status"]: -1, after: 1}.items()):  # in one order, whoever else counts
            tx.run("tally_add", status=status, tasks=tasks, **where)


def near(tx: Tx, task_ids: list[str]) -> Near:
    """What these tasks depend on and need."""
    if not task_ids:
        return Near()
    ids = json.dumps(task_ids)
    tx.ahead("capabilities", ids=ids)
    return Near(
        depends_on=names_by_task(tx.all("dependency_names", ids=ids, most=NAMES)),
        capabilities=names_by_task(tx.all("capabilities", ids=ids), "capability"),
    )


def hint_near(tx: Tx, task_ids: list[str]) -> None:
    """Let what `near` looks up travel with what is asked next."""
    ids = json.dumps(task_ids)
    tx.ahead("dependency_names", ids=ids, most=NAMES)
    tx.ahead("capabilities", ids=ids)


def blocker_names(tx: Tx, task: TaskRow) -> list[str]:
    """The names of some unfinished tasks that a task waits for; none when it is ready."""
    if task["waits_for"] == 0:
        return []
    if task["dependency_count"]:
        rows = tx.all("blocker_names", ids=json.dumps([task["id"]]), most=BLOCKERS)
    else:
        lower = {"workflow_id": task["workflow_id"], "sequence": task["sequence"]}
        rows = tx.all("lower_open", limit=BLOCKERS, offset=0, **lower)
    return [row["name"] for row in rows]


def names_by_task(rows: list[Row], column: str = "name") -> dict[str, list[str]]:
    named: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        named[row["task_id"]].append(row[column])
    return named


def whole_tasks(tx: Tx, workflow_id: str) -> tuple[list[Task], str | None]:
    """The first of a workflow's tasks in their order, in full as far as a list allows, and the cursor of the next."""
    rows = _rows(tx, workflow_id, None, LISTED)
    beside = near(tx, [row["id"] for row in rows])
    return _page(rows, (Task.from_row(row, beside, whole=False) for row in rows[:LISTED]), BESIDE_BYTES)


def summaries(
    tx: Tx,
    workflow_id: str,
    *,
    limit: int = LISTED,
    most: int = BESIDE_BYTES,
    cursor: str | None = None,
    statuses: str | None = None,
    claimed_by: str | None = None,
) -> tuple[list[TaskSummary], str | None]:
    """A page of a workflow's tasks in their order, in short, and the cursor of the next."""
    rows = _rows(tx, workflow_id, cursor, limit, statuses, claimed_by)
    return _page(rows, (TaskSummary.from_row(row) for row in rows[:limit]), most)


def _rows(
    tx: Tx,
    workflow_id: str,
    cursor: str | None,
    limit: int,
    statuses: str | None = None,
    claimed_by: str | None = None,
) -> list[TaskRow]:
    """One row more than the page may have, which tells whether it is the last."""
    sequence, place = cursor_numbers(cursor, (-(2**40), 0))
    chosen = {"statuses": statuses, "claimed_by": claimed_by}
    return tx.all("tasks", workflow_id=workflow_id, sequence=sequence, place=place, limit=limit + 1, **chosen)


def _page(rows: list[TaskRow], items: Iterable[ItemT], most: int) -> tuple[list[ItemT], str | None]:
    kept = take_fitting(items, most)
    return kept, None if len(kept) == len(rows) else cursor_of(rows[len(kept) - 1], "sequence", "place")


def available_tasks(tx: Tx, capabilities: str, limit: int, offset: int, **chosen: str | int | None) -> list[TaskRow]:
    """Tasks that an agent could claim in the chosen workflows, the oldest one's first.

    No workflow is looked into that is not needed.
    """
    found: list[TaskRow] = []
    wanted = offset + limit
    after: Row | None = FIRST_WORKFLOW
    while after is not None and len(found) < wanted:
        workflows = tx.all("workflows_available", **_workflows_after(after, chosen))
        for some in (workflows[:1], *(workflows[n : n + AT_ONCE] for n in range(1, len(workflows), AT_ONCE))):
            found += _tasks_in(tx, some, capabilities, wanted - len(found))
        after = workflows[-1] if len(workflows) == WORKFLOWS else None
    return found[offset:]


def hint_available(tx: Tx, **chosen: str | int | None) -> None:
    """Let the workflows that `available_tasks` looks into first travel with what is asked next."""
    tx.ahead("workflows_available", **_workflows_after(FIRST_WORKFLOW, chosen))


def _workflows_after(after: Row, chosen: Mapping[str, str | int | None]) -> Row:
    return {"limit": WORKFLOWS, "created_at": after["created_at"], "id": after["id"], **chosen}


def _tasks_in(tx: Tx, workflows: list[Row], capabilities: str, most: int) -> list[TaskRow]:
    """As many tasks of the workflows, asked for in one trip; none is asked for once there are enough."""
    found: list[TaskRow] = []
    asked = [{"workflow_id": one["id"], "capabilities": capabilities, "limit": most} for one in workflows if most > 0]
    for one in asked:
        tx.ahead("tasks_available", **one)
    for one in asked:
        if len(found) < most:
            found += tx.all("tasks_available", **one)
    return found[:most]


def cursor_of(row: Mapping[str, Any], *columns: str) -> str:
    """Where a page ended."""
    return ":".join(str(row[column]) for column in columns)


def cursor_numbers(cursor: str | None, start: tuple[int, ...]) -> tuple[int, ...]:
    """A cursor's numbers, or where the first page starts. Raises InvalidInput for what is no cursor of ours."""
    if cursor is None:
        return start
    parts = cursor.split(":")
    found = tuple(int(part) for part in parts if re.fullmatch(r"-?[0-9]{1,16}", part))
    if not len(found) == len(parts) == len(start):
        raise InvalidInput(f"'{cursor[:50]}' is no cursor", hint="Give next_cursor of the page before, as it is.")
    return found
