"""REVIEW_FEEDBACK.md: what a coder finds in its worktree after a review."""

import json

from crewhall.families.review.model import FeedbackRow

NAME = "REVIEW_FEEDBACK.md"


def feedback_file(row: FeedbackRow, items: list[dict[str, object]]) -> bytes:
    """The file's text: front matter, then the feedback. Every value is quoted as JSON, so no text can forge one."""
    head = {
        "round": row["review_iteration"],
        "feedback_type": row["feedback_type"],
        "priority": row["priority"],
        "reviewer": row["reviewer"],
    }
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "items:"]
    lines += [f"  - {json.dumps(_item_fields(item), ensure_ascii=False)}" for item in items] or ["  []"]
    return "\n".join([*lines, "---", "", row["feedback"].rstrip("\n"), ""]).encode()


def _item_fields(item: dict[str, object]) -> dict[str, object]:
    names = {"item_id": "item_id", "item": "text", "file": "file", "line": "line", "rule": "rule"}
    shown = {name: item[key] for key, name in names.items() if item[key] is not None}
    return {**shown, "blocking": bool(item["is_blocking"]), **({} if item["found_by"] == "new" else {"again": True})}
