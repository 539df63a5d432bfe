"""The pretended hosts by themselves, over real sockets, held against the hosts' own descriptions."""

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from crewhall.fakehosts import faults
from crewhall.fakehosts.faults import Fault
from crewhall.fakehosts.gitea import FakeGitea
from crewhall.fakehosts.github import FakeGitHub
from crewhall.fakehosts.host import Exchange, FakeHost, Limit
from crewhall.fakehosts.state import FakeRepository
from tests.hosts.descriptions import HostName, need_descriptions, problems
from tests.outside.repos import git

FILES = {"README.md": b"Hello\n", "checks/a.md": b"a\n", "checks/deep/b.md": b"b\n", "run.sh": b"#!/bin/sh\n"}
SAYS_NOTHING = "0" * 40


class HostClient:
    """A client of a pretended host, and its repository octo/ops."""

    def __init__(self, host: FakeHost, name: HostName) -> None:
        self.host, self.name = host, name
        self.repo: FakeRepository = host.add_repository("octo", "ops", files=FILES, modes={"run.sh": "100755"})
        # Plain HTTP: to read every certificate of the machine would take longer than most tests.
        keys = {"authorization": "Bearer key"}
        self.client = httpx2.Client(base_url=host.api, headers=keys, timeout=10, verify=False)

    def ask(self, method: str, path: str, body: Any = None, *, expect: int = 200, **query: Any) -> Any:
        """The answer below the repository, or from the root when the path begins with two slashes."""
        where = path[1:] if path.startswith("//") else f"/repos/octo/ops{path}"
        answer = self.client.request(method, where, json=body, params=query or None)
        assert answer.status_code == expect, answer.text
        return answer.json() if answer.content else None

    def refusal(self, method: str, path: str, body: Any = None, *, expect: int, **query: Any) -> str:
        """The words of a refusal, GitHub's first detail included."""
        said = self.ask(method, path, body, expect=expect, **query)
        details = "".join(str(one.get("message") or one.get("field")) for one in said.get("errors", []))
        return f"{said['message']} {details}".strip()


@contextmanager
def talking(kind: type[FakeGitHub] | type[FakeGitea], limit: Limit | None = None) -> Iterator[HostClient]:
    with kind(tokens={"key": "octocat"}, limit=limit) as host:
        talk = HostClient(host, "github" if kind is FakeGitHub else "gitea")
        with talk.client:
            yield talk
        found = [one for exchange in host.exchanges for one in problems(talk.name, exchange)]
        assert not found, "\n".join(found)


@pytest.fixture
def github() -> Iterator[HostClient]:
    with talking(FakeGitHub) as talk:
        yield talk


@pytest.fixture
def gitea() -> Iterator[HostClient]:
    with talking(FakeGitea) as talk:
        yield talk


@pytest.fixture(params=[FakeGitHub, FakeGitea])
def either(request: pytest.FixtureRequest) -> Iterator[HostClient]:
    with talking(request.param) as talk:
        yield talk


