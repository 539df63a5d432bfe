"""Opening a pull, all of it in one call, and what is refused before anything is sent."""

import base64
import json
from typing import Any

from crewhall.app import Origin
from tests.families.pulls.conftest import BRANCH, FILE, FIRST, PULL, Site, bridge, on_github, writes
from tests.families.work.workflows import all_rows, sql

BINARY = bytes(range(256))
MANY = [
    {"path": "checks/new.md", "content": "Grüße\nno newline at the end", "action": "create"},
    {"path": "checks/disk.md", "content": "new\n", "action": "update"},
    {"path": "checks/gone.md", "action": "delete"},
    {"path": "playbooks/logo.md", "content": base64.b64encode(BINARY).decode(), "encoding": "base64"},
]


def test_one_call_makes_a_branch_with_one_commit_a_pull_and_its_labels(site: Site) -> None:
    body = "A **body**\n\n- with lines, `code` and 日本語\n"
    made = site.create(files=MANY, body=body, title="  Add Jellyfin: health!  ")
    pull = site.repo.pulls[1]
    head, first = site.repo.log(BRANCH)
    assert made == {
        "number": 1,
        "url": f"{site.host.url}/octo/ops/{'pull' if site.kind == 'github' else 'pulls'}/1",
        "branch": BRANCH,
        "base_branch": "main",
        "commit": head.sha,
        "title": "Add Jellyfin: health!",
        "change_type": "check",
        "labels": ["claude-ops", "automated"],
        "provider": site.kind,
        "repository": "octo/ops",
        "dry_run": False,
        "note": None,
        "warnings": [],
        "body": None,
        "files": None,
        "file_count": 4,
        "left_out": None,
    }
    assert (pull.title, pull.body, pull.head, pull.base, pull.state) == (made["title"], body, BRANCH, "main", "open")
    assert sorted(pull.labels) == ["automated", "claude-ops"]
    assert (head.parents, head.message.splitlines()[0]) == ((first.sha,), made["title"])
    assert site.repo.files(BRANCH) == {
        "README.md": FIRST["README.md"],
        "checks/disk.md": b"new\n",
        "checks/new.md": "Grüße\nno newline at the end".encode(),
        "playbooks/logo.md": BINARY,
    }
    assert site.repo.branches["main"] == first.sha


def test_action_is_create_unless_it_is_given(site: Site) -> None:
    site.create()
    assert site.repo.files(BRANCH)["checks/jellyfin.md"] == b"# Jellyfin\n"
    refusal = site.refusal(title="Again", files=[{**FILE, "path": "checks/disk.md"}])
    assert (refusal.code, refusal.message.split(". ")[0]) == ("CONFLICT", "'checks/disk.md' is on main already")


def test_a_pull_can_lead_to_another_branch(site: Site) -> None:
    site.repo.add_commit("next", {"checks/only-here.md": b"1"})
    made = site.create(base_branch="next")
    assert (made["base_branch"], site.repo.pulls[1].base) == ("next", "next")
    assert "checks/only-here.md" in site.repo.files(BRANCH)


def test_a_renamed_repository_is_found_by_its_old_name(site: Site) -> None:
    site.host.rename("octo", "ops", "operations")
    assert site.create()["number"] == 1
    assert [one.head for one in site.host.repositories[("octo", "operations")].pulls.values()] == [BRANCH]
    assert site.rows()[0]["name"] == "operations"
    assert site.refusal().code == "CONFLICT"


def test_names_of_owner_and_repository_are_taken_in_any_case(site: Site) -> None:
    site.create()
    assert site.refusal(repo_owner="OCTO", repo_name="Ops").code == "CONFLICT"


