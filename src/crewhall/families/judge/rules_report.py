"""
A report as a person reads it, and as a program does. Pure.

What Claude and the CLI say is quoted in the Markdown (`> `) or indented as an item's own lines: no heading, list or tag
in it gets out of there. Invisible characters are shown by number.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json

from crewhall.families.judge.model import AuditFinding, Finding
from crewhall.fence import visible
from crewhall.store.transaction import Row

MD, JSON = "JUDGE_REPORT.md", "JUDGE_REPORT.json"
LISTS = {
    "blocking_issues": "Blocking issues",
    "suggestions": "Suggestions",
    "issues": "Issues",
    "findings": "Findings",
}
NOTES = {"error": "Error", "detail": "Note"}
PROSE = ("summary", "reasoning")
TAG = re.compile(r"<(?=[A-Za-z/!?])")  # what a page would take for HTML


def report_files(row: Row) -> dict[str, bytes]:
    """Both files of a review's report, by name."""
    return {
        MD: markdown(row).encode(),
        JSON: (json.dumps(_json_report(row), ensure_ascii=False, indent=2) + "\n").encode(),
    }


def _json_report(row: Row) -> dict[str, Any]:
    ruling: dict[str, Any] = from_json(row["ruling"])
    return ruling | {
        "tokens_used": row["input_tokens"] + row["output_tokens"],
        "cost_usd": row["cost_usd"],
        "duration_ms": row["duration_ms"],
        "report_id": row["id"],
        "workflow_id": row["workflow_id"],
        "commit": row["commit_id"],
        "model": row["model"],
        "created_at": _when(row["created_at"]),
    }


def markdown(row: Row) -> str:
    """The report, or why there is no ruling, as Markdown."""
    parts = [f"# {row['verdict'] or 'No ruling'}: {row['kind']} of {' '.join(_lines(row['subject']))}", _facts(row)]
    parts += [f"{title}:\n\n{_quote(row[name])}" for name, title in NOTES.items() if row[name] is not None]
    ruling: dict[str, Any] = from_json(row["ruling"]) if row["ruling"] is not None else {}
    parts += [_quote(ruling[name]) for name in PROSE if ruling.get(name)]
    for name, title in LISTS.items():
        if name in ruling:
            parts += [f"## {title} ({len(ruling[name])})", _numbered_list(ruling[name])]
    return "\n\n".join(parts) + "\n"


def _facts(row: Row) -> str:
    facts = [
        f"report {row['id']}",
        _when(row["created_at"]),
        f"commit {row['commit_id'][:12]}" if row["commit_id"] else "",
        f"{row['input_tokens'] + row['output_tokens']:,} tokens, {row['cost_usd']:.2f} USD",
        f"{row['duration_ms'] / 1000:.1f} s",
    ]
    return " · ".join(fact for fact in facts if fact)


def _numbered_list(raw: Sequence[dict[str, Any]]) -> str:
    findings = [(AuditFinding if "severity" in one else Finding).model_validate(one) for one in raw]
    return "\n".join(_item(number, finding) for number, finding in enumerate(findings, 1)) or "None."


def _item(number: int, finding: Finding) -> str:
    """One finding; its further lines are indented as far as the first, which makes them a part of the item."""
    first, *rest = _lines(finding.issue.strip()) or [""]
    severity = f"**{finding.severity}** " if isinstance(finding, AuditFinding) else ""
    place = " ".join(visible(finding.place)).replace("`", "'").strip()
    mark, where = f"{number}. ", f"`{place}`: " if place else ""
    return f"\n{' ' * len(mark)}".join([f"{mark}{severity}{where}{first.lstrip()}", *rest])


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in _lines(text))


def _lines(text: str) -> list[str]:
    """The lines of what somebody said; a tag in them is none, also behind a backslash, or among backticks."""
    return visible(TAG.sub("< ", text))


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
