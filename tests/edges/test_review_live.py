"""The review loop as a page sees it: what changes a status is pushed with its commit, and nothing else is."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from crewhall.fakehosts.faults import Fault
from crewhall.fakehosts.github import FakeGitHub
from crewhall.identity import OPERATOR
from tests.conftest import Clock, Live, eventually
from tests.edges.raw_http import http
from tests.edges.test_live import newest, seen, watching
from tests.families.crew.conftest import PROGRAM, Site
from tests.families.review.test_pull_requests import PULL, TOKEN, Landing
from tests.families.work.workflows import sql
from tests.outside.repos import git

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
FEEDBACK = {"feedback": "Too dark.", "feedback_type": "needs_work"}


class Stage:
    """A real hub, a fake host, and a coder whose calls come over HTTP."""

    def __init__(self, live: Live, loop: Landing) -> None:
        self.live, self.loop, self.coder = live, loop, loop.coder

    def post(self, who: str | None, tool: str, /, **arguments: Any) -> httpx2.Response:
        """A call of an instance with its own token, or of the operator."""
        token = self.live.token if who is None else self.loop.site.received(who)["environment"]["CREWHALL_TOKEN"]
        path = "/".join(self.live.hub.registry.find(tool).command)
        headers = {"Authorization": f"Bearer {token}"}
        return http.post(f"{self.live.url}/api/v1/{path}", json=arguments, headers=headers)

    def done(self, who: str | None, tool: str, /, **arguments: Any) -> dict[str, Any]:
        answer = self.post(who, tool, **arguments)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def refused(self, who: str | None, tool: str, /, **arguments: Any) -> str:
        answer = self.post(who, tool, **arguments)
        assert answer.status_code >= 400, answer.text
        return str(answer.json()["code"])

    def head(self) -> str:
        return git(self.loop.tree, "rev-parse", "HEAD")

    def log(self, tool: str, count: int) -> list[tuple[Any, ...]]:
        """What the call log has of a tool's calls: instance, success, error, commit, statuses."""
        asked = "SELECT instance_id, success, error, git_commit_hash, status_before, status_after FROM mcp_events"
        asked += f" WHERE tool_name = '{tool}' ORDER BY at, id"
        rows = eventually(lambda: len(rows := sql(self.live.hub, asked)) == count and rows)
        return [tuple(row.values()) for row in rows]


@pytest.fixture
def stage(serve: Callable[..., Live], tmp_path: Path) -> Iterator[Stage]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    runtimes = {"custom": {"command": [shutil.which("python3"), str(program), "{prompt}", "{prompt_file}"]}}
    with FakeGitHub({TOKEN: "octocat"}) as host:
        there = {"pulls__github_url": host.url, "pulls__github_token": TOKEN, "pulls__pause": "1ms"}
        live = serve(crew__runtimes=runtimes, **there)
        site = Site(live.hub, tmp_path / "site", Clock())
        yield Stage(live, Landing(site, host))
        site.close()


def test_each_tool_that_changes_a_status_is_seen_with_it_and_its_commit(stage: Stage) -> None:
    names = ("what", "subject", "before_status", "after_status", "git_commit")
    with watching(stage.live, f"?after={newest(stage.live)}&topic=review") as reviews, watching(
        stage.live, f"?after={newest(stage.live)}&topic=instance.pull_opened"
    ) as pulls:  # fmt: skip
        head = stage.head()
        reviewer = stage.done(stage.coder, "request_review")["review_instance_id"]
        asked = seen(reviews, 1)
        sent = stage.done(reviewer, "send_feedback", **FEEDBACK)
        heard = seen(reviews, 1)
        stage.done(stage.coder, "create_pull_request", **PULL)
        opened = seen(pulls, 1)
        pushed = stage.loop.repo.branches[stage.coder]
    assert [tuple(one[name] for name in names) for one in (*asked, *heard, *opened)] == [
        ("review.requested", stage.coder, "started", "waiting_review", head),
        ("review.feedback", stage.coder, "waiting_review", "started", sent["git_commit_hash"]),
        ("instance.pull_opened", stage.coder, "started", "pr_created", pushed),
    ]
    assert stage.head() == pushed and [one["tool"] for one in (*asked, *heard, *opened)] == [
        "request_review", "send_feedback", "create_pull_request",
    ]  # fmt: skip
    assert stage.log("create_pull_request", 1) == [(stage.coder, 1, None, pushed, "started", "pr_created")]


