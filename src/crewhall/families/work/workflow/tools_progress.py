"""How a workflow stands: what can be begun, what waits for what, how long it will take (seed 003, orchestration)."""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import Field
from pydantic_core import from_json

from crewhall.app import Call
from crewhall.bounded import Limit, cut, rows_and_total, short_list, take_fitting
from crewhall.families.work.family import work
from crewhall.families.work.lookup import hint_all, no_such
from crewhall.families.work.model import PageCursor, WorkflowId
from crewhall.families.work.task.model import (
    FINISHED,
    TASK_STATUSES,
    TaskFree,
    TaskNamed,
    shown_status,
)
from crewhall.families.work.task.pages import cursor_numbers, cursor_of, names_by_task
from crewhall.families.work.task.tools_dependencies import NAMES_BYTES
from crewhall.families.work.workflow.model import (
    BlockedTask,
    NextTask,
    NextTasks,
    ParallelGroup,
    PathTask,
    Progress,
    WorkflowState,
)
from crewhall.families.work.workflow.rules import RUNS, Reach, conflicts, recommend, remaining_ms
from crewhall.families.work.workspace.forecast import clashes_between
from crewhall.store.transaction import Row, Tx

CONSIDERED = 100  # ready tasks looked at for a recommendation at least, of which some may not go together
COMPARED = 200  # running ones, and ready ones, that conflicts are looked for among
BLOCKED_BYTES, GROUP_BYTES, PATH_BYTES, PATH_TASKS = 10_000, 4_000, 3_000, 20
BLOCKED, GROUPS, NAMED = 50, 100, 10


@work.tool("workflow_next_tasks", profiles=("coordinator", "reviewer", "standard"))
def workflow_next_tasks(
    call: Call,
    workflow_id: WorkflowId,
    include_failed: Annotated[bool, Field(description="Failed tasks too, to be tried again.")] = True,
    limit: Limit = 20,
    cursor: PageCursor | None = None,
) -> NextTasks:
    """The tasks of a workflow that can be begun now: ready, and held by no one; and which of them to begin.

    Never more are recommended than the workflow's parallelism leaves room for, nor two that are likely to touch the
    same files, or whose branches conflict.
    """
    sequence, tail, place = cursor_numbers(cursor, (-(2**40), 2**52, 0))
    chosen = {"workflow_id": workflow_id, "include_failed": int(include_failed)}
    with call.begin() as tx:
        tx.ahead("workflow_state", id=workflow_id)
        tx.ahead("tasks_running", workflow_id=workflow_id)
        tx.ahead("tasks_considered", limit=CONSIDERED, **chosen)  # enough for up to 50 slots
        start = {"sequence": sequence, "tail": tail, "place": place}
        rows, total = rows_and_total(tx, "tasks_free", chosen, limit=limit + 1, **start)
        workflow = _state(tx, workflow_id)
        under_way = tx.all("tasks_running", workflow_id=workflow_id)
        slots = max(0, min(total, workflow["max_parallel_tasks"] - len(under_way))) if workflow["status"] in RUNS else 0
        considered = tx.all("tasks_considered", limit=max(CONSIDERED, 2 * slots), **chosen)
        places = {row["workspace_id"] for row in (*considered, *under_way) if row["workspace_id"]}
        _hint_names(tx, workflow_id, rows[:limit])
        live = tx.all("workspaces_named", ids=json.dumps(sorted(places)), node=call.settings.node) if places else []
        names = _names(tx, workflow_id, rows[:limit])
    clashes = clashes_between(call, considered, under_way, live) if live else {}
    running, ready = (
        [(row["id"], _files(row["files_likely_affected"])) for row in some] for some in (under_way, considered)
    )
    begin = recommend(ready, running, slots, clashes)
    others = [(task_id, Reach(files)) for task_id, files in (*running[:COMPARED], *ready[:COMPARED]) if files]
    kept = take_fitting(_next_task(row, begin, others, clashes, names[row["id"]]) for row in rows[:limit])
    return NextTasks(
        tasks=kept,
        total=total,
        next_cursor=None if len(kept) == len(rows) else cursor_of(rows[len(kept) - 1], "sequence", "tail", "place"),
        max_parallel=workflow["max_parallel_tasks"],
        recommended_count=len(begin),
        workflow_status=workflow["status"],
        all_complete=_is_complete(workflow),
    )


def _state(tx: Tx, workflow_id: str) -> WorkflowState:
    """The workflow's changing parts. Raises NotFound."""
    row: WorkflowState | None = tx.one("workflow_state", id=workflow_id)
    if row is None:
        raise no_such("workflow", workflow_id)
    return row


def _is_complete(workflow: WorkflowState) -> bool:
    return bool(workflow["task_count"]) and workflow["finished_count"] == workflow["task_count"]


def _files(text: str) -> list[str]:
    files: list[str] = from_json(text)
    return files


def _next_task(
    row: TaskFree, begin: list[str], others: list[tuple[str, Reach]], clashes: Mapping[str, Collection[str]], names: Row
) -> NextTask:
    meeting = dict.fromkeys(
        [*sorted(clashes.get(row["id"], ())), *conflicts(_files(row["files_likely_affected"]), others, NAMED + 1)]
    )
    fields = {
        "id": row["id"],
        "name": row["name"],
        "description": row["description"],
        "status": shown_status(row),
        "can_parallelize": row["parallel_group"] is not None,
        "recommended": row["id"] in begin,
        "conflicts_with": [other for other in meeting if other != row["id"]][:NAMED],
        **names,
    }
    return NextTask(**cut(fields, ("description",), (), each=500))


