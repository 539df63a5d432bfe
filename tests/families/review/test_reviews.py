"""The review loop through its tools: asked for, answered, limited, and never waiting for nobody."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewhall.errors import Failure
from tests.conftest import eventually
from tests.families.review.conftest import Loop
from tests.families.work.workflows import sql
from tests.outside.repos import git, refs

pytestmark = pytest.mark.slow
NAME = "REVIEW_FEEDBACK.md"


def test_a_round_goes_from_the_request_to_the_next_one(loop: Loop) -> None:
    head = git(loop.tree, "rev-parse", "HEAD")
    asked = loop.by(loop.coder, "request_review", completion_message="It is blue now.", reviewer_prompt="Mind the sky.")
    reviewer = asked["review_instance_id"]
    assert (reviewer, asked["branch_name"], asked["review_iteration"]) == ("review-blue-a1", loop.coder, 1)
    assert asked["session_name"] in loop.site.tmux.panes() and Path(asked["worktree_path"]).is_dir()
    assert git(asked["worktree_path"], "rev-parse", "HEAD") == head and loop.status() == "waiting_review"
    prompt = loop.site.received(reviewer)["prompt"]
    for text in ("> Make it blue", "> It is blue now.", "Mind the sky.", "round 1 of at most 3", "colour.txt"):
        assert text in prompt

    sent = loop.send(reviewer, actionable_items=["Use #00f", {"text": "A test", "file": "colour.txt", "line": 1}])
    assert (sent["target_instance_id"], sent["merge_pending"]) == (loop.coder, False)
    assert sent["git_commit_hash"] == git(loop.tree, "rev-parse", "HEAD") and loop.status() == "started"
    text = (loop.tree / NAME).read_text()
    assert text.startswith('---\nround: 1\nfeedback_type: "needs_work"\npriority: "normal"\nreviewer: "review-blue-a1"')
    assert text.endswith("---\n\nToo dark.\n") and '"text": "Use #00f", "blocking": true}' in text
    assert git(loop.tree, "status", "--porcelain") == ""
    inbox = loop.by(loop.coder, "message_list")["messages"]
    assert "[blocks] Use #00f" in json.dumps(inbox) and "request_review" in json.dumps(inbox)

    loop.run_chores()
    assert loop.status(reviewer) == "terminated" and reviewer not in loop.site.tmux.panes()
    assert not Path(asked["worktree_path"]).exists() and f"refs/heads/{reviewer}" not in refs(loop.site.repository)
    loop.work("light blue")
    second = loop.by(loop.coder, "request_review")
    assert (second["review_instance_id"], second["review_iteration"]) == ("review-blue-a2", 2)
    prompt = loop.site.received(second["review_instance_id"])["prompt"]
    assert "Use #00f" in prompt and f"{head}.." in prompt and "round 2 of at most 3" in prompt


def test_events_and_the_call_log_carry_status_and_commit(loop: Loop) -> None:
    head = git(loop.tree, "rev-parse", "HEAD")
    reviewer = loop.request()
    sent = loop.send(reviewer)
    found = [(one["what"], one["subject"], one["before_status"], one["after_status"]) for one in loop.events()]
    assert found == [
        ("review.requested", loop.coder, "started", "waiting_review"),
        ("review.feedback", loop.coder, "waiting_review", "started"),
    ]
    assert [one["git_commit"] for one in loop.events()] == [head, sent["git_commit_hash"]]
    loop.refusal(reviewer, "request_review")
    asked = "SELECT tool_name, instance_id, success, git_commit_hash, status_before, status_after FROM mcp_events"
    asked += " WHERE tool_name IN ('request_review', 'send_feedback')"
    rows = eventually(lambda: len(rows := sql(loop.site.hub, asked)) == 3 and rows)
    assert {tuple(row.values()) for row in rows} == {
        ("request_review", loop.coder, 1, head, "started", "waiting_review"),
        ("send_feedback", reviewer, 1, sent["git_commit_hash"], "started", "terminated"),
        ("request_review", reviewer, 0, head, None, None),
    }


SEEDS_SELECT = (
    "SELECT COALESCE(MAX(review_iteration), 0) as current_iteration FROM instance_relationships "
    "WHERE parent_instance = '{}' AND relationship_type = 'spawned_review'"
)


def test_the_fourth_request_is_refused_and_the_fifth_abandons(loop: Loop) -> None:
    for _ in range(3):
        loop.round()
    refused = loop.refusal(loop.coder, "request_review").body("request_review")
    assert (refused["error"], refused["message"]) == (
        "REVIEW_LIMIT_EXCEEDED",
        f"Maximum review iterations (3) reached for agent {loop.coder}",
    )
    assert refused["suggestions"] == [
        "Create pull request with current work",
        "Abandon this approach and try different solution",
        "Manually review and fix issues before requesting review",
    ]
    assert (refused["current_iteration"], refused["max_iterations"], refused["instance_id"]) == (3, 3, loop.coder)
    assert refused["hint"].startswith("Maximum review iterations reached (3). Consider creating PR or abandoning.")
    assert refused["abandons_next"] is True and "abandoned" not in refused
    assert len(refused["packet"]["rounds"]) == 3 and [one["times"] for one in refused["packet"]["open_items"]] == [3]
    assert "colour.txt" in refused["packet"]["diff_stat"] and refused["packet"]["said"]["reviewer"] == "Too dark."
    assert sql(loop.site.hub, SEEDS_SELECT.format(loop.coder))[0]["current_iteration"] == 3
    last = loop.refusal(loop.coder, "request_review").body("request_review")
    assert last["abandoned"] is True and loop.status() == "started", "the answer comes first"
    loop.run_chores()
    assert loop.status() == "abandoned" and not loop.tree.exists() and loop.site.tmux.panes() == {}


def test_two_requests_at_once_make_one_review(loop: Loop) -> None:
    def ask(_: int) -> str:
        try:
            return loop.request()
        except Failure as failure:
            return failure.code

    with ThreadPoolExecutor(2) as threads:
        found = sorted(threads.map(ask, range(2)))
    assert found in (["INVALID_STATE", "review-blue-a1"], ["CONFLICT", "review-blue-a1"])
    assert sql(loop.site.hub, "SELECT count(*) AS n FROM instance_relationships")[0]["n"] == 1