def test_reads_and_refusals_push_nothing(stage: Stage) -> None:
    stage.done(None, "setting_set", key="review.max_iterations", value="1")
    reviewer = stage.done(stage.coder, "request_review")["review_instance_id"]
    with watching(stage.live, f"?after={newest(stage.live)}") as watcher:
        for who in (None, stage.coder, reviewer):
            stage.done(who, "review_list")
            stage.done(who, "review_get", instance_id=stage.coder)
            stage.done(who, "instance_get", id=stage.coder)
            stage.done(who, "instance_list")
        refused = [
            stage.refused(stage.coder, "request_review"),
            stage.refused(reviewer, "request_review"),
            stage.refused(stage.coder, "send_feedback", **FEEDBACK),
            stage.refused(reviewer, "send_feedback", **FEEDBACK | {"feedback": ""}),
            stage.refused(reviewer, "create_pull_request", **PULL, base_branch="nowhere"),
            stage.refused(None, "create_pull_request", **PULL),
            stage.refused(None, "create_issues", issues=[{"title": "Blue"}], instance_id=stage.coder),
        ]
        stage.live.hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)
        events = seen(watcher, 1)
    assert refused == [
        *("INVALID_STATE", "FORBIDDEN", "FORBIDDEN", "INVALID_INPUT", "INVALID_INPUT", "INVALID_INPUT", "FORBIDDEN")
    ]
    assert [one["what"] for one in events] == ["agent.registered"]


def test_a_refusal_at_the_limit_pushes_nothing(stage: Stage) -> None:
    stage.done(None, "setting_set", key="review.max_iterations", value="1")
    reviewer = stage.done(stage.coder, "request_review")["review_instance_id"]
    with watching(stage.live, f"?after={newest(stage.live)}&topic=review") as watcher:
        stage.done(reviewer, "send_feedback", **FEEDBACK)
        head = stage.head()
        assert stage.refused(stage.coder, "request_review") == "REVIEW_LIMIT_EXCEEDED"
        stage.done(None, "setting_set", key="review.max_iterations", value="2")
        stage.done(stage.coder, "request_review")
        assert [one["what"] for one in seen(watcher, 2)] == ["review.feedback", "review.requested"]
    assert stage.log("request_review", 3)[1] == (stage.coder, 0, "REVIEW_LIMIT_EXCEEDED", head, None, None)


def test_what_is_undone_is_in_the_log_with_its_instance_and_commit(stage: Stage) -> None:
    """A host that fails after the push, a reviewer that can't be started, feedback without a tree to go to."""
    head = stage.head()
    with watching(stage.live, f"?after={newest(stage.live)}&topic=review") as watcher:
        stage.loop.host.fail(Fault(method="POST", path="/pulls$", times=1_000))
        assert stage.refused(stage.coder, "create_pull_request", **PULL) == "UNAVAILABLE"
        assert stage.coder not in stage.loop.repo.branches and stage.loop.status() == "started"
        trees = Path(f"{stage.loop.site.repository}-worktrees")
        trees.rename(trees.with_name("aside"))
        trees.write_text("in the way")
        code = stage.refused(stage.coder, "request_review")
        trees.unlink()
        trees.with_name("aside").rename(trees)
        assert stage.loop.status() == "started"
        reviewer = stage.done(stage.coder, "request_review")["review_instance_id"]
        stage.loop.tree.rename(stage.loop.tree.with_name("gone"))
        assert stage.refused(reviewer, "send_feedback", **FEEDBACK) == "INVALID_STATE"
        stage.loop.tree.with_name("gone").rename(stage.loop.tree)
        stage.done(reviewer, "send_feedback", **FEEDBACK)
        assert [one["what"] for one in seen(watcher, 2)] == ["review.requested", "review.feedback"]
    assert stage.log("create_pull_request", 1) == [(stage.coder, 0, "UNAVAILABLE", head, None, None)]
    assert stage.log("request_review", 2)[0] == (stage.coder, 0, code, head, None, None)
    assert stage.log("send_feedback", 2)[0] == (reviewer, 0, "INVALID_STATE", head, None, None)
