"""How a workflow stands: what can be begun, what waits for what, how long it will take (seed 003, orchestration)."""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import Field
from pydantic_core import from_json

from crewhall.app import Call
from crewhall.bounded import Limit, cut, short_list, take_fitting
from crewhall.families.work.family import work
from crewhall.families.work.lookup import no_such
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
        workflow = _state(tx, workflow_id)
        total = tx.value("tasks_free_count", **chosen)
        rows = tx.all("tasks_free", limit=limit + 1, sequence=sequence, tail=tail, place=place, **chosen)
        under_way = tx.all("tasks_running", workflow_id=workflow_id)
        slots = max(0, min(total, workflow["max_parallel_tasks"] - len(under_way))) if workflow["status"] in RUNS else 0
        considered = tx.all("tasks_considered", limit=max(CONSIDERED, 2 * slots), **chosen)
        places = {row["workspace_id"] for row in (*considered, *under_way) if row["workspace_id"]}
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


def _names(tx: Tx, workflow_id: str, rows: list[TaskFree]) -> dict[str, Row]:
    """Of each task, what it depended on and who shares its group."""
    finished = names_by_task(tx.all("finished_names", ids=json.dumps([row["id"] for row in rows]), most=2 * NAMED))
    members = {
        group: [row["id"] for row in tx.all("group_members", workflow_id=workflow_id, parallel_group=group)]
        for group in {row["parallel_group"] for row in rows if row["parallel_group"]}
    }
    return {
        row["id"]: {
            "dependencies_completed": short_list(finished.get(row["id"], []), NAMES_BYTES),
            "parallel_with": [one for one in members.get(row["parallel_group"] or "", []) if one != row["id"]][:NAMED],
        }
        for row in rows
    }


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
    with call.begin() as tx:
        workflow = _state(tx, workflow_id)
        tally = tx.all("tally", workflow_id=workflow_id)
        waiting = tx.value("tasks_blocked_count", workflow_id=workflow_id)
        rows = tx.all("tasks_blocked", workflow_id=workflow_id, sequence=sequence, place=place, limit=BLOCKED + 1)
        blocked = take_fitting(_blocked_tasks(tx, workflow_id, rows[:BLOCKED]), BLOCKED_BYTES)
        path = tx.all("chain", workflow_id=workflow_id, limit=PATH_TASKS)
        lowest = tx.value("sequence_open", workflow_id=workflow_id)
        below = 2**40 if lowest is None else lowest
        done = tx.value("sequence_done", workflow_id=workflow_id, below=below)
        minutes = tx.value("chain_minutes", workflow_id=workflow_id)
    statuses, groups = _count_by_status(tally, waiting)
    remaining, is_measured = remaining_ms(workflow, minutes, call.now)
    return Progress(
        total_tasks=workflow["task_count"],
        by_status=statuses,
        completed_sequence=done or 0,
        current_sequence=lowest or 0,
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
    by_name = names_by_task(tx.all("blocker_names", ids=json.dumps([row["id"] for row in rows]), most=NAMED))
    lower: dict[int, list[str]] = {}
    for row in rows:
        if not row["dependency_count"]:
            found = tx.all("lower_open", workflow_id=workflow_id, sequence=row["sequence"], limit=NAMED, offset=0)
            lower[row["sequence"]] = [one["name"] for one in found]
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