@on_github
def test_labels_and_the_prefix_are_settings(site: Site, make_hub: Any) -> None:
    told = {"pulls__github_url": site.host.url, "pulls__github_token": "ghp_Hubs0wnT0ken"}
    site.hub = make_hub(**told, pulls__labels="one label", pulls__branch_prefix="bots/ops")
    made = site.create()
    assert (made["branch"], made["labels"]) == ("bots/ops/check/add-jellyfin-health", ["one label"])
    assert site.repo.pulls[1].labels == ["one label"]
    site.hub = make_hub(**told, pulls__labels="")
    assert site.create(title="No label", files=[{**FILE, "path": "checks/2.md"}])["labels"] == []
    assert site.repo.pulls[2].labels == []
    site.hub = make_hub(**told, pulls__branch_prefix="bad..prefix")
    assert "bad..prefix" in site.refusal(title="Third").message


# What is kept and told


def test_the_hall_tells_of_the_pull_and_keeps_nothing_of_its_files(site: Site) -> None:
    site.create(body="SECRET-BODY", files=[{**FILE, "content": "SECRET-CONTENT"}])
    (row,) = site.rows()
    assert (row["state"], row["number"], row["branch"]) == ("open", 1, BRANCH)
    assert (row["provider"], row["host"], row["owner"], row["name"]) == (site.kind, site.host.url, "octo", "ops")
    (event,) = [one for one in site.ask_events() if one["what"] == "pull.opened"]
    assert (event["subject"], event["actor"], event["tool"]) == (row["id"], "operator", "create_pr")
    assert event["data"] == {key: row[key] for key in ("provider", "owner", "name", "branch", "title", "number", "url")}
    assert "SECRET" not in json.dumps(all_rows(site.hub))


def test_progress_is_told(site: Site) -> None:
    told: list[tuple[float, str | None]] = []
    site.create(progress=lambda done, total, text: told.append((done, text)))
    assert [done for done, _ in told] == sorted(done for done, _ in told) and any(
        BRANCH in str(text) for _, text in told
    )


# In which order it is refused


def test_a_call_that_is_wrong_in_many_ways_meets_the_first_of_them(site: Site) -> None:
    site.repo.add_pull(title=PULL["title"], head=BRANCH, base="main", files={"checks/x.md": b"1"})
    site.fail(("POST", "/pulls$"), status=422, body={"message": "no more pulls"})
    wrong: dict[str, Any] = {
        "title": " ",
        "files": [{"path": "CLAUDE.md", "content": ""}, {"path": "checks/disk.md", "content": "1"}],
        "origin": bridge(CLAUDEOPS_TIER="1", CLAUDEOPS_DRY_RUN="1"),
        "clone_url": "https://elsewhere.example/octo/ops",
    }
    assert site.refusal(**wrong).message.startswith("argument 'title'")
    wrong |= {"title": PULL["title"]}
    assert site.refusal(**wrong).message == "path 'CLAUDE.md' is denied by 'CLAUDE.md'"
    wrong |= {"files": wrong["files"][1:]}
    assert site.refusal(**wrong).message == "tier 1 agents cannot create PRs; minimum tier is 2"
    wrong |= {"origin": bridge(CLAUDEOPS_TIER="2", CLAUDEOPS_DRY_RUN="1")}
    assert site.create(**wrong)["dry_run"] is True
    wrong |= {"origin": bridge(CLAUDEOPS_TIER="2")}
    assert site.refusal(**wrong).message.startswith("the repository is at elsewhere.example, as clone_url says")
    assert site.host.exchanges == [], "until here nothing was sent"
    del wrong["clone_url"]
    assert site.refusal(**wrong).message.startswith("pull 1 is open with the same title")
    wrong |= {"title": "Another title", "base_branch": "nowhere"}
    assert site.refusal(**wrong).message.startswith("octo/ops has no branch 'nowhere'")
    del wrong["base_branch"]
    assert site.refusal(**wrong).message.startswith("'checks/disk.md' is on main already")
    assert writes(site.host.exchanges) == [], "until here nothing was changed"
    wrong |= {"files": [FILE]}
    assert "no more pulls" in site.refusal(**wrong).message
    assert site.branches() == [BRANCH], "that of the first"


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "no title": ("INVALID_INPUT", {"title": ""}),
    "a title of two lines": ("INVALID_INPUT", {"title": "a\nb"}),
    "a title too long": ("INVALID_INPUT", {"title": "x" * 251}),
    "a body too long": ("INVALID_INPUT", {"body": "x" * 60_001}),
    "another type": ("INVALID_INPUT", {"change_type": "feature"}),
    "no files": ("INVALID_INPUT", {"files": []}),
    "an unknown field of a file": ("INVALID_INPUT", {"files": [{**FILE, "mode": "100755"}]}),
    "an unknown action": ("INVALID_INPUT", {"files": [{**FILE, "action": "rename"}]}),
    "no content": ("INVALID_INPUT", {"files": [{"path": "checks/a.md"}]}),
    "no base64": ("INVALID_INPUT", {"files": [{**FILE, "content": "*", "encoding": "base64"}]}),
    "a content with NUL": ("INVALID_INPUT", {"files": [{**FILE, "content": "a\0b"}]}),
    "the same file twice": ("INVALID_INPUT", {"files": [FILE, FILE]}),
    "a path that climbs": ("INVALID_INPUT", {"files": [{**FILE, "path": "checks/../CLAUDE.md"}]}),
    "an owner with a slash": ("INVALID_INPUT", {"repo_owner": "octo/ops"}),
    "a name with dots alone": ("INVALID_INPUT", {"repo_name": ".."}),
    "a base that is no branch": ("INVALID_INPUT", {"base_branch": "a..b"}),
    "a denied path": ("FORBIDDEN", {"files": [FILE, {**FILE, "path": "checks/CLAUDE.md"}]}),
    "a path that is not allowed": ("FORBIDDEN", {"files": [{**FILE, "path": "src/x.md"}]}),
    "a tier that is too low": ("FORBIDDEN", {"origin": bridge(CLAUDEOPS_TIER="1")}),
    "a tier as an argument": ("INVALID_INPUT", {"tier": 3}),
    "a dry run as an argument": ("INVALID_INPUT", {"dry_run": True}),
    "another repository's address": ("INVALID_INPUT", {"clone_url": "https://github.com/octo/other"}),
    "no address": ("INVALID_INPUT", {"clone_url": "/etc/passwd"}),
}


