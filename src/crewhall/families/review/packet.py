"""What a person needs to decide about an instance that has had all its rounds of review."""

from typing import Any

from crewhall.app import Call
from crewhall.families.crew.model import InstanceRow
from crewhall.families.review.items import shown_item
from crewhall.families.review.model import ItemRow
from crewhall.outside.git import GitRepository

STAT_LETTERS, SAID_LETTERS, MOST_ITEMS = 4_000, 500, 20


def decision_packet(call: Call, repo: GitRepository, coder: InstanceRow) -> dict[str, Any]:
    """The rounds so far, the items that are open, the size of the change, and what each side said last."""
    with call.look() as look:
        rounds = look.all("reviews", coder=coder["id"], is_open=None, limit=10, offset=0)
        items: list[ItemRow] = look.all("items_open", coder=coder["id"])
        last = next((look.one("feedback_get", id=one["feedback_id"]) for one in rounds if one["feedback_id"]), None)
    spread = f"{repo.base_of(coder['base_branch'])}...refs/heads/{coder['branch']}"
    words = ("diff", "--stat=100", "--stat-count=50", "--end-of-options", spread, "--")
    stat = repo.git(*words).out.decode("utf-8", "replace")
    shown = ("review_iteration", "outcome", "feedback_type")
    completion = next((one["completion_message"] for one in rounds if one["completion_message"]), None)
    said = {"reviewer": last and last["feedback"], "coder": completion, "task": coder["prompt"]}
    return {
        "rounds": [{name: one[name] for name in shown} for one in rounds],
        "open_items": [shown_item(one) for one in items[:MOST_ITEMS]],
        "diff_stat": stat[-STAT_LETTERS:].rstrip(),
        "said": {who: text and text[:SAID_LETTERS] for who, text in said.items()},
        "actions": _actions(coder["id"], items),
    }


def _actions(instance_id: str, items: list[ItemRow]) -> list[dict[str, str]]:
    """What a person can do, each with its command."""
    actions = [
        ("Open the pull request as it is", f'crewhall review pull-request "TITLE" "TEXT" --instance-id {instance_id}'),
        ("Grant more rounds", "crewhall setting set review.max_iterations 5"),
        ("Say what to do", f'crewhall instance send {instance_id} "TEXT"'),
        ("Abandon it; its work is saved", f"crewhall instance abandon {instance_id}"),
    ]
    waivable = next((one["id"] for one in items if one["is_blocking"]), None)
    if waivable is not None:
        actions.insert(0, ("Waive an item that need not be fixed", f'crewhall review waive {waivable} "REASON"'))
    return [{"action": action, "command": command} for action, command in actions]
