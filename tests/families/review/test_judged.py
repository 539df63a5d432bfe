"""The judge as a reviewer: its verdict becomes items and rounds, a PASS approves, and no verdict costs no round."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.fakehosts.github import FakeGitHub
from crewhall.outside.root_path import identity_of
from tests.families.crew.conftest import Site
from tests.families.judge.judge_site import Act, FakeClaude, command_for, rules, says
from tests.families.review.conftest import Loop
from tests.families.work.workflows import sql, task
from tests.outside.repos import git, refs

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
TOKEN = "ghp_Hubs0wnT0ken"


class Judged(Loop):
    """A coder that holds a task of a workflow whose reviewer is the judge."""

    def __init__(self, site: Site, claude: FakeClaude) -> None:
        super().__init__(site)
        self.claude = claude
        path = str(site.repository)
        given = {"name": "Blue", "source_type": "prompt", "source_content": "Make it blue", "repository_path": path}
        self.workflow = site.call("workflow_create", reviewer="judge", **given)["id"]
        plan = {"summary": "Blue", "approach": "Paint", "tasks": [task("sky", 1)]}
        site.call("workflow_set_plan", id=self.workflow, plan=plan)
        self.task = site.call("task_list", workflow_id=self.workflow)["tasks"][0]["id"]
        self.by(self.coder, "task_claim", task_id=self.task)
        self.work()

    def says(self, word: str, *blocking: str, **more: Any) -> Act:
        issues = [{"file": "colour.txt", "line": 1, "issue": text} for text in blocking]
        found = {"task_id": self.task, "verdict": word, "summary": "So it is.", "blocking_issues": issues, **more}
        return says(json.dumps(found))

    def judge(self, *acts: Act) -> dict[str, Any]:
        """Ask for a round; the chores see to it."""
        self.claude.plays(*acts)
        asked = self.by(self.coder, "request_review", completion_message="It is blue.")
        assert (asked["review_instance_id"], asked["session_name"], asked["worktree_path"]) == (None, None, None)
        assert asked["branch_name"] == self.coder and self.status() == "waiting_review"
        self.settle()
        return asked

    def settle(self) -> None:
        self.site.hub.chores.run_one("settle_review_judge")
        assert self.site.hub.chores.records["settle_review_judge"].error is None
        self.run_chores()

    def rounds(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.call("review_get", instance_id=self.coder)["rounds"]
        return found

    def last_message(self) -> str:
        return str(self.by(self.coder, "message_list")["messages"][0]["body"])

    def assert_clean(self) -> None:
        """No worktree, branch, ref or operation of the judge's is left."""
        assert not list(self.tree.parent.glob("judge-*"))
        assert not [name for name in refs(self.site.repository) if "judge-" in name]
        assert sql(self.site.hub, "SELECT kind FROM operation") == []


@pytest.fixture
def make_judged(make_site: Callable[..., Site], tmp_path: Path) -> Iterator[Callable[..., Judged]]:
    place = tmp_path / "claude"
    place.mkdir()
    claude = FakeClaude(place / "shop-worktrees")
    yield lambda **more: Judged(make_site(judge__command=command_for(place), **more), claude)
    claude.close()


