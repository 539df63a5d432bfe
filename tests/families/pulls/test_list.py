"""What there is: lists of pulls, one pull with all that belongs to it, and the health of the hosts."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.fakehosts.faults import Fault, garbage, primary_limit, rate_limited
from tests.families.pulls.conftest import BRANCH, EVER, FILE, KINDS, TOKENS, Site, bridge, on_github, set_up
from tests.sizes import size

pytestmark = pytest.mark.slow

APPROVED = {"github": "APPROVED", "gitea": "APPROVED"}
REFUSED = {"github": "CHANGES_REQUESTED", "gitea": "REQUEST_CHANGES"}


def numbers(answer: dict[str, Any]) -> list[int]:
    return [one["number"] for one in answer["prs"]]


def fill(site: Site, count: int) -> None:
    """Pulls 1 to count; every third is closed, every fifth merged."""
    for n in range(1, count + 1):
        is_over = n % 3 == 0 or n % 5 == 0
        told = {"state": "closed" if is_over else "open", "merged": n % 5 == 0}
        site.repo.add_pull(title=f"Pull {n}", head=f"topic-{n}", body="x" * 300, labels=["claude-ops"], **told)  # type: ignore[arg-type]


def walk(site: Site, **given: Any) -> list[int]:
    """All numbers, page by page, as next_offset leads."""
    found, offset = [], 0
    while offset is not None:
        answer = site.ask("list_prs", offset=offset, **given)
        assert len(json.dumps(answer, ensure_ascii=False).encode()) <= 20_000
        found += numbers(answer)
        offset = answer["next_offset"]
    return found


def test_a_pull_is_listed_with_what_it_is(site: Site) -> None:
    site.create()
    (row,) = site.ask("list_prs")["prs"]
    made = site.repo.pulls[1]
    assert row == {
        "number": 1,
        "title": "Add jellyfin health",
        "state": "open",
        "url": site.rows()[0]["url"],
        "branch": BRANCH,
        "base_branch": "main",
        "author": "octocat",
        "draft": False,
        "labels": ["claude-ops", "automated"],
        "created_at": made.created,
        "updated_at": made.updated,
        "merged_at": None,
    }


def test_each_state_has_its_own(site: Site) -> None:
    fill(site, 16)
    merged = {5, 10, 15}
    closed = {3, 6, 9, 12}
    expected = {
        "open": set(range(1, 17)) - merged - closed,
        "closed": closed,
        "merged": merged,
        "all": set(range(1, 17)),
    }
    for state, which in expected.items():
        answer = site.ask("list_prs", state=state)
        assert numbers(answer) == sorted(which, reverse=True), state
        assert (answer["total"], answer["next_offset"]) == (len(which), None), state
        assert all(one["state"] == state for one in answer["prs"] if state != "all")
    assert all(one["merged_at"] for one in site.ask("list_prs", state="merged")["prs"])
    assert site.refusal("list_prs", state="draft").code == "INVALID_INPUT"


@on_github
def test_a_repository_without_pulls_and_one_that_is_not_there(site: Site) -> None:
    assert site.ask("list_prs") == {"prs": [], "provider": "github", "total": 0, "next_offset": None}
    refusal = site.refusal("list_prs", repo_name="nothing")
    assert (refusal.code, "octo/nothing" in refusal.message) == ("NOT_FOUND", True)
    assert site.refusal("get_pr_status", pr_number=9).code == "NOT_FOUND"
    assert site.refusal("get_pr_status", pr_number=0).code == "INVALID_INPUT"


def test_limit_and_offset_cut_a_list(site: Site) -> None:
    fill(site, 14)
    every = numbers(site.ask("list_prs", state="all"))
    assert numbers(site.ask("list_prs", state="all", limit=3, offset=4)) == every[4:7]
    last = site.ask("list_prs", state="all", limit=5, offset=10)
    assert (numbers(last), last["next_offset"], last["total"]) == (every[10:], None, 14)
    assert site.ask("list_prs", state="all", limit=5)["next_offset"] == 5
    assert site.ask("list_prs", state="all", limit=14)["next_offset"] is None
    beyond = site.ask("list_prs", offset=100)
    assert (beyond["prs"], beyond["total"], beyond["next_offset"]) == ([], 8, None)
    for wrong in ({"limit": 0}, {"limit": 501}, {"offset": -1}):
        assert site.refusal("list_prs", **wrong).code == "INVALID_INPUT"


def test_the_pages_lead_to_each_pull_once(site: Site) -> None:
    fill(site, 130)
    every = range(130, 0, -1)
    assert walk(site, state="all") == list(every)
    assert walk(site) == [n for n in every if n % 3 and n % 5]
    assert walk(site, state="merged", limit=9) == [n for n in every if n % 5 == 0]


def test_a_thousand_pulls_are_counted_and_the_answer_stays_small(site: Site) -> None:
    """So many in `make soak`: otherwise as many as take several pages of a host."""
    many = size(250, 1000)
    for n in range(1, many + 1):
        site.repo.add_pull(title=f"Pull {n}", head=f"topic-{n}")
    answer = site.ask("list_prs")
    assert (answer["total"], numbers(answer)[:2]) == (many, [many, many - 1])
    assert answer["next_offset"] == len(answer["prs"]) > 30
    assert len(json.dumps(answer, ensure_ascii=False).encode()) <= 20_000


@on_github
def test_a_stranger_cannot_flood_the_reader_of_a_list(site: Site) -> None:
    labels = [f"{'label' * 30}-{n}" for n in range(60)]
    pull = site.repo.add_pull(title="ж" * 5_000, head="topic-1", labels=labels, author="x" * 500)
    (row,) = site.ask("list_prs")["prs"]
    assert (len(row["title"]), len(row["labels"]), len(row["author"])) == (250, 20, 100)
    assert len(json.dumps(site.ask("get_pr_status", pr_number=pull.number))) < 20_000


# One pull


def test_a_pull_is_told_with_its_reviews_checks_and_files(site: Site) -> None:
    files = [
        FILE,
        {"path": "checks/disk.md", "content": "a\nb\n", "action": "update"},
        {"path": "checks/gone.md", "action": "delete"},
    ]
    made = site.create(files=files)
    site.repo.add_review(1, user="ada", state=REFUSED[site.kind])
    site.repo.add_review(1, user="bob", state=APPROVED[site.kind])
    site.repo.add_status(made["commit"], context="ci/build", state="success", url="https://ci.example/1")
    site.repo.add_status(made["commit"], context="ci/test", state="pending", url="https://ci.example/2")
    found = site.ask("get_pr_status", pr_number=1)
    assert (found["number"], found["state"], found["mergeable"], found["left_out"]) == (1, "open", True, None)
    assert [(one["author"], one["state"]) for one in found["reviews"]] == [
        ("bob", "approved"),
        ("ada", "changes_requested"),
    ]
    assert all(one["submitted_at"] for one in found["reviews"])
    checks = {one["name"]: (one["state"], one["url"]) for one in found["checks"]}
    assert checks == {"ci/build": ("success", "https://ci.example/1"), "ci/test": ("pending", "https://ci.example/2")}
    assert found["checks_state"] == "pending"
    assert {one["path"]: one["action"] for one in found["files"]} == {
        "checks/jellyfin.md": "create",
        "checks/disk.md": "update",
        "checks/gone.md": "delete",
    }
    assert {one["path"]: (one["additions"], one["deletions"]) for one in found["files"]}["checks/disk.md"] == (2, 1)


def test_the_checks_have_one_state_together(site: Site) -> None:
    commit = site.create()["commit"]
    for state in ("none", "success", "pending", "failure"):
        if state != "none":
            site.repo.add_status(commit, context=f"ci/{state}", state=state)
        assert site.ask("get_pr_status", pr_number=1)["checks_state"] == state


@on_github
def test_check_runs_count_too(site: Site) -> None:
    commit = site.create()["commit"]
    site.repo.add_check(commit, name="lint", status="completed", conclusion="success")
    assert site.ask("get_pr_status", pr_number=1)["checks_state"] == "success"
    site.repo.add_check(commit, name="build", status="in_progress")
    assert site.ask("get_pr_status", pr_number=1)["checks_state"] == "pending"
    site.repo.add_check(commit, name="test", status="completed", conclusion="timed_out")
    found = site.ask("get_pr_status", pr_number=1)
    assert (found["checks_state"], [one["name"] for one in found["checks"]]) == ("failure", ["lint", "build", "test"])


def test_merged_closed_and_unmergeable_are_told(site: Site) -> None:
    site.repo.add_pull(title="Merged", head="a", state="closed", merged=True)
    site.repo.add_pull(title="Closed", head="b", state="closed")
    site.repo.add_pull(title="Clash", head="c", mergeable=False)
    found = [site.ask("get_pr_status", pr_number=n) for n in (1, 2, 3)]
    assert [one["state"] for one in found] == ["merged", "closed", "open"]
    assert (found[2]["mergeable"], bool(found[0]["merged_at"]), found[1]["merged_at"]) == (False, True, None)


def test_what_does_not_fit_is_counted(site: Site) -> None:
    made = site.create(files=[{"path": f"checks/{n:03}.md", "content": "1"} for n in range(300)])
    for n in range(130):
        site.repo.add_review(1, user=f"person-{n}", state=APPROVED[site.kind])
        site.repo.add_status(made["commit"], context=f"ci/check-number-{n}", state="failure" if n == 129 else "success")
    found = site.ask("get_pr_status", pr_number=1)
    whole = {"files": 300, "reviews": 130, "checks": 130}
    assert {name: len(found[name]) + found["left_out"].get(name, 0) for name in whole} == whole
    assert set(found["left_out"]) == set(whole) and found["reviews"][0]["author"] == "person-129"
    assert found["checks_state"] == "failure", "also those that are not shown count"
    assert len(json.dumps(found, ensure_ascii=False).encode()) <= 20_000


# Health


def health(site: Site, **given: Any) -> dict[str, dict[str, Any]]:
    answer = site.ask("pulls_health", **given)
    assert [one["provider"] for one in answer["providers"]] == list(KINDS)
    return {one.pop("provider"): one for one in answer["providers"]}


def test_a_host_that_answers_is_well(site: Site) -> None:
    found = health(site)
    idle = {"url": None, "enabled": False, "works": None, "rate_limit": None}
    limit = found[site.kind].pop("rate_limit")
    assert found.pop(site.kind) == {"url": site.host.url, "enabled": True, "works": True}
    assert list(found.values()) == [idle]
    if site.kind == "github":
        assert limit["limit"] == 5000 >= limit["remaining"] and limit["resets_at"] > 1_700_000_000_000
    else:
        assert limit is None, "it limits nothing"
    told = site.ask("pulls_health")
    assert (told["tier"], told["dry_run"], told["may_create"]) == (3, False, "pulls with any number of files")
    assert told["problems"] == []
    assert "checks/*.md" in told["allow"] and "CLAUDE.md" in told["deny"]


BAD = {
    "a bad token": ([], "does not take the token"),
    "down": ([Fault(status=500, times=EVER)], "fails with 500"),
    "gone": ([Fault(kind="drop", times=EVER)], "does not answer"),
    "limited": ([rate_limited(3600, times=EVER)], "asks to wait 3600 s"),
    "used up": ([primary_limit(4_000_000_000, times=EVER)], "rate limit is used up"),
    "garbage": ([garbage(times=EVER)], "something else than JSON"),
}


@pytest.mark.parametrize(("faults", "words"), BAD.values(), ids=BAD)
def test_what_is_wrong_with_a_host_is_told(
    site: Site, make_hub: Callable[..., Hub], faults: list[Fault], words: str
) -> None:
    if not faults:
        site.hub = make_hub(**set_up(site.kind, site.host, token="wrong"))
    for fault in faults:
        site.host.fail(replace(fault))
    found = health(site)[site.kind]
    assert (found["enabled"], found["works"], found["rate_limit"]) == (True, False, None)
    (problem,) = site.ask("pulls_health")["problems"]
    assert words in problem and problem.lower().startswith(f"{site.kind}: ") and TOKENS[site.kind] not in problem


@on_github
def test_health_without_any_token(site: Site, make_hub: Callable[..., Hub]) -> None:
    site.hub = make_hub(pulls__github_url=site.host.url)
    assert [one["enabled"] for one in health(site).values()] == [False, False]
    mine = bridge(GITHUB_TOKEN=TOKENS["github"], CLAUDEOPS_TIER="2", CLAUDEOPS_DRY_RUN="1")
    assert (health(site, origin=mine)["github"]["enabled"], site.host.exchanges[-1].status) == (True, 200)
    told = site.ask("pulls_health", origin=mine)
    assert (told["tier"], told["dry_run"], told["may_create"]) == (2, True, "pulls with up to 3 files")
