"""What a reviewer is asked to do: the task, what was done, what is still open, and how to answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from crewhall.families.crew.model import InstanceRow
from crewhall.families.review.model import ItemRow
from crewhall.families.review.quotes import one_line, quote
from crewhall.outside.git import GitRepository

TASK_LETTERS, GIVEN_LETTERS, STAT_LETTERS, ITEM_LETTERS = 20_000, 20_000, 12_000, 500
FILE_LETTERS = 200
MOST_ITEMS = 60
BAR = (
    "An item blocks if the change is wrong, unsafe, untested where it matters, or does not do what the task asks. "
    "Style and taste never block."
)
LATER_BAR = (
    "What an earlier round saw and did not object to is accepted: an item about code that has not changed since blocks "
    "only if it does harm."
)
LAST = "This is the last round: after it, a person decides. Let nothing block that can wait for a later change."


@dataclass(frozen=True)
class ReviewFacts:
    """What a round is about. `since` is the commit that the last round looked at, `asked_by` who asked for this one."""

    iteration: int
    most: int
    head: str
    since: str | None
    completion_message: str | None
    reviewer_prompt: str | None
    asked_by: str


def review_prompt(coder: InstanceRow, facts: ReviewFacts, changes: str, items: Sequence[ItemRow]) -> str:
    """The reviewer's task, without the frame that its type's text puts around it."""
    parts = [
        f"Review the work of {coder['id']} on the branch {coder['branch']}, at commit {facts.head[:12]}. This is round "
        f"{facts.iteration} of at most {facts.most}.",
        _quote("The task it was given:", coder["prompt"], TASK_LETTERS),
        _quote("What it says about its work:", facts.completion_message, GIVEN_LETTERS),
        changes,
        _open_items(items),
        _quote(f"{facts.asked_by} asks you to look at this besides:", facts.reviewer_prompt, GIVEN_LETTERS),
        " ".join(_bar(facts)),
        "Then answer once: `send_feedback` with your findings as actionable_items (file and line where you can), or "
        "`create_pull_request` if it is ready to land. Your session ends after that.",
    ]
    return "\n\n".join(part for part in parts if part)


def _bar(facts: ReviewFacts) -> list[str]:
    later = [LATER_BAR] if facts.iteration > 1 else []
    return [BAR, *later, *([LAST] if facts.iteration >= facts.most else [])]


def _quote(title: str, text: str | None, most: int) -> str | None:
    """A text of others, which is data, under a title."""
    return f"{title}\n\n{quote(text, most)}" if text else None


def changes_text(repo: GitRepository, coder: InstanceRow, facts: ReviewFacts) -> str:
    """What has changed: since the last round, if there was one."""
    base = repo.base_of(coder["base_branch"])
    spread = f"{facts.since}..{facts.head}" if facts.since else f"{base}...{facts.head}"
    ended = repo.git("diff", "--stat=100", "--stat-count=150", "--end-of-options", spread, "--")
    stat = ended.out.decode("utf-8", "replace")[:STAT_LETTERS].rstrip()
    what = f"Changed since the last round (`git diff {spread}`)" if facts.since else f"Changed (`git diff {spread}`)"
    return f"{what}:\n\n{stat or 'nothing is committed'}"


def _open_items(items: Sequence[ItemRow]) -> str | None:
    if not items:
        return None
    lines = [line for one in items[:MOST_ITEMS] for line in _item_lines(one)]
    more = [f"- and {len(items) - MOST_ITEMS} more"] if len(items) > MOST_ITEMS else []
    return "\n".join(
        [
            "Open items of earlier rounds. Check each: if it is still there, raise it again with its item_id; if it is "
            "fixed, or you accept what its coder says against it, name it in resolved_items. What you say nothing of "
            "counts as fixed if its code has changed, and stays open otherwise.\n",
            *lines,
            *more,
        ]
    )


def _item_lines(one: ItemRow) -> list[str]:
    facts = [one["state"], *(["blocks"] if one["is_blocking"] else []), f"raised {one['times']} times"]
    line = f":{one['line']}" if one["line"] else ""
    place = f" [{one_line(one['file'], FILE_LETTERS)}{line}]" if one["file"] else ""
    lines = [f"- {one['id']} ({', '.join(facts)}){place}: {one_line(one['item'], ITEM_LETTERS)}"]
    if one["claim"] is not None:
        lines.append(f"  > its coder says it is {one['claim']}: {one_line(one['note'] or 'no note', ITEM_LETTERS)}")
    return lines
