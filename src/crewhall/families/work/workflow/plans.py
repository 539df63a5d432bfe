"""
A plan in the database: tasks put in and taken out, and where each then stands in the graph.

Whoever calls these holds the workflow's row.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

from crewhall.bounded import CARGO_BYTES, json_text
from crewhall.errors import LimitExceeded
from crewhall.families.work.task.model import FINISHED, PlannedTask
from crewhall.families.work.workflow.rules_plan import MINUTES, GraphTask, Standing, refuse_misnamed, standings
from crewhall.identity import new_id
from crewhall.store.transaction import Row, Tx

MANY = 1_000  # tasks, whose graph takes some tenths of a second
MOST_TASKS, MOST_EDGES = 20_000, 100_000  # in one workflow


def insert_tasks(tx: Tx, workflow_id: str, tasks: Sequence[PlannedTask], now: int) -> list[str]:
    """Put tasks into a workflow; their ids. Raises InvalidInput for a plan that cannot be followed to its end."""
    before = _graph_tasks(tx, workflow_id)
    if len(before) + len(tasks) > MOST_TASKS:
        raise LimitExceeded(
            f"the workflow would have {len(before) + len(tasks)} tasks, and {MOST_TASKS} are allowed",
            hint="Split the work into several workflows.",
        )
    refuse_misnamed(tasks, [node.name for node, _ in before])
    edges = sum(len(node.depends_on) for node, _ in before) + sum(len(task.depends_on) for task in tasks)
    if edges > MOST_EDGES:
        raise LimitExceeded(
            f"the plan would have {edges} dependencies, and {MOST_EDGES} are allowed",
            hint="A task need not name what its dependencies wait for already.",
        )
    ids = {node.name: node.id for node, _ in before} | {task.name: new_id("tk") for task in tasks}
    added = [_graph_task(task, ids) for task in tasks]
    found = standings([*(node for node, _ in before), *added])
    place = max((row["place"] for _, row in before), default=0) + 1
    _write(tx, workflow_id, tasks, added, found, place, now)
    _update(tx, before, found)
    for group, number in Counter(task.parallel_group or "" for task in tasks).items():
        tx.run("tally_add", workflow_id=workflow_id, parallel_group=group, status="pending", tasks=number)
    tx.run("workflow_count", id=workflow_id, tasks=len(tasks), finished=0, completed=0, now=now)
    return [node.id for node in added]


def recompute_standings(tx: Tx, workflow_id: str) -> None:
    """Compute again where each unfinished task stands, after one left the graph."""
    nodes = _graph_tasks(tx, workflow_id)
    _update(tx, nodes, standings([node for node, _ in nodes]))


def _graph_task(task: PlannedTask, ids: dict[str, str]) -> GraphTask:
    wanted = tuple(dict.fromkeys(ids[name] for name in task.depends_on))
    return GraphTask(ids[task.name], task.name, task.sequence, wanted, MINUTES[task.estimated_complexity])


def hint_graph(tx: Tx, workflow_id: str, new_tasks: int = 0) -> None:
    """Let the tasks and what depends on what travel with what is asked next; the workflow's lock before them.

    Where so many are new that their graph takes a while, the database waits for this hub a while longer.
    """
    if new_tasks > MANY:
        tx.ahead("think")
    tx.ahead("workflow_edges", workflow_id=workflow_id)
    tx.ahead("workflow_steps", workflow_id=workflow_id)


def _graph_tasks(tx: Tx, workflow_id: str) -> list[tuple[GraphTask, Row]]:
    """The tasks of a workflow as the graph sees them, each with its row."""
    hint_graph(tx, workflow_id)
    wanted: dict[str, list[str]] = defaultdict(list)
    for edge in tx.all("workflow_edges", workflow_id=workflow_id):
        wanted[edge["task_id"]].append(edge["depends_on_id"])
    return [
        (
            GraphTask(
                row["id"],
                row["name"],
                row["sequence"],
                tuple(wanted[row["id"]]),
                MINUTES[row["estimated_complexity"]],
                row["status"] in FINISHED,
            ),
            row,
        )
        for row in tx.all("workflow_steps", workflow_id=workflow_id)
    ]


def _write(
    tx: Tx,
    workflow_id: str,
    tasks: Sequence[PlannedTask],
    nodes: Sequence[GraphTask],
    found: dict[str, Standing],
    place: int,
    now: int,
) -> None:
    rows = [
        {
            "id": node.id,
            "workflow_id": workflow_id,
            "name": task.name,
            "description": task.description,
            "sequence": task.sequence,
            "place": place + number,
            "parallel_group": task.parallel_group,
            "estimated_complexity": task.estimated_complexity,
            "files_likely_affected": json.dumps(task.files_likely_affected, ensure_ascii=False),
            "dependency_count": len(node.depends_on),
            "now": now,
            **vars(found[node.id]),
        }
        for number, (task, node) in enumerate(zip(tasks, nodes, strict=True))
    ]
    tx.many("task_insert", rows)
    tx.many(
        "task_dependency_insert",
        [{"task_id": node.id, "depends_on_id": wanted} for node in nodes for wanted in node.depends_on],
    )
    tx.many(
        "task_capability_insert",
        [
            {"task_id": node.id, "capability": word}
            for task, node in zip(tasks, nodes, strict=True)
            for word in dict.fromkeys(task.required_capabilities)
        ],
    )


def _update(tx: Tx, nodes: Sequence[tuple[GraphTask, Row]], found: dict[str, Standing]) -> None:
    """Store where older tasks stand now, of those that moved."""
    moved = [
        {"id": node.id, **vars(found[node.id])}
        for node, row in nodes
        if node.id in found and vars(found[node.id]) != {name: row[name] for name in ("waits_for", "tail", "tail_next")}
    ]
    tx.many("task_standing_set", moved)


def plan_text(summary: str, approach: str, risks: list[str], assumptions: list[str]) -> str:
    """What a workflow keeps of its plan beside the tasks. Raises InvalidInput when that is too large."""
    fields = {"summary": summary, "approach": approach, "risks": risks, "assumptions": assumptions}
    return json_text("plan", fields, CARGO_BYTES)
