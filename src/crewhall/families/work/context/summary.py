"""A workflow on one page: gathered in a fixed number of reads, put into a fixed budget, as an object or as Markdown."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from crewhall.families.work.context.rows import plan_summary
from crewhall.families.work.lookup import get, hint_all
from crewhall.families.work.task.model import shown_status
from crewhall.families.work.workflow.model import WorkflowRow
from crewhall.store.transaction import Row, Tx
from crewhall.token_budget import (
    NAME_TOKENS,
    affordable,
    fit_fields,
    fit_items,
    fit_text,
    shares,
    want,
    with_cost,
)

TOKENS = 2_000  # of the whole page, about
FRAME = 150  # tokens of its fixed parts
TASK_TOKENS = 60  # of the text shown for one task
LISTED = 20  # tasks of one list
LETTERS = 12 * TASK_TOKENS
WEIGHTS = {"texts": 30, "running": 25, "recent": 20, "failed": 15, "next": 10}
HEADINGS = {
    "running": "Being worked on",
    "next": "Ready to begin",
    "failed": "Failed",
    "recent": "Finished lately",
}
Body = dict[str, Any]


def summarize(tx: Tx, workflow_id: str) -> Body:
    """The summary page as an object. Raises NotFound."""
    asked = _queries(workflow_id)
    hint_all(tx, asked)
    workflow = get(tx, "workflow", workflow_id)
    drawn = {name: affordable(map(with_cost, items), TOKENS) for name, items in _lists(tx, asked).items()}
    texts = {"source": workflow["source_content"], "plan": plan_summary(workflow["plan"])}
    wants = {name: sum(one.tokens for one in items) for name, items in drawn.items()}
    wants["texts"] = sum(want(text, TOKENS) for text in texts.values() if text is not None)
    given = shares(wants, WEIGHTS, TOKENS - FRAME)
    fitted, left_out = fit_fields(texts, given["texts"])
    lists = {name: fit_items(items, given[name]) for name, items in drawn.items()}
    totals = _totals(tx, workflow, asked)
    missing = {name: totals[name] - len(items) for name, items in lists.items()}
    return {
        "id": workflow["id"],
        "name": fit_text(workflow["name"], NAME_TOKENS),
        "status": workflow["status"],
        "progress": _progress(workflow, totals),
        **fitted,
        **lists,
        "left_out": left_out | {name: number for name, number in missing.items() if number > 0} or None,
    }


def _queries(workflow_id: str) -> dict[str, Row]:
    """All that a page is asked from: queries, each with its parameters."""
    here = {"workflow_id": workflow_id}
    few = {"limit": LISTED, "letters": LETTERS, **here}
    start = {"sequence": -(2**40), "tail": 2**52, "place": 0, "include_failed": 0}
    latest = {"before": 2**53, "before_id": "~", "id": ""}
    return {
        "workflow_get": {"id": workflow_id},
        "context_running": few,
        "context_failed": few,
        "context_prior": few | latest,
        "tasks_free": {"limit": LISTED, **start, **here},
        "tally": here,
        "tasks_running_count": here,
        "tasks_free_count": {"include_failed": 0, **here},
        "tasks_blocked_count": here,
    }


def _lists(tx: Tx, asked: Mapping[str, Row]) -> dict[str, Iterator[Body]]:
    lists = ("context_running", "context_failed", "context_prior", "tasks_free")
    running, failed, recent, ready = (tx.all(name, **asked[name]) for name in lists)
    return {
        "running": (
            {
                **_task_head(row),
                "status": shown_status(row),
                "claimed_by": row["claimed_by"],
                "noted": _short_text(row["noted"]),
            }
            for row in running
        ),
        "recent": (
            {**_task_head(row), "status": row["status"], "outcome": _short_text(row["outcome"])} for row in recent
        ),
        "failed": ({**_task_head(row), "error": _short_text(row["error"])} for row in failed),
        "next": (_task_head(row) for row in ready),
    }


def _task_head(row: Row) -> Body:
    return {"id": row["id"], "name": fit_text(row["name"], NAME_TOKENS)}


def _short_text(text: str | None) -> str | None:
    return None if text is None else fit_text(text, TASK_TOKENS)


def _totals(tx: Tx, workflow: WorkflowRow, asked: Mapping[str, Row]) -> dict[str, int]:
    """How many tasks there are of each list, by the workflow's tally."""
    tally: dict[str, int] = {}
    for row in tx.all("tally", **asked["tally"]):
        tally[row["status"]] = tally.get(row["status"], 0) + row["tasks"]
    return {
        "running": tx.value("tasks_running_count", **asked["tasks_running_count"]),
        "recent": workflow["finished_count"],
        "failed": tally.get("failed", 0),
        "next": tx.value("tasks_free_count", **asked["tasks_free_count"]),
        "blocked": tx.value("tasks_blocked_count", **asked["tasks_blocked_count"]),
    }


def _progress(workflow: WorkflowRow, totals: dict[str, int]) -> Body:
    counts = {"tasks": workflow["task_count"], "finished": workflow["finished_count"]}
    return counts | {name: totals[name] for name in ("running", "failed", "blocked")} | {"ready": totals["next"]}


def to_markdown(page: Body) -> str:
    """The page as Markdown. Texts of agents stand in single lines, so that none opens a heading."""
    progress = page["progress"]
    counts = ", ".join(f"{progress[name]} {name}" for name in ("running", "ready", "blocked", "failed"))
    parts = [
        f"# {_line(page['name'])} ({page['status']})",
        f"Workflow {page['id']}: {progress['finished']} of {progress['tasks']} tasks finished; {counts}.",
        f"**Asked for**: {_line(page['source'] or '')}",
        f"**Plan**: {_line(page['plan'])}" if page["plan"] else "There is no plan yet.",
    ]
    parts += ["\n".join([f"## {title}", *map(_item, page[name])]) for name, title in HEADINGS.items() if page[name]]
    if page["left_out"]:
        parts.append(f"Left out: {', '.join(f'{number} of {name}' for name, number in page['left_out'].items())}.")
    return "\n\n".join(parts) + "\n"


def _item(item: Body) -> str:
    note = next((item[name] for name in ("outcome", "error", "noted") if item.get(name)), None)
    held = f", {item['claimed_by']}" if item.get("claimed_by") else ""
    return f"- {_line(item['name'])} (`{item['id']}`{held})" + (f": {_line(note)}" if note else "")


def _line(text: str) -> str:
    """A text in one line that nothing takes for more than text: no tag, no `@path` that a CLAUDE.md would read in."""
    return re.sub(r"(?<!\S)@(?=\S)", "@ ", " ".join(text.split()).replace("<", "&lt;"))
