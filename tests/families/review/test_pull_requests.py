"""Pull requests of instances: pushed by real git to fake hosts, approved by reviewers, followed until merged."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crewhall.fakehosts.faults import Fault
from crewhall.fakehosts.gitea import FakeGitea
from crewhall.fakehosts.github import FakeGitHub
from crewhall.fakehosts.host import FakeHost
from crewhall.fakehosts.merging import merge
from tests.families.crew.conftest import Site
from tests.families.review.conftest import Loop
from tests.families.work.workflows import plan_workflow, task
from tests.outside.repos import commit, git

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
TOKEN = "ghp_Hubs0wnT0ken"
HOSTS = {"github": FakeGitHub, "gitea": FakeGitea}
PULL = {"title": "Make it blue", "description": "It was red."}


class Landing(Loop):
    """A loop whose repository is on a fake host."""

    def __init__(self, site: Site, host: FakeHost) -> None:
        self.host = host
        self.repo = host.add_repository("octo", "shop")
        url = f"{host.url}/octo/shop.git"
        git(site.repository, "remote", "add", "origin", url)
        git(site.repository, "push", "-q", url.replace("//", f"//any:{TOKEN}@"), "main")
        super().__init__(site)
        self.work()

    def open(self, by: str | None = None, **more: Any) -> dict[str, Any]:
        return self.by(by or self.coder, "create_pull_request", **PULL | more)

    def follow(self) -> None:
        self.site.hub.chores.run_one("instance_pulls")
        assert self.site.hub.chores.records["instance_pulls"].error is None
        self.run_chores()


@pytest.fixture
def make_landing(make_site: Callable[..., Site]) -> Iterator[Callable[..., Landing]]:
    hosts: list[FakeHost] = []

    def make(kind: str = "github", **settings: Any) -> Landing:
        hosts.append(HOSTS[kind]({TOKEN: "octocat"}).__enter__())
        own = {f"pulls__{kind}_url": hosts[-1].url, f"pulls__{kind}_token": TOKEN, "pulls__pause": "1ms"}
        return Landing(make_site(**own | settings), hosts[-1])

    yield make
    for host in hosts:
        host.__exit__(None, None, None)


@pytest.mark.parametrize("kind", HOSTS)
def test_a_reviewed_branch_lands_without_its_feedback(make_landing: Callable[..., Landing], kind: str) -> None:
    loop = make_landing(kind)
    loop.round()
    loop.work("light blue")
    reviewer = loop.request()
    opened = loop.open(reviewer)
    (pull,) = loop.repo.pulls.values()
    assert (opened["pr_number"], opened["branch_name"], pull.head, pull.title) == (
        pull.number, loop.coder, loop.coder, "Make it blue",
    )  # fmt: skip
    assert "REVIEW_FEEDBACK.md" not in loop.repo.files(loop.coder) and "colour.txt" in loop.repo.files(loop.coder)
    row = loop.instance(loop.coder)
    assert (row["status"], row["pull_number"], row["pull_url"]) == ("pr_created", pull.number, opened["pr_url"])
    assert loop.open() == opened, "asking twice returns the first"
    told = loop.by(loop.coder, "message_list")["messages"][0]
    assert told["sender_id"] == loop.instance(reviewer)["agent_id"]
    assert told["body"] == f"{reviewer} approves your work. Its pull request is open: {opened['pr_url']}"
    loop.run_chores()
    assert loop.status(reviewer) == "terminated" and loop.instance(reviewer)["pull_number"] == pull.number
    assert [one["outcome"] for one in loop.site.call("review_list")["reviews"]] == ["approved", "feedback"]
    merge(loop.repo, pull, "Merged", "octocat", squash=False)
    loop.follow()
    assert loop.status() == "pr_merged" and not loop.tree.exists() and loop.site.tmux.panes() == {}


def test_a_reviewer_approves_only_what_nothing_blocks(make_landing: Callable[..., Landing]) -> None:
    loop = make_landing()
    (item,) = loop.round(actionable_items=[{"text": "Use #00f", "file": "sky.txt"}])["blocking_items"]
    loop.work("light blue")
    reviewer = loop.request()
    refused = loop.refusal(reviewer, "create_pull_request", **PULL).body("create_pull_request")
    assert (refused["code"], refused["blocking_items"]) == ("INVALID_STATE", [item])
    assert not loop.repo.pulls and loop.status() == "waiting_review"
    assert loop.open(reviewer, resolved_items=[item])["pr_number"] == 1
    (pull,) = loop.repo.pulls.values()
    assert pull.body == PULL["description"]
    assert loop.site.call("review_get", instance_id=loop.coder)["open_items"] == []


def test_no_pull_request_is_opened_for_a_task_of_a_paused_workflow(make_landing: Callable[..., Landing]) -> None:
    """Not by its coder, nor by the reviewer, whose feedback is accepted all the same."""
    loop = make_landing()
    workflow, tasks = plan_workflow(loop.site.call, task("sky"))
    loop.by(loop.coder, "task_claim", task_id=tasks["sky"])
    reviewer = loop.request()
    loop.site.call("workflow_update_status", id=workflow, status="paused", reason="look")
    for caller in (loop.coder, reviewer):
        refused = loop.refusal(caller, "create_pull_request", **PULL)
        assert (refused.code, refused.fields["paused_by"]) == ("INVALID_STATE", "operator")
        assert not loop.repo.pulls
    loop.send(reviewer)
    loop.run_chores()
    loop.site.call("workflow_update_status", id=workflow, status="in_progress")
    assert loop.open()["pr_number"] == 1


def test_a_coders_own_pull_says_what_still_blocks(make_landing: Callable[..., Landing]) -> None:
    loop = make_landing()
    loop.round(actionable_items=["Use #00f", {"text": "A nit", "blocking": False}])
    loop.open()
    (pull,) = loop.repo.pulls.values()
    assert pull.body == "Open review items:\n\n- Use #00f\n\n---\n\nIt was red."


def test_a_pull_that_is_merged_while_its_coder_works_on_is_noted(make_landing: Callable[..., Landing]) -> None:
    loop = make_landing()
    loop.open()
    loop.round(feedback_type="suggestions")
    assert loop.status() == "started"
    (pull,) = loop.repo.pulls.values()
    merge(loop.repo, pull, "Merged", "octocat", squash=False)
    loop.follow()
    assert loop.status() == "pr_merged" and not loop.tree.exists()


def test_a_closed_pull_is_noted_and_the_instance_can_go_on(make_landing: Callable[..., Landing]) -> None:
    loop = make_landing()
    loop.open()
    loop.follow()
    assert loop.status() == "pr_created"
    loop.repo.set_state(next(iter(loop.repo.pulls.values())), "closed")
    loop.follow()
    assert loop.status() == "pr_closed" and loop.tree.exists()
    assert loop.events("instance")[-1]["what"] == "instance.pull_closed"


def test_a_pull_request_while_waiting_ends_the_reviewer(make_landing: Callable[..., Landing]) -> None:
    loop = make_landing()
    reviewer = loop.request()
    loop.open()
    loop.run_chores()
    assert loop.status() == "pr_created" and loop.status(reviewer) == "terminated"


def add_workflow(loop: Landing) -> None:
    (loop.tree / ".github/workflows").mkdir(parents=True)
    (loop.tree / ".github/workflows/ci.yml").write_text("on: push")
    commit(loop.tree, "a workflow")


def undo_work(loop: Landing) -> None:
    git(loop.tree, "reset", "-q", "--hard", "main")


def forbid(loop: Landing) -> None:
    loop.host.forbid("octo", "shop")


def no_host(loop: Landing) -> None:
    git(loop.site.repository, "remote", "set-url", "origin", "https://git.example/octo/shop.git")


def other_history(loop: Landing) -> None:
    url = f"{loop.host.url}/octo/shop.git".replace("//", f"//any:{TOKEN}@")
    other = loop.site.repository.parent / "other"
    git(loop.site.repository.parent, "clone", "-q", url, str(other))
    git(other, "checkout", "-qb", loop.coder)
    (other / "theirs.txt").write_text("theirs")
    commit(other, "theirs")
    git(other, "push", "-q", url, loop.coder)


@pytest.mark.parametrize(
    ("prepare", "given", "code", "word"),
    [
        (add_workflow, {}, "FORBIDDEN", "pulls.branch_deny"),
        (undo_work, {}, "INVALID_STATE", "changes nothing"),
        (None, {"base_branch": "nowhere"}, "INVALID_INPUT", "nowhere"),
        (None, {"title": ""}, "INVALID_INPUT", "title"),
        (forbid, {}, "FORBIDDEN", ""),
        (no_host, {}, "UNAVAILABLE", "git.example"),
        (other_history, {}, "CONFLICT", ""),
    ],
)
def test_what_cannot_be_opened_is_refused_and_changes_no_status(
    make_landing: Callable[..., Landing],
    prepare: Callable[[Landing], None] | None,
    given: dict[str, Any],
    code: str,
    word: str,
) -> None:
    loop = make_landing()
    if prepare is not None:
        prepare(loop)
    before = dict(loop.repo.branches)
    refused = loop.refusal(loop.coder, "create_pull_request", **PULL | given)
    assert refused.code == code and word in f"{refused.message} {refused.hint}"
    assert loop.status() == "started" and not loop.repo.pulls and loop.repo.branches == before


def test_a_tier_of_one_opens_nothing(make_landing: Callable[..., Landing]) -> None:
    loop = make_landing(crew__default_tier=1)
    refused = loop.refusal(loop.coder, "create_pull_request", **PULL)
    assert refused.code == "FORBIDDEN" and "minimum tier is 2" in refused.message


def test_a_host_that_fails_after_the_push_leaves_no_branch(make_landing: Callable[..., Landing]) -> None:
    loop = make_landing()
    loop.host.fail(Fault(method="POST", path="/pulls$", times=1_000))
    refused = loop.refusal(loop.coder, "create_pull_request", **PULL)
    assert refused.code == "UNAVAILABLE" and loop.status() == "started"
    assert loop.coder not in loop.repo.branches and not loop.repo.pulls


def test_the_hubs_token_goes_to_its_own_host_only(make_landing: Callable[..., Landing]) -> None:
    """An agent that points origin at another host, or another port of the same one, gets no token there."""
    loop = make_landing()
    with FakeGitHub({"none": "nobody"}) as other:
        other.add_repository("octo", "shop", {"README.md": b"x"})
        git(loop.tree, "remote", "set-url", "origin", f"{other.url}/octo/shop.git")
        assert loop.refusal(loop.coder, "create_pull_request", **PULL).code == "UNAVAILABLE"
        assert not other.exchanges and not other.git_exchanges