def test_findings_become_items_and_a_pass_approves(make_judged: Callable[..., Judged]) -> None:
    loop = make_judged()
    head = git(loop.tree, "rev-parse", "HEAD")
    loop.judge(
        loop.says("FAIL", "The sky is grey.", suggestions=[{"file": None, "line": None, "issue": "Add a test."}])
    )
    (first,) = loop.rounds()
    assert (first["reviewer"], first["outcome"], first["converged"]) == ("judge", "feedback", False)
    assert first["report_id"] and first["priority"] == "high" and loop.status() == "started"
    assert [(one["text"], one["blocking"]) for one in first["item_list"]] == [
        ("The sky is grey.", True),
        ("Add a test.", False),
    ]
    text = (loop.tree / "REVIEW_FEEDBACK.md").read_text()
    assert 'reviewer: "judge"' in text and "The judge says FAIL" in text and "- colour.txt:1: The sky is grey." in text
    assert "[blocks] (colour.txt:1) The sky is grey." in loop.last_message()
    (run,) = loop.claude.runs()
    contract = run["input"]
    for words in (loop.task, "sky", "This finding of an earlier review is gone"):
        assert (words in contract) is (words != "This finding of an earlier review is gone"), words
    assert f'"commit": "{head}"' not in contract and Path(run["directory"]).name.startswith(f"judge-{loop.coder}-r1-")
    loop.assert_clean()

    loop.work("light blue")
    loop.judge(loop.says("CONDITIONAL", "The sky is still grey."))
    assert [one["times"] for one in loop.rounds()[0]["item_list"]] == [2]
    assert "This finding of an earlier review is gone: The sky is grey. (colour.txt)" in loop.claude.runs()[1]["input"]
    loop.work("bright blue")
    loop.judge(loop.says("PASS"))
    last = loop.rounds()[0]
    assert (last["outcome"], last["converged"], last["review_iteration"]) == ("approved", True, 3)
    assert "PASS" in loop.last_message() and "could not be opened: no host is set up" in loop.last_message()
    assert loop.site.call("review_get", instance_id=loop.coder)["open_items"] == []
    assert loop.refusal(loop.coder, "request_review").code == "REVIEW_LIMIT_EXCEEDED"
    found = [(one["what"], one["before_status"], one["after_status"]) for one in loop.events()]
    assert found.count(("review.requested", "started", "waiting_review")) == 3
    assert ("review.approved", "waiting_review", "started") in found
    loop.assert_clean()


def test_a_pass_opens_the_pull_request(make_judged: Callable[..., Judged]) -> None:
    with FakeGitHub({TOKEN: "octocat"}) as host:
        loop = make_judged(pulls__github_url=host.url, pulls__github_token=TOKEN, pulls__pause="1ms")
        repo, url = host.add_repository("octo", "shop"), f"{host.url}/octo/shop.git"
        git(loop.site.repository, "remote", "add", "origin", url)
        git(loop.site.repository, "push", "-q", url.replace("//", f"//any:{TOKEN}@"), "main")
        loop.judge(loop.says("PASS"))
        (pull,) = repo.pulls.values()
        assert (pull.head, pull.title) == (loop.coder, "Make it blue") and "The judge says PASS" in pull.body
        assert loop.status() == "pr_created" and loop.rounds()[0]["outcome"] == "approved"
        assert "Its pull request is open." in loop.last_message()
        loop.assert_clean()


def test_no_pull_request_is_opened_for_an_instance_of_tier_one(make_judged: Callable[..., Judged]) -> None:
    loop = make_judged(crew__default_tier=1)
    loop.judge(loop.says("PASS"))
    assert "minimum tier is 2" in loop.last_message() and loop.status() == "started"


@pytest.mark.parametrize("act", [says("I like it."), {"out": "", "err": "no login", "code": 1}, rules("PASS", "T-9")])
def test_no_verdict_gives_the_round_back(make_judged: Callable[..., Judged], act: Act) -> None:
    loop = make_judged()
    loop.judge(act)
    (lost,) = loop.rounds()
    assert (lost["is_lost"], lost["outcome"]) == (True, "ended") and loop.status() == "started"
    assert "gave no verdict" in loop.last_message() and "call request_review again" in loop.last_message()
    assert loop.judge(loop.says("FAIL", "Grey."))["review_iteration"] == 1
    loop.assert_clean()


def test_three_rounds_without_a_verdict_are_for_a_person(make_judged: Callable[..., Judged]) -> None:
    loop = make_judged()
    for _ in range(3):
        loop.judge(says("I like it."))
    assert loop.refusal(loop.coder, "request_review").code == "INVALID_STATE"


