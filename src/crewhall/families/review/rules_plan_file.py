"""A plan file's issues: each `##` heading is one, with what follows it. No I/O."""

import re

from crewhall.errors import InvalidInput
from crewhall.families.review.model import IssueGiven

HEADING = re.compile(r"##(?!#)[ \t](.*)")
FENCE = re.compile(r" {0,3}(```+|~~~+)")
MOST = 50


def issues_in(text: str, path: str) -> list[IssueGiven]:
    """The issues of a plan; headings inside code blocks don't count. Raises InvalidInput for none or too many."""
    found: list[tuple[str, list[str]]] = []
    fence = ""
    for line in text.splitlines():
        if mark := FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = None if fence else HEADING.fullmatch(line)
        title = heading[1].rstrip("#").strip(" \t") if heading else ""
        if title:
            found.append((title[:250], []))
        elif found:
            found[-1][1].append(line)
    if not 0 < len(found) <= MOST:
        raise InvalidInput(
            f"{path[:200]} has {len(found)} headings that begin with '## ', and it may have 1 to {MOST}",
            hint="Give each issue a heading of that level; what follows it is the issue's text.",
        )
    return [IssueGiven(title=title, body="\n".join(lines).strip()[:60_000]) for title, lines in found]
