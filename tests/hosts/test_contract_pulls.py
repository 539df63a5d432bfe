"""What every host does for us with pulls, labels and lists: one suite, over both."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from crewhall.fakehosts import faults
from crewhall.fakehosts.faults import Fault
from crewhall.outside.hosting import gitea as gitea_module
from crewhall.outside.hosting import github as github_module
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import Check, Limits, PullFile, PullReview
from tests.hosts.conftest import BRANCH, HERE, HostSite, branch_change, create, delete, failure_of, update
from tests.sizes import size

LABELS = ("claude-ops", "automated")


def open_one(host: Host, title: str = "Check the disks") -> int:
    host.commit(HERE, branch_change(create("checks/new.md")))
    return host.create_pull(HERE, BRANCH, "main", title, "Why,\nand how").number


def test_a_pull_is_created_and_told(pretend: HostSite, host: Host) -> None:
    sha = host.commit(HERE, branch_change(create("checks/new.md")))
    made = host.create_pull(HERE, BRANCH, "main", "Größer \U0001f600", "Why,\nand how")
    kept = pretend.repo.pulls[made.number]
    assert (kept.title, kept.body, kept.head, kept.base) == ("Größer \U0001f600", "Why,\nand how", BRANCH, "main")
    assert (made.state, made.sha, made.branch, made.base, made.author) == ("open", sha, BRANCH, "main", "octocat")
    assert (made.title, made.draft, made.mergeable) == (kept.title, False, True)
    assert made.url.startswith(pretend.fake.url) and made.created_at and made.merged_at is None
    assert host.brief(HERE, made.number) == made and host.brief(HERE, 99) is None
    assert host.create_pull(HERE, BRANCH, "main", "Again", "").number == made.number, "a second one is never made"


def test_a_pull_that_the_host_does_not_accept_is_refused_in_its_words(pretend: HostSite, host: Host) -> None:
    host.commit(HERE, branch_change(create("checks/new.md")))
    nowhere = failure_of(lambda: host.create_pull(HERE, BRANCH, "dev", "T", ""))
    nothing = failure_of(lambda: host.create_pull(HERE, "main", "main", "T", ""))
    if pretend.name == "github":
        assert (nowhere.code, "base invalid" in nowhere.message) == ("INVALID_INPUT", True), nowhere.message
        assert "No commits between main and main" in nothing.message
    else:
        assert (nowhere.code, "couldn't be found" in nowhere.message) == ("NOT_FOUND", True)
        assert "There are no changes" in nothing.message
    assert nothing.code == "INVALID_INPUT" and not pretend.repo.pulls


def test_the_open_pull_of_a_branch_is_found_among_others(pretend: HostSite, host: Host) -> None:
    repo = pretend.repo
    assert host.open_pull(HERE, BRANCH, "main") is None
    repo.add_commit("dev", {"dev.md": b""})
    for more in ({"state": "closed"}, {"state": "closed", "merged": True}, {"base": "dev"}):
        repo.add_pull(title="Other", head=BRANCH, **more)
    repo.add_pull(title="Other", head=f"{BRANCH}-2")
    assert host.open_pull(HERE, BRANCH, "main") is None
    ours = repo.add_pull(title="Ours", head=BRANCH)
    for number in range(120):
        repo.add_pull(title="Newer", head=f"newer/{number}")
    pretend.fake.exchanges.clear()
    found = host.open_pull(HERE, BRANCH, "main")
    assert found is not None and (found.number, found.title) == (ours.number, "Ours")
    assert len(pretend.fake.exchanges) == (1 if pretend.name == "github" else 3), "Gitea cannot be asked by branch"


def test_the_newest_pull_of_a_branch_is_found_in_any_state_and_into_any_base(pretend: HostSite, host: Host) -> None:
    repo = pretend.repo
    repo.add_commit("dev", {"dev.md": b""})
    repo.add_pull(title="Other", head=f"{BRANCH}-2")
    assert host.newest_pull(HERE, BRANCH) is None
    for more in ({"state": "closed"}, {"base": "dev"}, {"state": "closed", "merged": True}, {}):
        made = repo.add_pull(title="Ours", head=BRANCH, **more)
        found = host.newest_pull(HERE, BRANCH)
        assert found is not None and (found.number, found.base) == (made.number, made.base)
    for number in range(60):
        repo.add_pull(title="Newer", head=f"newer/{number}")
    pretend.fake.exchanges.clear()
    found = host.newest_pull(HERE, BRANCH)
    assert found is not None and (found.number, found.state) == (made.number, "open")
    assert len(pretend.fake.exchanges) == (1 if pretend.name == "github" else 2), "Gitea cannot be asked by branch"


@pytest.mark.parametrize("count", [0, 1, 3, 4, 40])
def test_the_open_pulls_of_some_branches_take_few_requests(pretend: HostSite, host: Host, count: int) -> None:
    names = [f"{BRANCH}-{number}" for number in range(count)]
    for name in names[::2]:
        pretend.repo.add_pull(title="Ours", head=name)
        pretend.repo.add_pull(title="Done", head=name, state="closed")
    pretend.repo.add_commit("dev", {"dev.md": b""})
    pretend.repo.add_pull(title="Other", head=f"{BRANCH}-1", base="dev")
    found = host.open_pulls(HERE, names, "main")
    assert sorted(one.branch for one in found) == sorted(names[::2]) and {one.title for one in found} <= {"Ours"}
    assert len(pretend.fake.exchanges) == (count if count < 4 else 1)


@pytest.mark.parametrize("of_fork", [{"full_name": "eve/ops"}, None], ids=["a fork", "a fork that is gone"])
def test_a_fork_with_the_same_branch_is_not_ours(pretend: HostSite, host: Host, of_fork: Any) -> None:
    pretend.repo.add_pull(title="Theirs", head=BRANCH)
    shown = deepcopy(host.session.request("GET", "/repos/octo/ops/pulls").body)
    shown[0]["head"]["repo"] = of_fork and {**shown[0]["head"]["repo"], **of_fork}
    shown[0]["head"]["label"] = f"eve:{BRANCH}"
    pretend.fake.fail(Fault(path="/pulls$", status=200, headers=faults.JSON, body=json.dumps(shown)))
    assert host.open_pull(HERE, BRANCH, "main") is None
    pretend.fake.fail(Fault(path="/pulls$", status=200, headers=faults.JSON, body=json.dumps(shown)))
    assert host.newest_pull(HERE, BRANCH) is None


def test_labels_are_made_when_they_are_new(pretend: HostSite, host: Host) -> None:
    pretend.repo.add_label("automated", "00ff00")
    number = open_one(host)
    for _ in range(2):
        host.label(HERE, number, LABELS)
    assert sorted(pretend.repo.pulls[number].labels) == sorted(LABELS)
    assert pretend.repo.labels["automated"].color == "00ff00"
    assert sorted(one.name for one in pretend.repo.label_list) == sorted(LABELS)
    assert sorted(host.pull(HERE, number).pull.labels) == sorted(LABELS)


def test_of_two_labels_with_one_name_gitea_gets_the_older(gitea: HostSite) -> None:
    for _ in range(2):
        gitea.repo.add_label("automated")
    gitea.repo.label_list.reverse()
    with gitea.host() as host:
        host.label(HERE, open_one(host), ["automated"])
    assert [one.id for one in gitea.repo.pulls[1].labelled] == [min(one.id for one in gitea.repo.label_list)]


def test_a_label_beyond_the_first_page_is_not_made_again(pretend: HostSite, host: Host) -> None:
    for number in range(130):
        pretend.repo.add_label(f"l{number}")
    host.label(HERE, open_one(host), ["l129", "l64", "new"])
    assert len(pretend.repo.label_list) == 131 and sorted(pretend.repo.pulls[1].labels) == ["l129", "l64", "new"]


def test_pulls_are_listed_by_state_newest_first(pretend: HostSite, host: Host) -> None:
    for number, state in enumerate(("open", "closed", "merged") * 3):
        is_in = "open" if state == "open" else "closed"
        pretend.repo.add_pull(title="T", head=f"b{number}", state=is_in, merged=state == "merged", draft=number == 0)
    found = {state: list(host.pulls(HERE, state)) for state in ("open", "closed", "all")}
    assert [one.number for one in found["open"]] == [7, 4, 1] and {one.state for one in found["open"]} == {"open"}
    assert [(one.number, one.state) for one in found["closed"]][:3] == [(9, "merged"), (8, "closed"), (6, "merged")]
    assert [one.number for one in found["all"]] == list(range(9, 0, -1))
    assert [one.number for one in found["all"] if one.draft] == [1] and found["all"][0].merged_at


def test_a_thousand_pulls_are_listed(pretend: HostSite, host: Host) -> None:
    """So many in `make soak`: otherwise as many as take several pages."""
    many = size(300, 1000)
    for number in range(many):
        pretend.repo.add_pull(title=f"P{number}", head=f"b{number}", state="closed" if number % 2 else "open")
    assert [one.number for one in host.pulls(HERE, "all")] == list(range(many, 0, -1))
    assert len(pretend.fake.exchanges) == many // (100 if pretend.name == "github" else 50)
    del pretend.fake.exchanges[2:]  # two pages are held against the description


def test_a_pull_that_is_opened_while_a_list_is_read_shows_none_twice(pretend: HostSite, host: Host) -> None:
    for number in range(120):
        pretend.repo.add_pull(title=f"P{number}", head=f"b{number}")
    listed = host.pulls(HERE, "open")
    first = next(listed)
    pretend.repo.add_pull(title="Late", head="late")
    assert [one.number for one in (first, *listed)] == list(range(120, 0, -1))


def test_pulls_are_read_no_further_than_needed(pretend: HostSite, host: Host) -> None:
    for number in range(120):
        pretend.repo.add_pull(title=f"P{number}", head=f"b{number}")
    assert next(host.pulls(HERE, "open")).number == 120 and len(pretend.fake.exchanges) == 1


@pytest.mark.parametrize("count", [0, 1, 10, 20, 21])
def test_a_host_with_small_pages_is_read_to_its_end(place: Callable[..., HostSite], count: int) -> None:
    there = place("gitea", page=10)
    for number in range(count):
        there.repo.add_pull(title=f"P{number}", head=f"b{number}")
    with there.host() as host:
        assert [one.number for one in host.pulls(HERE, "all")] == list(range(count, 0, -1))


def test_a_pull_with_all_about_it_over_many_pages(pretend: HostSite, host: Host) -> None:
    repo, words = pretend.repo, {"github": "CHANGES_REQUESTED", "gitea": "REQUEST_CHANGES"}[pretend.name]
    repo.add_commit("main", {f"old/{number}.md": b"1\n" for number in range(120)})
    files = [create(f"new/{number}.md", b"1\n2\n") for number in range(120)]
    files += [update(f"old/{number}.md") for number in range(60)] + [
        delete(f"old/{number}.md") for number in range(60, 120)
    ]
    sha = host.commit(HERE, branch_change(*files))
    number = host.create_pull(HERE, BRANCH, "main", "All", "").number
    for count in range(130):
        repo.add_review(number, user=f"u{count}", state=words if count % 2 else "APPROVED")
        repo.add_status(sha, context=f"ci/{count}", state="success" if count % 2 else "failure", url="http://ci.test/1")
        if pretend.name == "github":
            repo.add_check(sha, name=f"run {count}", status="completed", conclusion="success")
    found = host.pull(HERE, number)
    assert found.pull == host.brief(HERE, number) and found.pull.mergeable
    assert [one.author for one in found.reviews] == [f"u{count}" for count in range(130)]
    assert {one.state for one in found.reviews} == {"approved", "changes_requested"}
    checks = [one for one in found.checks if one.name.startswith("ci/")]
    assert checks[:2] == [Check("ci/0", "failure", "http://ci.test/1"), Check("ci/1", "success", "http://ci.test/1")]
    assert len(checks) == 130 and len(found.checks) == (260 if pretend.name == "github" else 130)
    actions = [one.action for one in found.files]
    assert [actions.count(one) for one in ("create", "update", "delete")] == [120, 60, 60]
    assert found.files[0] == PullFile("new/0.md", "create", 2, 0)


def test_a_pull_with_nothing_about_it(pretend: HostSite, host: Host) -> None:
    number = open_one(host)
    pretend.repo.pulls[number].mergeable = False
    found = host.pull(HERE, number)
    assert (found.reviews, found.checks, len(found.files), found.pull.mergeable) == ([], [], 1, False)
    assert failure_of(lambda: host.pull(HERE, 99)).code == "NOT_FOUND"


def test_checks_that_the_token_may_not_see_are_said_to_be_hidden(pretend: HostSite, host: Host) -> None:
    number = open_one(host)
    pretend.fake.fail(Fault(path="/(status|check-runs)$", status=403))
    found = host.pull(HERE, number)
    assert found.checks_hidden and found.checks == [] and len(found.files) == 1
    assert not host.pull(HERE, number).checks_hidden


@pytest.mark.parametrize("nothing", ["", "null\n"])
def test_forgejo_says_nothing_of_a_commit_without_statuses(gitea: HostSite, nothing: str) -> None:
    gitea.fake.fail(Fault(path="/status$", status=200, body=nothing, times=9))
    with gitea.host() as host:
        assert host.pull(HERE, open_one(host)).checks == []


REVIEWS = {"APPROVED": "approved", "COMMENT": "commented", "REQUEST_REVIEW": "requested", "PENDING": "pending"}


def test_reviews_have_the_same_words_on_both(gitea: HostSite, github: HostSite) -> None:
    for state in REVIEWS:
        gitea.repo.add_pull(title="T", head=BRANCH)
        gitea.repo.add_review(len(gitea.repo.pulls), user="ada", state=state)
    gitea.repo.add_review(1, user="ada", state="REQUEST_CHANGES", dismissed=True)
    github.repo.add_pull(title="T", head=BRANCH)
    for state in ("COMMENTED", "DISMISSED", "CHANGES_REQUESTED"):
        github.repo.add_review(1, user="ada", state=state)
    github.repo.add_check(github.repo.branches[BRANCH], name="build", status="in_progress")
    with gitea.host() as host:
        found = [host.pull(HERE, number).reviews for number in range(1, 5)]
        assert [one[0].state for one in found] == list(REVIEWS.values()) and found[0][1].state == "dismissed"
    with github.host() as host:
        detail = host.pull(HERE, 1)
    assert [one.state for one in detail.reviews] == ["commented", "dismissed", "changes_requested"]
    assert isinstance(detail.reviews[0], PullReview) and [one.state for one in detail.checks] == ["pending"]


def test_the_limits_are_told_and_a_bad_token_is_noticed(pretend: HostSite, host: Host) -> None:
    found = host.limits()
    assert found is None if pretend.name == "gitea" else isinstance(found, Limits) and found.limit == 5000
    with pretend.host(token="wrong") as stranger:
        refused = failure_of(stranger.limits)
    assert refused.code == "FORBIDDEN" and "GITHUB_TOKEN" in refused.hint and "wrong" not in refused.message
    if pretend.name == "github":
        pretend.fake.fail(Fault(path="/rate_limit", status=404))
        assert host.limits() is None, "an Enterprise server may have none"


@pytest.mark.parametrize(
    ("web", "api"),
    [
        ("https://github.com", "https://api.github.com"),
        ("https://github.com/", "https://api.github.com"),
        ("https://www.github.com", "https://api.github.com"),
        ("https://GitHub.com", "https://api.github.com"),
        ("https://acme.ghe.com", "https://api.acme.ghe.com"),
        ("https://acme.ghe.com/", "https://api.acme.ghe.com"),
        ("https://git.acme.example", "https://git.acme.example/api/v3"),
        ("https://git.acme.example/", "https://git.acme.example/api/v3"),
        ("http://git.acme.example:8080/hub/", "http://git.acme.example:8080/hub/api/v3"),
        ("https://evilgithub.com", "https://evilgithub.com/api/v3"),
        ("https://github.com.evil.example", "https://github.com.evil.example/api/v3"),
        ("https://evilghe.com", "https://evilghe.com/api/v3"),
    ],
)
def test_where_the_api_of_a_github_is(web: str, api: str) -> None:
    assert github_module.api_of(web) == api


@pytest.mark.parametrize(
    "web", ["https://git.acme.example", "https://git.acme.example/gitea/", "http://localhost:3000"]
)
def test_where_the_api_of_a_gitea_is(web: str) -> None:
    assert gitea_module.api_of(web) == f"{web.rstrip('/')}/api/v1"
