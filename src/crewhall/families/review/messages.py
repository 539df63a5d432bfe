"""What a coder is told in its conversation and its inbox about a round of review. No I/O."""

from typing import Any

from crewhall.families.review.items import RoundOutcome
from crewhall.families.review.quotes import one_line, quote
from crewhall.families.review.rules_item import Mention

SHOWN = 4_000  # characters of a feedback in a message; the file has all of it
SHOWN_ITEM = 500
SHOWN_FILE = 200


def feedback_message(sent: dict[str, Any], outcome: RoundOutcome) -> str:
    """How a round came out: the items with their ids, the feedback, and what to do next."""
    lines = [f"{sent['reviewer']} reviewed your work (round {sent['iteration']}): {sent['feedback_type']}."]
    lines += [_item_line(one, outcome) for one in outcome.mentions]
    named = {one.item_id for one in outcome.mentions}
    if left := [item.id for item in outcome.after if item.blocks and item.id not in named]:
        lines.append(f"Still open and blocking from earlier rounds: {', '.join(left)}.")
    text = sent["feedback"]
    lines += ["", quote(text, SHOWN), ""]
    return "\n".join([*lines, f"All of it is in REVIEW_FEEDBACK.md in your worktree. {_next_step(outcome)}"])


def _item_line(one: Mention, outcome: RoundOutcome) -> str:
    again = "" if one.found_by == "new" else ", again"
    blocks = "blocks" if one.item_id in outcome.blocking_ids else "does not block"
    line = f":{one.given.line}" if one.given.line else ""
    place = f" ({one_line(one.given.file, SHOWN_FILE)}{line})" if one.given.file else ""
    return f"- {one.item_id} [{blocks}{again}]{place} {one_line(one.given.text, SHOWN_ITEM)}"


def _next_step(outcome: RoundOutcome) -> str:
    if outcome.has_converged:
        return "Nothing blocks: take what helps, commit, then call create_pull_request."
    return "Fix what blocks, commit, then call request_review; in its items say what you fixed or dispute."