def _hint_names(tx: Tx, workflow_id: str, rows: list[TaskFree]) -> None:
    """Let what `_names` looks up travel together."""
    if rows:
        tx.ahead("finished_names", **_finished_query(rows))
    for group in _groups(rows):
        tx.ahead("group_members", workflow_id=workflow_id, parallel_group=group)


def _names(tx: Tx, workflow_id: str, rows: list[TaskFree]) -> dict[str, Row]:
    """Of each task, what it depended on and who shares its group."""
    finished = names_by_task(tx.all("finished_names", **_finished_query(rows))) if rows else {}
    members = {
        group: [row["id"] for row in tx.all("group_members", workflow_id=workflow_id, parallel_group=group)]
        for group in _groups(rows)
    }
    return {
        row["id"]: {
            "dependencies_completed": short_list(finished.get(row["id"], []), NAMES_BYTES),
            "parallel_with": [one for one in members.get(row["parallel_group"] or "", []) if one != row["id"]][:NAMED],
        }
        for row in rows
    }


def _finished_query(rows: list[TaskFree]) -> Row:
    return {"ids": json.dumps([row["id"] for row in rows]), "most": 2 * NAMED}


def _groups(rows: list[TaskFree]) -> set[str]:
    return {row["parallel_group"] for row in rows if row["parallel_group"]}


@work.tool(
    "workflow_progress",
    profiles=("coordinator", "reviewer", "standard"),
    resources=("crewhall://workflows/{workflow_id}/progress",),
)
def workflow_progress(call: Call, workflow_id: WorkflowId, cursor: PageCursor | None = None) -> Progress:
    """How far a workflow is: tasks by status, what is blocked and by what, the longest chain left, and an estimate.

    The estimate comes from the rate of completed tasks so far, and before the first from their complexity.
    """
    sequence, place = cursor_numbers(cursor, (-(2**40), 0))
    here = {"workflow_id": workflow_id}
    with call.begin() as tx:
        tx.ahead("workflow_state", id=workflow_id)
        tx.ahead("chain", limit=PATH_TASKS, **here)
        hint_all(tx, dict.fromkeys(("tally", "chain_minutes", "sequences"), here))
        rows, waiting = rows_and_total(tx, "tasks_blocked", here, sequence=sequence, place=place, limit=BLOCKED + 1)
        workflow = _state(tx, workflow_id)
        tally, sequences = tx.all("tally", **here), tx.one("sequences", **here)
        path, minutes = tx.all("chain", limit=PATH_TASKS, **here), tx.value("chain_minutes", **here)
        blocked = take_fitting(_blocked_tasks(tx, workflow_id, rows[:BLOCKED]), BLOCKED_BYTES)
    assert sequences is not None
    statuses, groups = _count_by_status(tally, waiting)
    remaining, is_measured = remaining_ms(workflow, minutes, call.now)
    return Progress(
        total_tasks=workflow["task_count"],
        by_status=statuses,
        completed_sequence=sequences["completed"] or 0,
        current_sequence=sequences["current"] or 0,
        blocked_tasks=blocked,
        blocked_total=statuses["blocked"],
        next_cursor=None if len(blocked) == len(rows) else cursor_of(rows[len(blocked) - 1], "sequence", "place"),
        parallel_groups=take_fitting(groups[:GROUPS], GROUP_BYTES),
        parallel_groups_total=len(groups),
        critical_path=take_fitting([_path_task(row) for row in path], PATH_BYTES),
        critical_path_minutes=minutes,
        estimated_remaining=remaining,
        estimate_from="completed_rate" if is_measured else "complexity",
        all_complete=_is_complete(workflow),
    )


def _path_task(row: TaskNamed) -> PathTask:
    return PathTask(id=row["id"], name=row["name"], status=shown_status(row))


def _count_by_status(tally: list[Row], waiting: int) -> tuple[dict[str, int], list[ParallelGroup]]:
    """How many tasks have each shown status, and the parallel groups."""
    statuses: Counter[str] = Counter(dict.fromkeys(TASK_STATUSES, 0))
    sizes: Counter[str] = Counter()
    finished: Counter[str] = Counter()
    for row in tally:
        statuses[row["status"]] += row["tasks"]
        if row["parallel_group"]:
            sizes[row["parallel_group"]] += row["tasks"]
            finished[row["parallel_group"]] += row["tasks"] if row["status"] in FINISHED else 0
    statuses["pending"] -= waiting
    statuses["blocked"] = waiting
    groups = [ParallelGroup(group_id=name, task_count=sizes[name], completed=finished[name]) for name in sorted(sizes)]
    return dict(statuses), groups


def _blocked_tasks(tx: Tx, workflow_id: str, rows: list[Row]) -> list[BlockedTask]:
    """Blocked tasks with the names of what they wait for."""
    if not rows:
        return []
    lower_first = {"workflow_id": workflow_id, "limit": NAMED, "offset": 0}
    sequences = sorted({row["sequence"] for row in rows if not row["dependency_count"]})
    for sequence in sequences:
        tx.ahead("lower_open", sequence=sequence, **lower_first)
    by_name = names_by_task(tx.all("blocker_names", ids=json.dumps([row["id"] for row in rows]), most=NAMED))
    lower = {
        sequence: [one["name"] for one in tx.all("lower_open", sequence=sequence, **lower_first)]
        for sequence in sequences
    }
    return [
        BlockedTask(
            id=row["id"],
            name=row["name"],
            blocked_by=short_list(
                by_name.get(row["id"], []) if row["dependency_count"] else lower[row["sequence"]], NAMES_BYTES
            ),
        )
        for row in rows
    ]
