"""What a person needs to decide about an instance that has had all its rounds of review."""

from typing import Any

from crewhall.app import Call
from crewhall.families.crew.model import InstanceRow
from crewhall.families.review.rules import SUGGESTIONS
from crewhall.outside.git import GitRepository

STAT_LETTERS, SAID_LETTERS, MOST_ITEMS = 4_000, 500, 20


def decision_packet(call: Call, repo: GitRepository, coder: InstanceRow) -> dict[str, Any]:
    """The rounds so far, the items that are open, the size of the change, and what each side said last."""
    with call.look() as look:
        rounds = look.all("reviews", coder=coder["id"], is_open=None, limit=10, offset=0)
        items = look.all("items_open", coder=coder["id"])
        last = next((look.one("feedback_get", id=one["feedback_id"]) for one in rounds if one["feedback_id"]), None)
    spread = f"{coder['base_branch']}...refs/heads/{coder['branch']}"
    stat = repo.git("diff", "--stat=100", "--stat-count=50", spread, "--").out.decode("utf-8", "replace")
    shown = ("review_iteration", "outcome", "feedback_type")
    return {
        "rounds": [{name: one[name] for name in shown} for one in rounds],
        "open_items": [{"id": one["id"], "text": one["item"][:SAID_LETTERS]} for one in items[:MOST_ITEMS]],
        "diff_stat": stat[-STAT_LETTERS:].rstrip(),
        "said": {"reviewer": last["feedback"][:SAID_LETTERS] if last else None, "task": coder["prompt"][:SAID_LETTERS]},
        "actions": list(SUGGESTIONS),
    }
