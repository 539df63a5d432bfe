"""
What the hall holds about a task and its surroundings, read and counted until it would not fit anyway.

Pages of rows are read as they are needed: of ten thousand checkpoints no more than an answer could hold.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from crewhall.families.work.context.asked import (
    BRIEF,
    LONG,
    PAGE,
    beside,
    checkpoints_after,
    dependencies_first,
    hint_by_task,
    prior_after,
    siblings_first,
)
from crewhall.families.work.context.model import Include
from crewhall.families.work.lookup import get
from crewhall.families.work.message.inbox import counts
from crewhall.families.work.task.model import TaskNamed, TaskRow, shown_status
from crewhall.families.work.workflow.model import WorkflowRow
from crewhall.store.transaction import Row, Tx
from crewhall.token_budget import (
    NAME_TOKENS,
    CostedItem,
    affordable,
    cost,
    fit_fields,
    fit_text,
    want,
    with_cost,
    with_cost_within,
)

WEIGHTS = {"workflow": 15, "task": 55, "prior": 20, "dependencies": 7, "siblings": 3}
NOTES = {"texts": 60, "checkpoints": 40}  # of what the task gets, beside its newest checkpoint
PLACE_TOKENS = 110  # of a workspace's path and branch; in most halls half of that
SHORT = 120  # tokens of a text in a list, such as an outcome
FRAME = 60  # tokens of an item in a list beside its texts
CHECKPOINT_TEXTS = ("summary", "detail", "files_changed")
Body = dict[str, Any]


@dataclass(frozen=True)
class ContextParts:
    """The parts of an answer: frames that are always in it, texts, and lists whose items have a cost."""

    workflow: Body
    workflow_texts: Body
    task: Body
    task_texts: Body
    newest: Row | None
    older: list[CostedItem]
    prior: list[CostedItem]
    siblings: list[CostedItem] | None
    dependencies: list[CostedItem] | None
    totals: dict[str, int]
    unread: int


def gather(tx: Tx, task: TaskRow, include: Include, most: int, now: int) -> ContextParts:
    """What the hall holds about a task, no more than could fit."""
    hint_by_task(tx, task, include, now)
    workflow = get(tx, "workflow", task["workflow_id"])
    noted = task["checkpoint_count"] if include.all_checkpoints else include.recent_checkpoints
    rows = _checkpoints(tx, task["id"], noted)
    newest = next(rows, None)
    siblings = affordable(_siblings(tx, task), most) if include.sibling_status else None
    dependencies = affordable(_dependencies(tx, task), most) if include.dependency_outcomes else None
    texts, own = _workflow_texts(workflow, include), _task_texts(task)
    room = most - sum(
        min(tokens, most * WEIGHTS[name] // 100)
        for name, tokens in (("workflow", wanted_tokens(texts, most)), ("dependencies", total_cost(dependencies)))
    )
    own_want = wanted_tokens(own, most)
    older = affordable((_older_checkpoint(row, max(SHORT, most // 8)) for row in rows), room - min(own_want, most // 3))
    room -= min(own_want + total_cost(older), most * WEIGHTS["task"] // 100)
    prior = _prior_tasks(tx, task, full=include.prior_task_full) if include.prior_task_outcomes else iter(())
    return ContextParts(
        workflow=_workflow_frame(workflow),
        workflow_texts=texts,
        task=_task_frame(tx, task),
        task_texts=own,
        newest=newest,
        older=older,
        prior=affordable(prior, room),
        siblings=siblings,
        dependencies=dependencies,
        totals={
            "checkpoints": task["checkpoint_count"],
            "prior_tasks": _finished_beside(workflow, task) if include.prior_task_outcomes else 0,
            "sibling_tasks": 0 if siblings is None else tx.value("context_siblings_count", **beside(task)),
            "dependency_outcomes": 0 if dependencies is None else task["dependency_count"],
        },
        unread=_unread_count(tx, task["claimed_by"], now),
    )


def wanted_tokens(texts: Body, most: int) -> int:
    """The tokens that texts want together."""
    return sum(want(text, most) for text in texts.values() if text is not None)


def total_cost(items: list[CostedItem] | None) -> int:
    """The tokens that items cost together."""
    return sum(one.tokens for one in items or ())


def _unread_count(tx: Tx, agent_id: str | None, now: int) -> int:
    if agent_id is None:
        return 0
    return sum(number for (status, _), number in counts(tx, agent_id, now).items() if status == "unread")


def _finished_beside(workflow: WorkflowRow, task: TaskRow) -> int:
    finished: int = workflow["finished_count"]
    return finished - (task["status"] in ("completed", "skipped"))


def _pages(read: Callable[[Row | None], list[Row]]) -> Iterator[Any]:
    """Rows page by page; no page is read before it is needed."""
    rows = read(None)
    while rows:
        yield from rows
        rows = read(rows[-1]) if len(rows) == PAGE else []


def _checkpoints(tx: Tx, task_id: str, most: int) -> Iterator[Row]:
    rows = _pages(lambda last: tx.all("context_checkpoints", **checkpoints_after(task_id, last)))
    for number, row in enumerate(rows):
        if number == most:
            return
        detail = None if row["detail"] is None else from_json(row["detail"])
        yield {**row, "detail": detail, "files_changed": from_json(row["files_changed"]), "left_out": None}


def _older_checkpoint(row: Row, most: int) -> CostedItem:
    return with_cost_within(row, most) or with_cost(fit_checkpoint(row, most))


def fit_checkpoint(row: Row, most: int) -> Body:
    """A checkpoint that is too long, in so many tokens, or in as few as it can have."""
    texts = {name: row[name] or None for name in CHECKPOINT_TEXTS}
    frame = row | dict.fromkeys(CHECKPOINT_TEXTS) | {"left_out": dict.fromkeys(CHECKPOINT_TEXTS, 10_000)}
    fitted, left_out = fit_fields(texts, max(0, most - cost(frame)))
    fitted |= {"summary": fitted["summary"] or "", "files_changed": fitted["files_changed"] or []}
    return row | fitted | {"left_out": left_out or None}


def _prior_tasks(tx: Tx, task: TaskRow, *, full: bool) -> Iterator[CostedItem]:
    for row in _pages(lambda last: tx.all("context_prior", **prior_after(task, last))):
        texts = {"outcome": row["outcome"]}
        if full:
            detail = None if row["outcome_detail"] is None else from_json(row["outcome_detail"])
            texts |= {"description": row["description"], "outcome_detail": detail}
        yield _list_item(row, _task_head(row), texts, LONG if full else SHORT)


def _dependencies(tx: Tx, task: TaskRow) -> Iterator[CostedItem]:
    for row in tx.all("context_dependencies", **dependencies_first(task["id"])):
        one = _task_head(row)
        frame = {"task_id": one["id"], "task_name": one["name"], "status": one["status"]}
        item = _list_item(row, frame, {"outcome": row["outcome"]}, 2 * SHORT)
        if item.item["left_out"] and row["status"] == "failed":
            item.item["left_out"] = {"error": item.item["left_out"]["outcome"]}  # as text_read calls it
        yield item


def _siblings(tx: Tx, task: TaskRow) -> Iterator[CostedItem]:
    for row in tx.all("context_siblings", **siblings_first(task)):
        text = row["told"] or row["noted"]
        brief = None if text is None else fit_text(text, BRIEF)
        yield with_cost({**_task_head(row), "claimed_by": row["claimed_by"], "brief_summary": brief})


def _task_head(row: TaskNamed) -> Body:
    return {"id": row["id"], "name": fit_text(row["name"], NAME_TOKENS), "status": shown_status(row)}


def _list_item(row: Row, frame: Body, texts: Body, most: int) -> CostedItem:
    """An item of a list with its texts, cut if they are long; of one that SQL cut already, that counts as well."""
    counted = [name for name in texts if f"{name}_letters" in row]
    unread = {name: (row[f"{name}_letters"] or 0) - len(row[name] or "") for name in counted}
    if not any(unread.values()) and (item := with_cost_within({**frame, **texts, "left_out": None}, most + FRAME)):
        return item
    fitted, left_out = fit_fields(texts, most)
    for name, letters in unread.items():
        if letters > 0:
            left_out[name] = left_out.get(name, 0) + letters
    return with_cost({**frame, **fitted, "left_out": left_out or None})


def _workflow_frame(workflow: WorkflowRow) -> Body:
    frame = {name: workflow[name] for name in ("id", "source_type", "status", "max_parallel_tasks")}
    frame |= {name: workflow[name] for name in ("task_count", "finished_count")}
    return frame | {"name": fit_text(workflow["name"], NAME_TOKENS)}


def _workflow_texts(workflow: WorkflowRow, include: Include) -> Body:
    return {
        "source_content": workflow["source_content"] if include.workflow_summary else None,
        "plan": plan_summary(workflow["plan"]) if include.workflow_plan else None,
        "repository_path": workflow["repository_path"],
    }


def plan_summary(plan: str | None) -> str | None:
    """A workflow's plan as a text, the summary first."""
    if plan is None:
        return None
    fields = from_json(plan)
    lists = [f"{name.capitalize()}: {'; '.join(fields[name])}" for name in ("risks", "assumptions") if fields.get(name)]
    return "\n".join(part for part in (fields["summary"], fields["approach"], *lists) if part)


def _task_frame(tx: Tx, task: TaskRow) -> Body:
    frame = {name: task[name] for name in ("id", "claimed_by", "claim_epoch", "checkpoint_count")}
    frame |= {"name": fit_text(task["name"], NAME_TOKENS), "status": shown_status(task)}
    return frame | {"workspace": _workspace_frame(tx, task["workspace_id"])}


def _workspace_frame(tx: Tx, workspace_id: str | None) -> Body | None:
    """Where the task is done: whole, or by its id alone, since a part of a path leads elsewhere."""
    row = None if workspace_id is None else tx.one("workspace_get", id=workspace_id)
    if row is None:
        return None
    place = {name: row[name] for name in ("id", "path", "branch", "status")}
    return place if want(place, PLACE_TOKENS) <= PLACE_TOKENS else {"id": row["id"]}


def _task_texts(task: TaskRow) -> Body:
    objects = {name: from_json(task[name] or "null") for name in ("plan", "context")}
    texts = {name: task[name] for name in ("description", "outcome", "error")}
    return {**texts, **objects, "files_likely_affected": from_json(task["files_likely_affected"]) or None}
