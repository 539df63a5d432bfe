"""What a reviewer is asked to do: the task, what was done, what is still open, and how to answer."""

from dataclasses import dataclass

from crewhall.families.crew.model import InstanceRow
from crewhall.families.review.model import ItemRow
from crewhall.outside.git import GitRepository

TASK_LETTERS, GIVEN_LETTERS, STAT_LETTERS = 20_000, 20_000, 12_000
BAR = (
    "An item blocks if the change is wrong, unsafe, untested where it matters, or does not do what the task asks. "
    "Style and taste never block."
)


@dataclass(frozen=True)
class ReviewFacts:
    """What a round is about. `since` is the commit that the last round looked at."""

    iteration: int
    most: int
    head: str
    since: str | None
    items: list[ItemRow]
    completion_message: str | None
    reviewer_prompt: str | None


def review_prompt(repo: GitRepository, coder: InstanceRow, facts: ReviewFacts) -> str:
    """The reviewer's task, without the frame that its type's text puts around it."""
    parts = [
        f"Review the work of {coder['id']} on the branch {coder['branch']}, at commit {facts.head[:12]}. This is round "
        f"{facts.iteration} of at most {facts.most}.",
        _quote("The task it was given:", coder["prompt"], TASK_LETTERS),
        _quote("What it says about its work:", facts.completion_message, GIVEN_LETTERS),
        _changes(repo, coder, facts),
        _open_items(facts),
        facts.reviewer_prompt and f"Look at this besides:\n\n{facts.reviewer_prompt[:GIVEN_LETTERS]}",
        f"{BAR} Then answer once: `send_feedback` with your findings as actionable_items (file and line where you "
        "can), or `create_pull_request` if it is ready to land. Your session ends after that.",
    ]
    return "\n\n".join(part for part in parts if part)


def _quote(title: str, text: str | None, most: int) -> str | None:
    """A text of others, which is data: every line is quoted."""
    if not text:
        return None
    shown = text if len(text) <= most else f"{text[:most]}\n[… {len(text) - most} characters left out]"
    return f"{title}\n\n" + "\n".join(f"> {line}" for line in shown.splitlines())


def _changes(repo: GitRepository, coder: InstanceRow, facts: ReviewFacts) -> str:
    spread = f"{facts.since}..{facts.head}" if facts.since else f"{coder['base_branch']}...{facts.head}"
    ended = repo.git("diff", "--stat=100", "--stat-count=150", spread, "--")
    stat = ended.out.decode("utf-8", "replace")[:STAT_LETTERS].rstrip()
    what = f"Changed since the last round (`git diff {spread}`)" if facts.since else f"Changed (`git diff {spread}`)"
    return f"{what}:\n\n{stat or 'nothing is committed'}"


def _open_items(facts: ReviewFacts) -> str | None:
    if not facts.items:
        return None
    lines = [
        f"- {one['id']}{' (blocks)' if one['is_blocking'] else ''}: {one['item'][:500]}"
        + (f" [{one['file']}:{one['line'] or ''}]" if one["file"] else "")
        for one in facts.items
    ]
    return "\n".join(["Open items of earlier rounds; name the item_id if you raise one again:\n", *lines])
