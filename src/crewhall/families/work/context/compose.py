"""
What an agent must know to go on with a task, gathered from the hall and put into a budget of tokens.

    gather: rows, read until they would not fit anyway ──▶ compose: shares of the budget ──▶ a body that fits

The newest checkpoint comes before all else, whole whenever it fits beside the frame, else within the task's share. Of
the rest the workflow gets 15 in a hundred, the task 55, what was finished before 20, what it depends on and what runs
beside it 10; what a section does not need, the others get.
"""

import json

from crewhall.families.work.context.asked import hint_by_task_id
from crewhall.families.work.context.model import Context, Include
from crewhall.families.work.context.rows import (
    NOTES,
    WEIGHTS,
    Body,
    ContextParts,
    fit_checkpoint,
    gather,
    total_cost,
    wanted_tokens,
)
from crewhall.families.work.lookup import get
from crewhall.outside.tokens import count
from crewhall.store.transaction import Row, Tx
from crewhall.token_budget import CostedItem, cost, fit_fields, fit_items, fits, shares

TRIES, SPARE = 8, 4  # how often an answer is put together to use its budget, and how many in a hundred may stay unused
DENSE = 8  # letters for a token in a text that says something, at the most


def load_context(tx: Tx, task_id: str, include: Include, most: int, now: int) -> Context:
    """The context of a task in at most so many tokens. Raises NotFound."""
    hint_by_task_id(tx, task_id, include)
    parts = gather(tx, get(tx, "task", task_id), include, most, now)
    is_whole = _takes_newest_whole(parts, most)
    best: Context | None = None
    body: Body = {}
    budget, fitting, too_long, misses = most, 0, 0, 0  # fitting, too long: budgets that were tried
    for _ in range(TRIES):
        before, body = body, compose(parts, budget, is_whole=is_whole)
        if best is not None and body == before:
            break  # more room gives no more: all that is there is in it
        context = Context(**body, token_estimate=most)
        text = _answer_text(context)
        tokens = count(text)
        if tokens > most:  # parts may cost more together than one by one
            too_long = budget
        else:
            fitting = budget
            if best is None or tokens > best.token_estimate:
                best = context.model_copy(update={"token_estimate": tokens})
            if tokens >= most - SPARE * most // 100 or len(text) > DENSE * most:
                break  # it is full, or of blanks and rules, which take long to count and are not worth it
        if fitting and too_long:
            budget = (fitting + too_long) // 2
        elif too_long:  # letters that are counted high cost more than they were measured to
            misses += 1
            budget = max(0, min(budget - (tokens - most + 4) * 2**misses, budget * most // tokens))
        else:  # an item that is too large for its section's share leaves room
            budget += most - tokens - 4
    assert best is not None, "the frame alone is longer than the least budget"
    return best


def _takes_newest_whole(parts: ContextParts, most: int) -> bool:
    """Whether the newest checkpoint fits as it is, if need be with no other text beside it."""
    if parts.newest is None or not fits(parts.newest, most):
        return False
    alone = Context(**compose(parts, 0, is_whole=True), token_estimate=most)
    return count(_answer_text(alone)) <= most


def _answer_text(context: Context) -> str:
    """The JSON text of the answer, as a model reads it."""
    return json.dumps(context.model_dump(mode="json"), ensure_ascii=False)


def compose(parts: ContextParts, budget: int, *, is_whole: bool) -> Body:
    """A body of about so many tokens, by parts that are counted one by one; the newest checkpoint whole, or cut."""
    left = budget - cost(_body(parts, {}, {}, [], {}))
    newest = [] if parts.newest is None else [_newest_checkpoint(parts.newest, left, is_whole=is_whole)]
    spent = sum(cost(one) for one in newest)
    wants = {
        "workflow": wanted_tokens(parts.workflow_texts, left),
        "task": wanted_tokens(parts.task_texts, left) + total_cost(parts.older),
        "prior": total_cost(parts.prior),
        "dependencies": total_cost(parts.dependencies),
        "siblings": total_cost(parts.siblings),
    }
    weights = WEIGHTS | {"task": max(10, WEIGHTS["task"] - 100 * spent // max(1, left))}
    given = shares(wants, weights, left - spent)
    halves = {"texts": wanted_tokens(parts.task_texts, left), "checkpoints": total_cost(parts.older)}
    own = shares(halves, NOTES, given["task"])
    lists = {
        "prior_tasks": fit_items(parts.prior, given["prior"]),
        "sibling_tasks": _fit_optional(parts.siblings, given["siblings"]),
        "dependency_outcomes": _fit_optional(parts.dependencies, given["dependencies"]),
    }
    checkpoints = [*newest, *fit_items(parts.older, own["checkpoints"])]
    workflow, task = (
        _with_left_out(*fit_fields(texts, most))
        for texts, most in ((parts.workflow_texts, given["workflow"]), (parts.task_texts, own["texts"]))
    )
    return _body(parts, workflow, task, checkpoints[::-1], lists)


def _newest_checkpoint(row: Row, left: int, *, is_whole: bool) -> Body:
    """The newest checkpoint; one that does not fit leaves the other sections what is theirs."""
    return row if is_whole else fit_checkpoint(row, left * WEIGHTS["task"] // 100)


def _fit_optional(items: list[CostedItem] | None, most: int) -> list[Body] | None:
    return None if items is None else fit_items(items, most)


def _with_left_out(fitted: Body, left_out: dict[str, int]) -> Body:
    if "repository_path" in left_out:  # a part of a path leads elsewhere
        left_out["repository_path"] += len(fitted["repository_path"] or "")
        fitted["repository_path"] = None
    return {**fitted, "left_out": left_out or None}


def _body(parts: ContextParts, workflow: Body, task: Body, checkpoints: list[Body], lists: Body) -> Body:
    """The answer of these parts, and how many items of each list it leaves out."""
    shown = {"checkpoints": checkpoints} | {name: items or [] for name, items in lists.items()}
    missing = {name: total - len(shown.get(name, [])) for name, total in parts.totals.items()}
    return {
        "workflow": {
            **parts.workflow,
            "source_summary": workflow.get("source_content"),
            "plan_summary": workflow.get("plan"),
            "repository_path": workflow.get("repository_path"),
            "left_out": workflow.get("left_out"),
        },
        "current_task": {
            **parts.task,
            **{name: task.get(name) for name in parts.task_texts},
            "description": task.get("description") or "",
            "files_likely_affected": task.get("files_likely_affected") or [],
            "checkpoints": checkpoints,
            "left_out": task.get("left_out"),
        },
        "prior_tasks": lists.get("prior_tasks", []),
        "sibling_tasks": lists.get("sibling_tasks"),
        "dependency_outcomes": lists.get("dependency_outcomes"),
        "unread_messages": parts.unread,
        "left_out": {name: number for name, number in missing.items() if number > 0} or None,
    }
