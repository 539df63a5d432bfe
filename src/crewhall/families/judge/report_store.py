"""
What was said, kept: a ruling, or why there is none, with the event that tells of it; and what is kept, found again.

    a good ruling on files that changed meanwhile    none: it is about what is gone
    CRITICAL_HALT                                    its workflow is paused in the same moment, also when found again
"""

import re
from typing import Any

from crewhall.app import Call
from crewhall.families.judge.model import LETTERS, Ruling
from crewhall.families.judge.question import Answered, Asked
from crewhall.families.judge.rules_answer import Unreadable, ruling_in
from crewhall.families.judge.rules_prompt import visible
from crewhall.families.judge.rules_secret import without_secrets
from crewhall.families.work.lookup import get_locked
from crewhall.families.work.workflow.halt import halt
from crewhall.identity import new_id
from crewhall.store.transaction import Row, Tx

PARSE_ERROR, TIMED_OUT, STALE = "parse_error", "timed_out", "stale"
ERROR_LETTERS, DETAIL_LETTERS = 2_000, 3_000
MOVED = "files that it is about changed while it was asked"
NO_LOGIN = re.compile(r"/login|logged in|API key|authenticat", re.IGNORECASE)
LOGIN = "it is the hub's user who has to log in, or the hub's environment that needs a key; then ask again"
TREE_MOVED = "other files of the working tree changed while it was asked"


def kept(call: Call, asked: Asked, word: str | None) -> Answered | None:
    """The answer that is kept under a word."""
    if word is None:
        return None
    with call.hub.store.read() as tx:
        row = tx.one("judge_report_kept", question=word)
    if row is None:
        return None
    has_paused = False
    if _halts(row):
        call.now = call.hub.clock()
        with call.begin() as tx:
            has_paused = _halt(tx, row, call.now)
    return Answered(row, asked.question, is_kept=True, has_paused=has_paused)


def keep(call: Call, asked: Asked) -> Answered:
    """Keep what was said. Only a ruling on what has not moved is found again."""
    ruling, error, detail = _read(asked)
    question, usage = asked.question, asked.said.usage
    has_moved = asked.has_moved or asked.has_tree_moved
    row: Row = {
        "id": new_id("jr"),
        "kind": question.item.kind,
        "subject": question.subject,
        "workflow_id": question.workflow_id,
        "verdict": ruling and ruling.word,
        "error": error,
        "detail": detail,
        "ruling": ruling and ruling.model_dump_json(),
        "question": None if ruling is None or has_moved else asked.word,
        "node": call.settings.node,
        "directory": question.desk.directory,
        "commit_id": asked.tree.commit,
        "model": asked.cli.model or None,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "duration_ms": round(asked.said.seconds * 1000),
        "actor": call.actor.id,
    }
    call.now, has_paused = call.hub.clock(), False  # it happens now, and began long ago
    with call.begin() as tx:
        if question.workflow_id is not None:
            get_locked(
                tx, "workflow", question.workflow_id
            )  # before the row that names it: who halts it needs the lock too
        tx.run("judge_report_put", **row, now=call.now)
        tx.event("report.made" if ruling is not None else "report.failed", row["id"], after=row["verdict"] or error)
        if _halts(row):
            has_paused = _halt(tx, row, call.now)
    return Answered(row | {"created_at": call.now}, question, has_paused=has_paused)


def _halts(row: Row) -> bool:
    return row["verdict"] == "CRITICAL_HALT" and row["workflow_id"] is not None


def _halt(tx: Tx, row: Row, now: int) -> bool:
    return halt(tx, row["workflow_id"], f"the judge's report {row['id']} on task {row['subject']}", now)


def _read(asked: Asked) -> tuple[Ruling | None, str | None, str | None]:
    """The ruling; or an error in a word, or in the CLI's words; and what else there is to know."""
    said, question = asked.said, asked.question
    if said.is_late:
        return None, TIMED_OUT, f"no answer within {question.seconds} s; the CLI was ended"
    if said.text is None and not said.is_garbage:
        problem = _told(said.problem or "", ERROR_LETTERS) or "the CLI failed"
        return None, problem, LOGIN if NO_LOGIN.search(problem) else None
    try:
        if said.text is None:
            raise Unreadable(said.problem)
        ruling = ruling_in(said.text, question.item.answer, question.subject)
    except Unreadable as why:
        answer = f". It said: {said.text}" if said.text else ""
        return None, PARSE_ERROR, _told(f"{why}{answer}", DETAIL_LETTERS)
    if asked.has_moved and ruling.is_good:
        return None, STALE, MOVED
    note = MOVED if asked.has_moved else TREE_MOVED if asked.has_tree_moved else None
    return type(ruling).model_validate(_clean(ruling.model_dump())), None, note


def _told(words: str, most: int) -> str:
    """Words of others as a row can hold them: without secrets, and without what no database takes."""
    return "\n".join(visible(without_secrets(words)))[:most]


def _clean(value: Any) -> Any:
    """What Claude says may repeat a secret that it read. Though a note is longer than some, no text gets too long."""
    if isinstance(value, dict):
        return {name: _clean(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_clean(one) for one in value]
    return without_secrets(value)[: max(len(value), LETTERS)] if isinstance(value, str) else value
