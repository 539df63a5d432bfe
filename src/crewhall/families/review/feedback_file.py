"""REVIEW_FEEDBACK.md: what a coder finds in its worktree after a review."""

import json
import re

from crewhall.families.review.model import FeedbackRow
from crewhall.families.review.rules import reviewer_name

NAME = "REVIEW_FEEDBACK.md"
ODD = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


def feedback_file(row: FeedbackRow, items: list[dict[str, object]]) -> bytes:
    """The file's text: front matter, then the feedback. Every value is quoted as JSON, so no text can forge one."""
    head = {
        "round": row["review_iteration"],
        "feedback_type": row["feedback_type"],
        "priority": row["priority"],
        "reviewer": reviewer_name(row["reviewer"]),
    }
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "items:"]
    lines += [f"  - {_on_one_line(_item_fields(item))}" for item in items] or ["  []"]
    return "\n".join([*lines, "---", "", row["feedback"].rstrip("\n"), ""]).encode()


def _on_one_line(value: dict[str, object]) -> str:
    """The value as JSON that YAML, too, reads as one line: it ends lines at three characters that JSON does not."""
    text = json.dumps(value, ensure_ascii=False)
    return ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _item_fields(item: dict[str, object]) -> dict[str, object]:
    names = {"item_id": "item_id", "item": "text", "file": "file", "line": "line", "rule": "rule"}
    shown = {name: item[key] for key, name in names.items() if item[key] is not None}
    return {**shown, "blocking": bool(item["is_blocking"]), **({} if item["found_by"] == "new" else {"again": True})}