def test_a_halt_pauses_the_workflow(make_judged: Callable[..., Judged]) -> None:
    loop = make_judged()
    loop.judge(loop.says("CRITICAL_HALT", "It deletes the sky."))
    assert loop.site.call("workflow_get", id=loop.workflow)["status"] == "paused"
    assert loop.rounds()[0]["priority"] == "urgent"


def test_no_review_is_asked_for_while_the_workflow_is_paused(make_judged: Callable[..., Judged]) -> None:
    """Also not after the task was given back: that is what would be reviewed."""
    loop = make_judged()
    person = {"id": loop.workflow, "reason": "look at the sky"}
    loop.site.call("workflow_update_status", status="paused", **person)
    for _ in range(2):
        refused = loop.refusal(loop.coder, "request_review")
        assert (refused.code, refused.fields["paused_by"], refused.fields["reason"]) == (
            "INVALID_STATE",
            "operator",
            "look at the sky",
        )
        assert "checkpoint_add" in refused.hint and loop.status() == "started" and loop.rounds() == []
        loop.by(loop.coder, "task_release", task_id=loop.task)
    loop.site.call("workflow_update_status", status="in_progress", **person)
    loop.by(loop.coder, "task_claim", task_id=loop.task)
    loop.judge(loop.says("FAIL", "Grey."))


def test_a_coder_that_ends_meanwhile_hears_no_verdict(make_judged: Callable[..., Judged]) -> None:
    loop = make_judged()
    loop.claude.plays(loop.says("FAIL", "Grey."))
    loop.by(loop.coder, "request_review")
    loop.site.call("instance_stop", id=loop.coder)
    loop.run_chores()
    assert loop.rounds()[0]["outcome"] == "withdrawn"
    loop.settle()
    assert loop.claude.runs() == [] and loop.status() == "terminated" and len(loop.rounds()) == 1
    loop.assert_clean()


def test_a_review_by_the_judge_can_take_too_long(make_judged: Callable[..., Judged]) -> None:
    loop = make_judged()
    loop.by(loop.coder, "request_review")
    loop.site.clock.advance(24 * 3600 + 1)
    loop.run_chores()
    assert (loop.status(), loop.rounds()[0]["outcome"]) == ("started", "timed_out")
    loop.settle()
    assert loop.status() == "started" and len(loop.rounds()) == 1


def test_one_review_at_a_time(make_judged: Callable[..., Judged]) -> None:
    loop = make_judged()
    loop.by(loop.coder, "request_review")
    refused = loop.refusal(loop.coder, "request_review")
    assert refused.code == "INVALID_STATE" and "judge reviews it already" in refused.message


def test_a_workflow_names_its_reviewer(make_site: Callable[..., Site]) -> None:
    site = make_site()
    given = {"name": "Blue", "source_type": "prompt", "source_content": "x"}
    made = site.call("workflow_create", **given)["id"]
    assert site.call("workflow_get", id=made)["reviewer"] == "instance"
    assert site.refusal("workflow_create", reviewer="nobody", **given).code == "INVALID_INPUT"


def test_the_tree_that_is_judged_is_the_one_that_was_made(make_judged: Callable[..., Judged]) -> None:
    """What is at its path later is another directory, whatever it holds."""
    loop = make_judged()
    loop.claude.plays(loop.says("FAIL", "The sky is grey.") | {"waits": "go"})
    loop.by(loop.coder, "request_review", completion_message="It is blue.")
    settling = threading.Thread(target=loop.settle)
    settling.start()
    loop.claude.wait_for()
    (row,) = sql(loop.site.hub, "SELECT data FROM operation")
    data = json.loads(row["data"])
    assert tuple(data["identity"]) == identity_of(data["tree"])
    loop.claude.go()
    settling.join(20)
    assert loop.rounds()[0]["outcome"] == "feedback"