@on_github
def test_what_is_refused_sends_nothing_and_leaves_nothing(site: Site) -> None:
    before = all_rows(site.hub)
    codes = {what: site.refusal(**given).code for what, (_, given) in REFUSED.items()}
    assert codes == {what: code for what, (code, _) in REFUSED.items()}
    assert (site.host.exchanges, all_rows(site.hub)) == ([], before)
    rows = "SELECT tool, success, error FROM call_log ORDER BY length(id), id"
    site.hub.calls.close()  # it writes now what it would write in half a second
    assert sql(site.hub, rows) == [{"tool": "create_pr", "success": 0, "error": code} for code in codes.values()]


def test_a_refusal_by_the_host_names_what_it_said(site: Site) -> None:
    assert site.refusal(repo_name="nothing").code == "NOT_FOUND"
    site.host.forbid("octo", "ops")
    refusal = site.refusal()
    assert refusal.code == "FORBIDDEN" and "Resource not accessible" in refusal.message
    assert f"pulls.{site.kind}_token" in refusal.hint
    assert (site.branches(), site.rows()) == ([], [])


def test_an_unchanged_file_needs_no_pull(site: Site) -> None:
    refusal = site.refusal(files=[{"path": "checks/disk.md", "content": "old\n", "action": "update"}])
    assert (refusal.code, refusal.message.split(":")[0]) == ("INVALID_INPUT", "nothing would change")
    assert (site.branches(), site.rows()) == ([], [])


def test_three_hundred_files_are_one_commit(site: Site) -> None:
    files = [{"path": f"checks/{n}.md", "content": f"{n}\n"} for n in range(300)]
    made = site.create(files=files, origin=Origin())
    assert (made["file_count"], len(site.repo.files(BRANCH))) == (300, 303)
    assert len(site.repo.log(BRANCH)) == 2
