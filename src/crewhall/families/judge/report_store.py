"""
The store of reports: a ruling, or why there is none, with its event; and the cache of those that still hold.

    a good ruling on files that changed meanwhile    none: it is about what is gone
    CRITICAL_HALT                                    its workflow is paused in the same moment, also on a cache hit
"""

import re
from typing import Any

from crewhall.app import Call
from crewhall.bounded import cut_middle
from crewhall.families.judge.model import FINDING_CHARACTERS, Ruling
from crewhall.families.judge.question import ReviewResult, ReviewRun
from crewhall.families.judge.rules_answer import UnreadableAnswer, ruling_in
from crewhall.families.judge.rules_secret import without_secrets
from crewhall.families.work.lookup import get_locked
from crewhall.families.work.workflow.halt import halt
from crewhall.fence import visible
from crewhall.identity import new_id
from crewhall.store.transaction import Row, Tx

PARSE_ERROR, TIMED_OUT, STALE = "parse_error", "timed_out", "stale"
ERROR_CHARACTERS, DETAIL_CHARACTERS = 2_000, 3_000
MOVED = "files that it is about changed while it was asked"
NO_LOGIN = re.compile(r"/login|logged in|API key|authenticat", re.IGNORECASE)
LOGIN = "it is the hub's user who has to log in, or the hub's environment that needs a key; then ask again"
TREE_MOVED = "other files of the working tree changed while it was asked"


def find_cached(call: Call, run: ReviewRun, cache_key: str | None) -> ReviewResult | None:
    """The report that is cached under a key. A cached CRITICAL_HALT pauses its workflow again."""
    if cache_key is None:
        return None
    with call.look() as tx:
        row = tx.one("judge_report_kept", question=cache_key)
    if row is None:
        return None
    has_paused = False
    if _halts(row):
        with call.begin(at=call.later()) as tx:
            has_paused = _halt(tx, row, tx.now)
    return ReviewResult(row, run.question, is_cached=True, has_paused=has_paused)


def store(call: Call, run: ReviewRun) -> ReviewResult:
    """Store a run's report. Only a ruling on files that did not change during the run is cached."""
    ruling, error, detail = _read(run)
    question, usage = run.question, run.reply.usage
    has_moved = run.has_moved or run.has_tree_moved
    row: Row = {
        "id": new_id("jr"),
        "kind": question.item.kind,
        "subject": question.subject,
        "workflow_id": question.workflow_id,
        "verdict": ruling and ruling.word,
        "error": error,
        "detail": detail,
        "ruling": ruling and ruling.model_dump_json(),
        "question": None if ruling is None or has_moved else run.cache_key,
        "node": call.settings.node,
        "directory": question.directory.path,
        "commit_id": run.tree.commit,
        "model": run.cli.model or None,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "duration_ms": round(run.reply.seconds * 1000),
        "actor": call.actor.id,
    }
    now, has_paused = call.later(), False
    with call.begin(at=now) as tx:  # it happens now, and began long ago
        if question.workflow_id is not None:
            # Before the row that names it: who halts it needs the lock too.
            get_locked(tx, "workflow", question.workflow_id)
        tx.run("judge_report_put", **row, now=tx.now)
        tx.event("report.made" if ruling is not None else "report.failed", row["id"], after=row["verdict"] or error)
        if _halts(row):
            has_paused = _halt(tx, row, tx.now)
    return ReviewResult(row | {"created_at": now}, question, has_paused=has_paused)


def _halts(row: Row) -> bool:
    return row["verdict"] == "CRITICAL_HALT" and row["workflow_id"] is not None


def _halt(tx: Tx, row: Row, now: int) -> bool:
    return halt(tx, row["workflow_id"], f"the judge's report {row['id']} on task {row['subject']}", now)


def _read(run: ReviewRun) -> tuple[Ruling | None, str | None, str | None]:
    """The ruling, or an error: a constant or the CLI's own text; and a note on either."""
    reply, question = run.reply, run.question
    if reply.is_late:
        return None, TIMED_OUT, f"no answer within {question.seconds} s; the CLI was ended"
    if reply.text is None and not reply.is_garbage:
        problem = _storable_text(reply.problem or "", ERROR_CHARACTERS) or "the CLI failed"
        return None, problem, LOGIN if NO_LOGIN.search(problem) else None
    try:
        if reply.text is None:
            raise UnreadableAnswer(reply.problem)
        ruling = ruling_in(reply.text, question.item.answer, question.subject)
    except UnreadableAnswer as why:
        answer = f". It said: {reply.text}" if reply.text else ""
        return None, PARSE_ERROR, _storable_text(f"{why}{answer}", DETAIL_CHARACTERS)
    if run.has_moved and ruling.is_good:
        return None, STALE, MOVED
    note = MOVED if run.has_moved else TREE_MOVED if run.has_tree_moved else None
    return type(ruling).model_validate(_clean(ruling.model_dump())), None, note


def _storable_text(text: str, most: int) -> str:
    """Foreign text as a row can hold it: without secrets and without characters that a database refuses."""
    return cut_middle("\n".join(visible(without_secrets(text))), most)


def _clean(value: Any) -> Any:
    """What Claude says may repeat a secret that it read. Though a note is longer than some, no text gets too long."""
    if isinstance(value, dict):
        return {name: _clean(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_clean(one) for one in value]
    return without_secrets(value)[: max(len(value), FINDING_CHARACTERS)] if isinstance(value, str) else value
