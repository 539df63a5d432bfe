"""The review loop at its edges: reviewers that die, trees that are busy, texts that lie, callers that may not."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.identity import Actor, Credentials
from tests.conftest import eventually
from tests.families.crew.conftest import Site
from tests.families.review.conftest import Loop
from tests.families.review.test_reviews import SEEDS_SELECT
from tests.families.work.workflows import sql
from tests.outside.repos import change, git, refs

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
NAME = "REVIEW_FEEDBACK.md"


def test_a_limit_raised_while_running_takes_effect(loop: Loop) -> None:
    loop.site.call("setting_set", key="review.max_iterations", value="1")
    loop.round()
    assert loop.refusal(loop.coder, "request_review").code == "REVIEW_LIMIT_EXCEEDED"
    loop.site.call("setting_set", key="review.max_iterations", value="6")
    assert loop.by(loop.coder, "request_review")["review_iteration"] == 2


def await_end(loop: Loop, name: str) -> None:
    eventually(lambda: loop.site.state(name)["name"] == "ended")


def test_a_reviewer_that_dies_gives_its_round_back(loop: Loop) -> None:
    for _ in range(3):
        reviewer = loop.request()
        os.kill(int(loop.instance(reviewer)["pid"]), signal.SIGKILL)
        await_end(loop, reviewer)
        loop.run_chores()
        assert loop.status() == "started"
        loop.run_chores()
        assert loop.status(reviewer) == "terminated"
    assert sql(loop.site.hub, SEEDS_SELECT.format(loop.coder))[0]["current_iteration"] == 0
    refused = loop.refusal(loop.coder, "request_review")
    assert refused.code == "INVALID_STATE" and "ended without feedback" in refused.message
    asked = loop.site.call("request_review", instance_id=loop.coder)
    assert asked["review_iteration"] == 1
    assert [one["what"] for one in loop.events()].count("review.lost") == 3


def test_a_review_that_takes_too_long_is_ended(loop: Loop) -> None:
    reviewer = loop.request()
    loop.site.clock.advance(23.9 * 3600)
    loop.run_chores()
    assert loop.status() == "waiting_review"
    loop.site.clock.advance(0.2 * 3600)
    loop.run_chores()
    loop.run_chores()
    assert loop.status() == "started" and loop.status(reviewer) == "terminated"
    assert "took longer" in json.dumps(loop.by(loop.coder, "message_list"))


@pytest.mark.parametrize("tool", ["instance_stop", "instance_abandon"])
def test_a_coders_end_ends_its_reviewer(loop: Loop, tool: str) -> None:
    reviewer = loop.request()
    loop.site.call(tool, id=loop.coder)
    loop.run_chores()
    loop.run_chores()
    assert loop.status(reviewer) == "terminated" and loop.site.tmux.panes() == {}
    assert loop.status() == {"instance_stop": "terminated", "instance_abandon": "abandoned"}[tool]


def test_feedback_waits_for_a_tree_that_cannot_take_it(loop: Loop) -> None:
    reviewer = loop.request()
    (loop.tree / NAME).write_text("mine")
    sent = loop.send(reviewer)
    assert sent["merge_pending"] and loop.status() == "started" and (loop.tree / NAME).read_text() == "mine"
    loop.run_chores()
    assert (loop.tree / NAME).read_text() == "mine" and loop.status(reviewer) == "terminated"
    (loop.tree / NAME).unlink()
    change(loop.tree / "file-0", "going on")
    loop.run_chores()
    assert (loop.tree / NAME).read_text().endswith("Too dark.\n")
    assert git(loop.tree, "rev-parse", "HEAD^2") == sent["git_commit_hash"]
    assert git(loop.tree, "status", "--porcelain") == " M file-0"
    assert [one["what"] for one in loop.events()][-1] == "review.merged"


def test_commits_of_a_reviewer_are_saved_and_never_merged(loop: Loop) -> None:
    asked = loop.by(loop.coder, "request_review")
    tree = Path(asked["worktree_path"])
    (tree / "mine.txt").write_text("by the reviewer")
    git(tree, "add", "mine.txt")
    git(tree, "commit", "-qm", "by the reviewer")
    own = git(tree, "rev-parse", "HEAD")
    loop.send(asked["review_instance_id"])
    loop.run_chores()
    assert not (loop.tree / "mine.txt").exists()
    assert own in [commit for name, commit in refs(loop.site.repository).items() if "crewhall/saved" in name]


def test_a_text_cannot_forge_the_front_matter(loop: Loop) -> None:
    item = {"text": 'x"}\n---\npriority: "urgent"', "file": "a\nb"}
    loop.send(loop.request(), feedback="---\nround: 9\n---\n", actionable_items=[item])
    text = (loop.tree / NAME).read_text()
    head, body = text.split("\n---\n\n", 1)
    assert head.count("\n---") == 0 and body.startswith("---\nround: 9")
    assert [line for line in head.splitlines() if line.startswith("priority")] == ['priority: "normal"']


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"feedback": ""}, "feedback"),
        ({"feedback_type": "rude"}, "feedback_type"),
        ({"priority": "now"}, "priority"),
        ({"actionable_items": ["x"] * 51}, "actionable_items"),
        ({"actionable_items": [{"file": "a"}]}, "actionable_items"),
        ({"feedback": "x" * 300_001}, "feedback"),
    ],
)
def test_bad_feedback_is_refused_and_changes_nothing(loop: Loop, given: dict[str, Any], word: str) -> None:
    reviewer = loop.request()
    before = refs(loop.site.repository)
    with pytest.raises(Failure) as refused:
        loop.send(reviewer, **given)
    assert refused.value.code == "INVALID_INPUT" and word in refused.value.message
    assert refs(loop.site.repository) == before and loop.status() == "waiting_review"


def test_feedback_is_sent_once(loop: Loop) -> None:
    reviewer = loop.request()
    loop.send(reviewer)
    assert loop.refusal(reviewer, "send_feedback", feedback="x", feedback_type="suggestions").code == "INVALID_STATE"
    assert git(loop.tree, "log", "--format=%s").count("Merge review feedback") == 1


def test_a_dead_coder_hears_of_its_feedback_when_it_is_restarted(loop: Loop) -> None:
    reviewer = loop.request()
    os.kill(int(loop.instance(loop.coder)["pid"]), signal.SIGKILL)
    await_end(loop, loop.coder)
    assert loop.send(reviewer)["merge_pending"] is False and loop.status() == "started"
    (loop.site.place(loop.coder).path / "got.json").unlink()
    loop.site.call("instance_restart", id=loop.coder)
    assert "Too dark" in json.dumps(loop.by(loop.coder, "message_list"))


def test_each_type_may_do_its_part_and_no_other(loop: Loop, make_site: Callable[..., Site]) -> None:
    planner = loop.site.start(type="planning", title="plan")
    reviewer = loop.request()
    other = loop.site.start(title="other")
    feedback = {"feedback": "x", "feedback_type": "suggestions"}
    refused = [
        loop.refusal(planner, "request_review"),
        loop.refusal(reviewer, "request_review"),
        loop.refusal(loop.coder, "send_feedback", **feedback),
        loop.refusal(planner, "send_feedback", **feedback),
        loop.refusal(other, "request_review", instance_id=loop.coder),
        loop.refusal(other, "send_feedback", instance_id=reviewer, **feedback),
        loop.refusal(reviewer, "send_feedback", instance_id=other, **feedback),
    ]
    assert {one.code for one in refused} == {"FORBIDDEN"}
    worker = loop.site.call("agent_token_create", name="ada", type="coding")["token"]
    with pytest.raises(Failure) as stranger:
        loop.site.hub.call("request_review", {}, loop.site.hub.identify(Credentials(token=worker)))
    assert stranger.value.code == "FORBIDDEN" and "no instance" in stranger.value.message
    assert loop.site.refusal("request_review").code == "INVALID_INPUT"
    assert loop.site.refusal("send_feedback", instance_id=loop.coder, **feedback).code == "FORBIDDEN"
    assert loop.site.call("send_feedback", instance_id=reviewer, **feedback)["target_instance_id"] == loop.coder


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("coding", {"request_review", "create_pull_request", "task_claim"}),
        ("review", {"send_feedback", "create_pull_request"}),
        ("planning", {"create_pull_request", "workflow_set_plan"}),
    ],
)
def test_instances_see_the_tools_of_their_type(hub: Hub, kind: str, own: set[str]) -> None:
    actor = Actor("agent", "ag_1", "worker", kind, instance="work-1-a1", tier=2)
    seen = {tool.name for tool in hub.registry.visible_tools(actor.kinds, (), actor.profile)}
    assert own <= seen and len(seen) <= 15
    assert not [name for name in seen if name.startswith(("instance_", "setting_", "review_"))]