def make_branch(talk: HostClient, name: str, files: dict[str, str]) -> str:
    """A branch from main with one commit, as each host makes it."""
    if talk.name == "gitea":
        rows = [{"operation": "create", "path": path, "content": b64(text.encode())} for path, text in files.items()]
        body = {"branch": "main", "new_branch": name, "message": "More", "files": rows}
        talk.ask("POST", "/contents", body, expect=201)
        return talk.repo.branches[name]
    tree = [{"path": path, "mode": "100644", "type": "blob", "content": text} for path, text in files.items()]
    main = talk.ask("GET", "/git/ref/heads/main")["object"]["sha"]
    made = talk.ask("POST", "/git/trees", {"base_tree": main, "tree": tree}, expect=201)["sha"]
    body = {"message": "More", "tree": made, "parents": [main]}
    sha: str = talk.ask("POST", "/git/commits", body, expect=201)["sha"]
    talk.ask("POST", "/git/refs", {"ref": f"refs/heads/{name}", "sha": sha}, expect=201)
    return sha


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def test_objects_have_the_names_that_git_gives_them(github: HostClient, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for path, content in {**FILES, "checks-more": b"sorted before checks/"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    (tmp_path / "run.sh").chmod(0o755)
    git(tmp_path, "add", "-A")
    sha = github.repo.add_commit("main", {"checks-more": b"sorted before checks/"}, "Fünf\n\nwords")
    commit = github.repo.commits[sha]
    assert git(tmp_path, "write-tree") == commit.tree
    raw = f"tree {commit.tree}\nparent {commit.parents[0]}\nauthor {commit.author.line}\n"
    (tmp_path / "raw").write_text(f"{raw}committer {commit.committer.line}\n\n{commit.message}", "utf-8")
    assert git(tmp_path, "hash-object", "-t", "commit", "--literally", "raw") == sha
    assert github.repo.mode("main", "run.sh") == "100755"
    assert [one.message for one in github.repo.log("main")] == ["Fünf\n\nwords", "First commit"]


def test_a_pull_from_branch_to_labels_can_be_read_back(either: HostClient) -> None:
    sha = make_branch(either, "claude-ops/ö/x", {"checks/new.md": "new\n", "checks/zwei Wörter.md": "2"})
    body = {"title": "A check", "head": "claude-ops/ö/x", "base": "main", "body": "Why"}
    pull = either.ask("POST", "/pulls", body, expect=201)
    assert (pull["number"], pull["state"], pull["head"]["sha"]) == (1, "open", sha)
    label = {"name": "sehr öde", "color": "00ff00", "description": "by a program"}
    either.ask("POST", "/labels", label, expect=201)
    assert [one["name"] for one in either.ask("POST", "/issues/1/labels", {"labels": ["sehr öde"]})] == ["sehr öde"]
    assert [one["name"] for one in either.ask("GET", "/issues/1/labels")] == ["sehr öde"]
    assert [one["name"] for one in either.ask("GET", "/labels")] == ["sehr öde"]
    kept = either.repo.pulls[1]
    assert (kept.title, kept.body, kept.head, kept.base, kept.author) == (
        "A check",
        "Why",
        body["head"],
        "main",
        "octocat",
    )
    assert kept.labels == ["sehr öde"] and either.repo.labels["sehr öde"].color == "00ff00"
    assert [one.path for one in kept.files] == ["checks/new.md", "checks/zwei Wörter.md"]
    assert either.repo.files("claude-ops/ö/x")["checks/new.md"] == b"new\n"
    assert either.repo.mode("claude-ops/ö/x", "run.sh") == "100755"
    assert either.repo.files("main") == FILES
    assert len(either.ask("GET", "/pulls/1/files")) == 2 and either.ask("GET", "/branches/claude-ops/ö/x")


def test_a_pull_tells_its_files_reviews_and_checks(either: HostClient) -> None:
    make_branch(either, "more", {"checks/new.md": "1\n2\n"})
    pull = either.repo.add_pull(title="More", head="more", labels=["automated"])
    either.repo.add_review(pull.number, user="ada", state="APPROVED", body="Good")
    either.repo.add_status(pull.head_sha, context="ci", state="pending")
    either.repo.add_status(pull.head_sha, context="ci", state="success", url="http://ci.example.com/1")
    shown = either.ask("GET", "/pulls/1")
    assert (shown["mergeable"], shown["merged"], shown["changed_files"]) == (True, False, 1)
    (file,) = either.ask("GET", "/pulls/1/files")
    assert (file["filename"], file["status"], file["additions"]) == ("checks/new.md", "added", 2)
    (review,) = either.ask("GET", "/pulls/1/reviews")
    assert (review["user"]["login"], review["state"]) == ("ada", "APPROVED")
    status = either.ask("GET", f"/commits/{pull.head_sha}/status")
    assert (status["state"], len(status["statuses"])) == ("success", 1)
    assert either.ask("PATCH", "/pulls/1", {"state": "closed"}, expect=200 if either.name == "github" else 201)
    assert either.ask("GET", "/pulls") == [] and len(either.ask("GET", "/pulls", state="closed")) == 1
    either.ask("POST", "/issues", {"title": "A bug", "body": "It fails"}, expect=201)
    assert either.ask("GET", "/issues/2")["title"] == "A bug"
    assert [one["number"] for one in either.ask("GET", "/issues", state="all")] == [2, 1]


def test_merged_and_conflicting_pulls_say_so(either: HostClient) -> None:
    either.repo.add_pull(title="Done", head="done", state="closed", merged=True)
    either.repo.add_pull(title="Stuck", head="stuck", mergeable=False, draft=True)
    done, stuck = either.ask("GET", "/pulls/1"), either.ask("GET", "/pulls/2")
    assert (done["state"], done["merged"], bool(done["merged_at"])) == ("closed", True, True)
    assert (stuck["mergeable"], stuck["draft"]) == (False, True)
    either.repo.add_pull(title="New", head="new", mergeable=None)
    assert either.ask("GET", "/pulls/3")["mergeable"] is (None if either.name == "github" else False)
    assert [one["number"] for one in either.ask("GET", "/pulls", state="all")] == [3, 2, 1]


def test_github_reads_and_writes_git(github: HostClient) -> None:
    ask, repo = github.ask, github.repo
    main = ask("GET", "/branches/main")["commit"]["sha"]
    blob = ask("POST", "/git/blobs", {"content": b64(b"\x00\xff"), "encoding": "base64"}, expect=201)["sha"]
    entries = [
        {"path": "bin/x", "mode": "100755", "type": "blob", "sha": blob},
        {"path": "checks/a.md", "mode": "100644", "type": "blob", "sha": None},
        {
            "path": "copy",
            "mode": "040000",
            "type": "tree",
            "sha": repo.objects.trees[repo.commits[main].tree]["checks"].sha,
        },
        {"path": "README.md/folder", "mode": "100644", "type": "blob", "content": "x"},
    ]
    tree = ask("POST", "/git/trees", {"base_tree": repo.commits[main].tree, "tree": entries}, expect=201)
    who = {"name": "Ada", "email": "ada@example.com", "date": "2026-02-03T04:05:06Z"}
    body = {"message": "Change", "tree": tree["sha"], "parents": [main], "author": who}
    sha = ask("POST", "/git/commits", body, expect=201)["sha"]
    assert ask("GET", f"/git/commits/{sha}")["author"] == who
    ask("POST", "/git/refs", {"ref": "refs/heads/a/b", "sha": main}, expect=201)
    assert ask("PATCH", "/git/refs/heads/a/b", {"sha": sha})["object"]["sha"] == sha
    assert repo.files("a/b").keys() == {
        "bin/x",
        "checks/deep/b.md",
        "copy/a.md",
        "copy/deep/b.md",
        "README.md/folder",
        "run.sh",
    }
    assert repo.files("a/b")["bin/x"] == b"\x00\xff" and repo.mode("a/b", "bin/x") == "100755"
    assert ask("GET", "/branches/a%2Fb")["name"] == ask("GET", "/branches/a/b")["name"] == "a/b"
    assert [one["ref"] for one in ask("GET", "/git/matching-refs/heads/a")] == ["refs/heads/a/b"]
    assert [one["path"] for one in ask("GET", f"/git/trees/{main}")["tree"]] == ["README.md", "checks", "run.sh"]
    whole = ask("GET", f"/git/trees/{tree['sha']}", recursive="1")
    assert len(whole["tree"]) == 12 and not whole["truncated"]
    assert ask("GET", "/compare/main...a/b")["status"] == "ahead"
    assert repo.add_pull(title="T", head="a/b").head_sha == sha
    ask("PATCH", "/git/refs/heads/a/b", {"sha": main, "force": True})
    assert ask("GET", "/pulls/1")["head"]["sha"] == main, "an open pull follows its branch"
    github.host.limit.tree = 3
    assert ask("GET", f"/git/trees/{sha}", recursive="1")["truncated"]


def test_github_says_no_in_its_own_words(github: HostClient) -> None:
    no, repo = github.refusal, github.repo
    main = repo.branches["main"]
    make_branch(github, "new", {"checks/new.md": "x"})
    pull = {"title": "T", "head": "new", "base": "main"}
    entry = {"path": "checks/a.md", "mode": "100644", "type": "blob"}
    github.ask("POST", "/pulls", pull, expect=201)
    github.ask("POST", "/labels", {"name": "Bug", "color": "ff0000"}, expect=201)
    said = [
        no("POST", "/git/refs", {"ref": "refs/heads/new", "sha": main}, expect=422),
        no("POST", "/git/refs", {"ref": "refs/heads/new/er", "sha": main}, expect=422),
        no("POST", "/git/refs", {"ref": "heads/x", "sha": main}, expect=422),
        no("POST", "/git/refs", {"ref": "refs/heads/x", "sha": SAYS_NOTHING}, expect=422),
        no("DELETE", "/git/refs/heads/gone", expect=422),
        no("PATCH", "/git/refs/heads/new", {"sha": main}, expect=422),
        no("POST", "/git/trees", {"base_tree": main, "tree": [{**entry, "path": "gone.md", "sha": None}]}, expect=422),
        no("POST", "/git/trees", {"base_tree": main, "tree": [entry]}, expect=422),
        no("POST", "/git/trees", {"base_tree": main, "tree": [{**entry, "path": "../x", "content": ""}]}, expect=422),
        no("POST", "/git/trees", {"base_tree": main, "tree": [{**entry, "sha": SAYS_NOTHING}]}, expect=422),
        no("POST", "/git/trees", {"base_tree": SAYS_NOTHING, "tree": [{**entry, "content": ""}]}, expect=422),
        no("POST", "/git/commits", {"message": "m", "tree": SAYS_NOTHING}, expect=422),
        no("POST", "/pulls", pull, expect=422),
        no("POST", "/pulls", {**pull, "base": "gone"}, expect=422),
        no("POST", "/pulls", {**pull, "head": "gone"}, expect=422),
        no("POST", "/pulls", {**pull, "head": "octo:main"}, expect=422),
        no("POST", "/labels", {"name": "bug"}, expect=422),
        no("GET", "/branches/gone", expect=404),
        no("GET", "/pulls/99", expect=404),
    ]
    assert said == [
        "Reference already exists",
        "Reference update failed",
        "heads/x is not a valid ref name.",
        "Object does not exist",
        "Reference does not exist",
        "Update is not a fast forward",
        "GitRPC::BadObjectState",
        "Must supply either tree.sha or tree.content. Request will be rejected if both are present.",
        "tree.path contains a malformed path component",
        f"tree.sha {SAYS_NOTHING} is not a valid blob",
        "base_tree is not a valid tree oid",
        "Tree SHA does not exist",
        "Validation Failed A pull request already exists for octo:new.",
        "Validation Failed base",
        "Validation Failed head",
        "Validation Failed No commits between main and main",
        "Validation Failed name",
        "Branch not found",
        "Not Found",
    ]
    github.ask("DELETE", "/git/refs/heads/new", expect=204)
    assert repo.pulls[1].state == "closed" and "new" not in repo.branches
    github.host.add_repository("octo", "empty")
    assert no("GET", "//repos/octo/empty/git/ref/heads/main", expect=409) == "Git Repository is empty."


def test_github_finds_pulls_by_head_and_shows_check_runs(github: HostClient) -> None:
    for name in ("one", "two"):
        github.repo.add_pull(title=name, head=name)
    assert [one["title"] for one in github.ask("GET", "/pulls", head="octo:one")] == ["one"]
    assert len(github.ask("GET", "/pulls", head="one")) == 2, "without its owner a head filters nothing"
    assert github.ask("GET", "/pulls", base="gone") == []
    assert [one["title"] for one in github.ask("GET", "/pulls", sort="updated", direction="asc")] == ["one", "two"]
    sha = github.repo.branches["one"]
    github.repo.add_check(sha, name="build", status="in_progress")
    github.repo.add_check(sha, name="build", status="completed", conclusion="failure")
    runs = github.ask("GET", f"/commits/{sha}/check-runs", per_page=100)
    assert [(one["name"], one["conclusion"]) for one in runs["check_runs"]] == [("build", "failure")]
    assert github.ask("GET", "/commits/main/status")["state"] == "pending"
    assert github.ask("GET", "//user")["login"] == "octocat"
    assert github.ask("GET", "//rate_limit")["resources"]["core"]["limit"] == 5000
    assert github.ask("GET", "//repos/OCTO/Ops")["default_branch"] == "main"


def test_github_sends_on_who_asks_under_an_old_name(github: HostClient) -> None:
    github.host.rename("octo", "ops", "ops2")
    moved = github.client.get("/repos/octo/ops/pulls?state=all")
    assert (moved.status_code, moved.headers["location"]) == (301, f"{github.host.api}/repositories/1/pulls?state=all")
    assert github.client.get(moved.headers["location"]).json() == []
    sent = github.client.post("/repos/octo/ops/labels", json={"name": "x"}, follow_redirects=True)
    assert [one.status_code for one in (*sent.history, sent)] == [307, 201]
    assert github.host.repositories[("octo", "ops2")].labels.keys() == {"x"}


def test_gitea_changes_files_in_one_commit(gitea: HostClient) -> None:
    ask, repo = gitea.ask, gitea.repo
    sha = {path: repo.entries("main")[path].sha for path in FILES}
    files = [
        {"operation": "create", "path": "checks/new.md", "content": b64(b"new")},
        {"operation": "update", "path": "run.sh", "content": b64(b"#!/bin/bash\n"), "sha": sha["run.sh"]},
        {"operation": "delete", "path": "checks/a.md", "sha": sha["checks/a.md"]},
        {"operation": "upload", "path": "checks/deep/b.md", "content": b64(b"B")},
    ]
    body = {"branch": "main", "new_branch": "a/b", "message": "All at once", "files": files}
    done = ask("POST", "/contents", body, expect=201)
    assert done["commit"]["parents"][0]["sha"] == repo.branches["main"]
    assert repo.files("a/b") == {
        "README.md": b"Hello\n",
        "checks/deep/b.md": b"B",
        "checks/new.md": b"new",
        "run.sh": b"#!/bin/bash\n",
    }
    assert repo.mode("a/b", "run.sh") == "100755" and len(repo.log("a/b")) == 2
    assert ask("GET", f"/git/commits/{repo.branches['a/b']}")["commit"]["message"] == "All at once"
    assert ask("GET", "/branches/a/b")["commit"]["id"] == ask("GET", "/branches/a%2Fb")["commit"]["id"]
    assert [one["name"] for one in ask("GET", "/branches", limit=1, page=2)] == ["main"]
    assert [one["ref"] for one in ask("GET", "/git/refs/heads/a")] == ["refs/heads/a/b"]
    assert len(ask("GET", "/git/refs")) == 2
    gitea.host.limit.tree = 3
    first, last = (ask("GET", "/git/trees/main", recursive="true", page=page) for page in (1, 2))
    assert [one["path"] for one in first["tree"] + last["tree"]] == [
        "README.md",
        "checks",
        "checks/a.md",
        "checks/deep",
        "checks/deep/b.md",
        "run.sh",
    ]
    assert (first["truncated"], last["truncated"], first["total_count"]) == (True, False, 6)
    ask("POST", "/branches", {"new_branch_name": "other", "old_ref_name": "a/b"}, expect=201)
    ask("DELETE", "/branches/other", expect=204)
    assert repo.branches.keys() == {"main", "a/b"}


def test_gitea_says_no_in_its_own_words(gitea: HostClient) -> None:
    no = gitea.refusal
    make_branch(gitea, "new", {"checks/new.md": "x"})
    pull = {"title": "T", "head": "new", "base": "main"}
    gitea.ask("POST", "/pulls", pull, expect=201)

    def change(expect: int, more: dict[str, Any] | None = None, **file: str) -> str:
        one = {"operation": "create", "path": "checks/a.md", "content": "", **file}
        return no(
            "POST", "/contents", {"branch": "main", "message": "m", "files": [one], **(more or {})}, expect=expect
        )

    said = [
        change(422),
        change(422, operation="update"),
        change(422, operation="delete", sha=SAYS_NOTHING),
        change(404, operation="delete", path="gone.md", sha=SAYS_NOTHING),
        change(422, path="x", content="%%%%"),
        change(422, path="a/../x"),
        change(422, {"new_branch": "new"}, path="x"),
        change(404, {"branch": "gone"}, path="x"),
        no("POST", "/pulls", pull, expect=409),
        no("POST", "/pulls", {**pull, "base": "gone"}, expect=404),
        no("POST", "/pulls", {**pull, "head": "main"}, expect=422),
        no("POST", "/branches", {"new_branch_name": "new"}, expect=409),
        no("POST", "/branches", {"new_branch_name": "x", "old_branch_name": "gone"}, expect=404),
        no("DELETE", "/branches/gone", expect=404),
        no("DELETE", "/branches/main", expect=403),
        no("POST", "/labels", {"name": "x", "color": "red"}, expect=422),
        no("GET", "/git/refs/heads/gone", expect=404),
        no("GET", "/git/trees/gone", expect=404),
        no("GET", "/pulls/main/gone", expect=404),
    ]
    starts = ["repository file already exists", "a SHA or commit ID must", "sha does not match"]
    starts += ["repository file does not exist", "illegal base64", "path contains a malformed", "branch already exists"]
    starts += [
        "branch does not exist",
        "pull request already exists",
        "The target",
        "Invalid PullRequest",
        "The branch",
    ]
    starts += ["The old branch", "branch does not exist", "can not delete default", "invalid color"]
    starts += ["The target", "object does not exist", "The target"]
    assert [one.startswith(start) for one, start in zip(said, starts, strict=True)] == [True] * len(starts), said
    gitea.ask("DELETE", "/branches/new", expect=204)
    assert gitea.repo.pulls[1].state == "closed"


def test_gitea_finds_a_pull_between_branches_and_labels_by_id(gitea: HostClient) -> None:
    gitea.repo.add_pull(title="Old", head="a/b", state="closed")
    first, second = (gitea.repo.add_label("twice", "111111") for _ in range(2))
    make_branch(gitea, "a/b", {"x.md": ""})
    body = {"title": "New", "head": "a/b", "base": "main", "labels": [second.id]}
    assert gitea.ask("POST", "/pulls", body, expect=201)["labels"][0]["id"] == second.id
    assert gitea.ask("GET", "/pulls/main/a/b")["title"] == "Old", "Gitea shows the oldest, closed or not"
    named = gitea.ask("POST", "/issues/2/labels", {"labels": [first.id, 999]})
    assert [one["id"] for one in named] == [second.id, first.id]
    assert [one["name"] for one in gitea.ask("GET", "/labels")] == ["twice", "twice"]
    sha = gitea.repo.branches["a/b"]
    assert "state" not in gitea.ask("GET", f"/commits/{sha}/status"), "no status, no state"
    gitea.repo.add_status(sha, context="ci", state="warning")
    assert gitea.ask("GET", f"/commits/{sha}/statuses")[0]["status"] == "warning"
    assert gitea.ask("GET", "/pulls", base_branch="main", state="all", sort="oldest")[0]["title"] == "Old"
    assert gitea.client.get("/version", headers={"authorization": ""}).status_code == 200
    assert gitea.ask("GET", "//settings/api")["max_response_items"] == 50
    assert gitea.ask("GET", "//user")["login"] == "octocat"
    assert gitea.ask("GET", "")["permissions"]["push"] is True


def test_a_thousand_pulls_come_page_by_page(either: HostClient) -> None:
    for number in range(1000):
        either.repo.add_pull(title=f"Pull {number}", head=f"b{number}", state="closed" if number % 2 else "open")
    size, most = ("per_page", 100) if either.name == "github" else ("limit", 50)
    either.host.exchanges.clear()
    url, found = f"{either.host.api}/repos/octo/ops/pulls?state=all&{size}=1000", list[int]()
    while url:
        answer = either.client.get(url)
        found += [one["number"] for one in answer.json()]
        url = answer.links.get("next", {}).get("url", "")
    assert found == list(range(1000, 0, -1)) and len(either.host.exchanges) == 1000 // most
    if either.name == "gitea":
        assert answer.headers["x-total-count"] == "1000"
    del either.host.exchanges[1:]  # one page is held against the description, not all


def test_of_two_who_create_the_same_branch_one_wins(either: HostClient) -> None:
    sha, gate = either.repo.branches["main"], threading.Barrier(2)
    asked = {
        "github": ("/git/refs", {"ref": "refs/heads/x", "sha": sha}),
        "gitea": ("/branches", {"new_branch_name": "x"}),
    }
    path, body = asked[either.name]

    def create(_: int) -> int:
        gate.wait(5)
        return either.client.post(f"/repos/octo/ops{path}", json=body).status_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(create, range(2))) == [201, 422 if either.name == "github" else 409]


def test_strangers_and_the_unknown_are_refused(either: HostClient) -> None:
    for token, words in (
        ("", ("Requires authentication", "token is required")),
        ("no", ("Bad credentials", "invalid")),
    ):
        answer = either.client.get("/repos/octo/ops", headers={"authorization": f"token {token}" if token else ""})
        assert answer.status_code == 401 and answer.json()["message"].startswith(words)
    assert either.client.get("/repos/octo/ops", headers={"authorization": "token key"}).status_code == 200
    either.refusal("GET", "//repos/octo/gone", expect=404)
    assert httpx2.get(f"{either.host.url}/repos/octo/ops", headers=either.client.headers).status_code == 404
    del either.host.exchanges[-1]  # which is no path of the API
    either.host.forbid("octo", "ops")
    either.refusal("POST", "/labels", {"name": "x", "color": "111111"}, expect=403)
    assert either.ask("GET", "/labels") == [] and either.ask("GET", "")["permissions"]["push"] is False


WRONG = {
    "429": (faults.rate_limited(3), 429, {"retry-after": "3"}),
    "primary": (faults.primary_limit(reset=12), 403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12"}),
    "secondary": (faults.secondary_limit(1), 403, {"retry-after": "1"}),
    "500": (Fault(), 500, {}),
    "502": (faults.bad_gateway(), 502, {"content-type": "text/html"}),
    "garbage": (faults.garbage(), 200, {"content-type": "application/json"}),
    "fail_after": (Fault(kind="fail_after"), 500, {}),
    "slow": (Fault(kind="slow", seconds=0.01), 201, {}),
}


@pytest.mark.parametrize("name", WRONG)
def test_faults_come_when_asked_for(either: HostClient, name: str) -> None:
    fault, status, headers = WRONG[name]
    either.host.fail(replace(fault, method="POST", path=r"/labels$", after=1))
    either.ask("GET", "/labels")
    codes, body = [], {"name": "x", "color": "111111"}
    for number in range(3):
        answer = either.client.post("/repos/octo/ops/labels", json={**body, "name": f"x{number}"})
        codes.append(answer.status_code)
        if number == 1:
            assert headers.items() <= dict(answer.headers).items()
    assert codes == [201, status, 201]
    is_done = name in ("fail_after", "slow")
    assert either.repo.labels.keys() == ({"x0", "x1", "x2"} if is_done else {"x0", "x2"})
    assert [one.fault for one in either.host.exchanges] == ["", "", fault.kind, ""]


@pytest.mark.parametrize(("kind", "names"), [("drop", set()), ("drop_after", {"x"})])
def test_a_dropped_connection_says_nothing(either: HostClient, kind: faults.Kind, names: set[str]) -> None:
    either.host.fail(Fault(kind=kind, times=1))
    with pytest.raises(httpx2.RemoteProtocolError):
        either.client.post("/repos/octo/ops/labels", json={"name": "x", "color": "111111"})
    assert either.repo.labels.keys() == names and either.host.exchanges[-1].status == 0
    either.ask("GET", "/labels")


def test_a_host_ends_at_once_however_slow_it_is_and_whoever_is_connected() -> None:
    host = FakeGitHub(tokens={"key": "octocat"}).__enter__()
    talk, failed = HostClient(host, "github"), list[Exception]()
    talk.ask("GET", "/labels")
    host.fail(Fault(kind="slow", seconds=600, method="POST"))

    def wait() -> None:
        try:
            httpx2.post(
                f"{host.api}/repos/octo/ops/labels", headers=talk.client.headers, json={"name": "x"}, timeout=60
            )
        except httpx2.RemoteProtocolError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    ending = threading.Thread(target=host.__exit__, daemon=True)
    waiting.start()
    assert host.wait_for(2)
    ending.start()
    for thread in (ending, waiting):
        thread.join(10)
        assert not thread.is_alive()
    assert failed and not [one for one in threading.enumerate() if "pretended" in one.name]
    talk.client.close()


PULL = {"title": "T", "head": "a", "base": "main"}
OTHERS: dict[str, tuple[HostName, dict[str, Any], str]] = {
    "an unknown path": ("github", {"path": "/repos/o/r/nothing"}, "no path"),
    "a method that is not there": ("github", {"method": "PUT"}, "no path"),
    "a wrong type in the path": ("github", {"method": "GET", "path": "/repos/o/r/pulls/x", "body": None}, "no integer"),
    "an unknown parameter": ("github", {"query": {"colour": "red"}}, "unknown query parameter colour"),
    "a wrong number": ("gitea", {"method": "GET", "body": None, "query": {"limit": "many"}}, "limit is no integer"),
    "a word not in the list": ("gitea", {"method": "GET", "body": None, "query": {"state": "merged"}}, "state"),
    "no body": ("github", {"body": None}, "no body"),
    "a body too many": ("github", {"method": "GET"}, "a body where none belongs"),
    "a wrong type": ("github", {"body": {**PULL, "draft": "yes"}}, "body draft"),
    "a property missing": ("github", {"body": {"title": "T", "head": "a"}}, "base"),
    "an unknown property": ("github", {"body": {**PULL, "colour": "red"}}, "unknown property colour"),
    "one unknown to Gitea": ("gitea", {"body": {**PULL, "draft": True}}, "unknown property draft"),
    "one deep inside": (
        "gitea",
        {"path": "/repos/o/r/contents", "body": {"files": [{"operation": "create", "path": "a", "mode": "1"}]}},
        "body/files/0: unknown property mode",
    ),
    "an undocumented status": ("github", {"status": 418}, "status 418 is not documented"),
    "an answer cut short": ("github", {"status": 201, "answer": {"number": 1}}, "required property"),
    "an error without words": ("gitea", {"status": 404, "answer": {}}, "message"),
    "an error of another kind": ("github", {"answer": {"message": "Validation Failed"}}, "documentation_url"),
}


@need_descriptions
def test_the_descriptions_find_what_is_wrong() -> None:
    told = {"message": "Validation Failed", "documentation_url": "http://example.com"}
    good = Exchange("POST", "/repos/o/r/pulls", {}, {}, PULL, 422, told, {})
    for host, changed, words in OTHERS.values():
        assert problems(host, good) == []
        assert words in "\n".join(problems(host, replace(good, **changed)))
