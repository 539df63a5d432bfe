"""The contract that the judge gets of a round, and what becomes of its verdict. No I/O."""

import json
import os
from typing import Any

from crewhall.errors import InvalidInput
from crewhall.families.review.model import FeedbackType, ItemGiven, ItemRow, Priority, TaskUnderReview

MOST_FILES, MOST_ITEMS, ITEM_CHARACTERS = 2_000, 50, 4_000
TEXT_CHARACTERS = 20_000
PRIORITIES: dict[str, Priority] = {"CONDITIONAL": "normal", "FAIL": "high", "CRITICAL_HALT": "urgent"}


def refuse_unjudgeable(coder: str, paths: list[str]) -> None:
    """Raise InvalidInput for files that a contract can't name: the judge would pass what it has not seen."""
    odd = next((path for path in paths if not _is_text(path)), None)
    if odd is not None:
        raise InvalidInput(
            f"the name of {os.fsencode(odd)!r} is not UTF-8, and the judge can't be given it",
            hint="Rename the file, commit that, then ask again.",
            instance_id=coder,
        )
    if len(paths) > MOST_FILES:
        raise InvalidInput(
            f"the branch changes {len(paths)} files, and the judge reviews at most {MOST_FILES} at once",
            hint="Commit less on this branch; generated files may belong in .gitignore.",
            instance_id=coder,
        )


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def contract_text(task: TaskUnderReview, changed: list[str], said: str | None, items: list[ItemRow]) -> str:
    """TASK_CONTRACT.json: what the task asks, how it was planned, and which findings of earlier rounds must be gone."""
    plan = json.loads(task["plan"] or "{}")
    steps = [str(step) for step in plan.get("steps") or ()]
    requirements = [f"{task['name']}: {task['description']}", *steps]
    criteria = ["The change does what the task's description asks, and nothing that it does not."]
    criteria += [f"This finding of an earlier review is gone: {_item_text(one)}" for one in items if one["is_blocking"]]
    contract: dict[str, Any] = {
        "task_id": task["id"],
        "workflow_id": task["workflow_id"],
        "specification": {"requirements": [one[:TEXT_CHARACTERS] for one in requirements if one.strip()][:200]},
        "acceptance_criteria": criteria[:100],
        "changed_files": changed,
    }
    if approach := str(plan.get("approach") or ""):
        contract["specification"]["approach"] = approach[:TEXT_CHARACTERS]
    if said:
        contract["handoff_data"] = {"completion_message": said[:TEXT_CHARACTERS]}
    return json.dumps(contract, ensure_ascii=False, indent=1)


def _item_text(one: ItemRow) -> str:
    place = f" ({one['file']})" if one["file"] else ""
    return f"{' '.join(one['item'].split())[:500]}{place}"


def judged_items(ruling: dict[str, Any]) -> list[ItemGiven]:
    """The items of a verdict: what blocks first, then what could be better."""
    points = [(one, True) for one in ruling["blocking_issues"]] + [(one, False) for one in ruling["suggestions"]]
    return [
        ItemGiven(
            text=one["issue"][:ITEM_CHARACTERS],
            file=one["file"] and one["file"][:1_000],
            line=one["line"] if one["line"] and one["line"] <= 10**7 else None,
            blocking=blocks,
        )
        for one, blocks in points[:MOST_ITEMS]
    ]


def judged_feedback(verdict: str, ruling: dict[str, Any], report_id: str) -> tuple[str, FeedbackType, Priority]:
    """The text of the feedback, its type and its priority."""
    lines = [f"The judge says {verdict} (report {report_id}).", "", str(ruling["summary"]), ""]
    for title, points in (("Blocking", ruling["blocking_issues"]), ("Suggestions", ruling["suggestions"])):
        if points:
            lines += [f"## {title}", "", *(f"- {_point(one)}" for one in points), ""]
    return "\n".join(lines), "needs_work", PRIORITIES.get(verdict, "normal")


def _point(one: dict[str, Any]) -> str:
    line = f":{one['line']}" if one["line"] else ""
    place = f"{one['file']}{line}: " if one["file"] else ""
    return f"{place}{' '.join(one['issue'].split())}"
