"""Real git against the pretended hosts: what is pushed is what the API shows, and what the API makes can be fetched."""

import base64
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crewhall.fakehosts import smart_http
from crewhall.fakehosts.faults import Fault
from tests.hosts.conftest import BRANCH, FILES, HERE, TOKEN, HostSite
from tests.outside.descendants import marked_environment
from tests.outside.repos import WAYS, WHO, commit, git

PROTECTED = {
    "github": "GH006: Protected branch update failed for refs/heads/main.",
    "gitea": "Gitea: Not allowed to push to protected branch main",
}
DENIED = {"github": "Permission to octo/ops.git denied to octocat.", "gitea": "User permission denied"}


def address(site: HostSite, key: str = f"any:{TOKEN}", name: str = "octo/ops") -> str:
    """The repository's address with a user and a password in it."""
    return f"{site.fake.url.replace('//', f'//{key}@' if key else '//')}/{name}.git"


def run_git(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Git that may fail, and never asks."""
    env = {**os.environ, **WAYS, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "LC_ALL": "C"}
    return subprocess.run(["git", *WHO, *words], cwd=where, env=env, capture_output=True, text=True, check=False)


def refused_push(where: Path, *words: str) -> str:
    ended = run_git(where, "push", *words)
    assert ended.returncode != 0
    return ended.stderr


@pytest.fixture
def clone(pretend: HostSite, tmp_path: Path) -> Path:
    """A clone of octo/ops."""
    git(tmp_path, "clone", "-q", address(pretend), "ops")
    return tmp_path / "ops"


def commit_file(clone: Path, path: str, text: str, message: str = "Change") -> str:
    (clone / path).parent.mkdir(parents=True, exist_ok=True)
    (clone / path).write_text(text)
    return commit(clone, message)


def test_a_clone_has_what_the_api_made_and_the_api_shows_what_is_pushed(pretend: HostSite, clone: Path) -> None:
    assert (clone / "checks/deep/b.md").read_bytes() == b"b\n" and os.readlink(clone / "link") == "README.md"
    assert git(clone, "fsck", "--strict", "--no-dangling") == ""
    git(clone, "checkout", "-qb", "topic/ö")
    sha = commit_file(clone, "checks/zwei Wörter.md", "1\n2\n", "Größer\n\nBecause.")
    git(clone, "push", "-q", "origin", "topic/ö")
    assert pretend.repo.branches["topic/ö"] == sha
    assert pretend.repo.files("topic/ö")["checks/zwei Wörter.md"] == b"1\n2\n"
    assert pretend.repo.commits[sha].message == "Größer\n\nBecause." and pretend.repo.commits[sha].author.name == "Ada"
    with pretend.host() as host:
        assert host.head(HERE, "topic/ö") is not None
        number = host.create_pull(HERE, "topic/ö", "main", "T", "").number
        again = commit_file(clone, "checks/a.md", "b\n")
        git(clone, "push", "-q", "origin", "topic/ö")
        found = host.pull(HERE, number)
    assert found.pull.sha == again and found.pull.mergeable
    counts = [(one.path, one.action, one.additions, one.deletions) for one in found.files]
    assert counts == [("checks/a.md", "update", 1, 1), ("checks/zwei Wörter.md", "create", 2, 0)]
    made = pretend.repo.add_commit("topic/ö", {"more.md": b"more\n"})
    git(clone, "pull", "-q", "--ff-only", "origin", "topic/ö")
    assert git(clone, "rev-parse", "HEAD") == made and (clone / "more.md").read_text() == "more\n"


def test_a_pull_has_only_its_own_files_after_it_took_in_the_base(pretend: HostSite, clone: Path) -> None:
    git(clone, "checkout", "-qb", BRANCH)
    commit_file(clone, "own.md", "own\n")
    git(clone, "push", "-q", "origin", BRANCH)
    pull = pretend.repo.add_pull(title="T", head=BRANCH)
    pretend.repo.add_commit("main", {"other.md": b"other\n"})
    git(clone, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
    git(clone, "push", "-q", "origin", BRANCH)
    assert [one.path for one in pull.files] == ["own.md"] and pull.base_sha == pretend.repo.branches["main"]
    assert len(pretend.repo.ahead(pull.base_sha, pull.head_sha)) == 2


def merge(pretend: HostSite, number: int, how: str = "merge", head: str | None = None) -> int:
    """Merge as a person does on the page; the status of the host's response."""
    method, words = {"github": ("PUT", ("merge_method", "sha")), "gitea": ("POST", ("do", "head_commit_id"))}[
        pretend.name
    ]
    body = {words[0]: how} | ({words[1]: head} if head else {})
    with pretend.host() as host:
        answer = host.session.request(method, f"{HERE.path}/pulls/{number}/merge", body=body, expect=(405, 409))
    return answer.status


@pytest.mark.parametrize("how", ["merge", "squash"])
def test_a_merge_is_a_commit_that_git_fetches(pretend: HostSite, clone: Path, how: str) -> None:
    git(clone, "checkout", "-qb", BRANCH)
    head = commit_file(clone, "own.md", "own\n")
    git(clone, "push", "-q", "origin", BRANCH)
    pull = pretend.repo.add_pull(title="Mine", head=BRANCH)
    base = pretend.repo.add_commit("main", {"checks/other.md": b"other\n"})
    assert merge(pretend, pull.number, how) == 200
    git(clone, "fetch", "-q", "origin")
    merged = git(clone, "rev-parse", "origin/main")
    assert merged == pull.merge_sha == pretend.repo.branches["main"] and pull.merged
    parents = [base] if how == "squash" else [base, head]
    assert git(clone, "rev-list", "--parents", "-1", merged).split()[1:] == parents
    assert pretend.repo.files("main").keys() == FILES.keys() | {"own.md", "checks/other.md"}
    names = git(clone, "diff", "--name-only", "HEAD", "origin/main").split()
    assert names == ["checks/other.md"] and "Mine" in git(clone, "log", "-1", "--format=%B", merged)
    assert git(clone, "fsck", "--strict", "--no-dangling") == ""
    with pretend.host() as host:
        found = host.brief(HERE, pull.number)
    assert found is not None and found.state == "merged" and found.merged_at
    assert merge(pretend, pull.number) == 405, "it is merged once"


def test_a_conflict_is_found_by_git_and_goes_with_a_push(pretend: HostSite, clone: Path) -> None:
    git(clone, "checkout", "-qb", BRANCH)
    head = commit_file(clone, "README.md", "Mine\n")
    git(clone, "push", "-q", "origin", BRANCH)
    pull = pretend.repo.add_pull(title="T", head=BRANCH)
    pretend.repo.add_commit("main", {"README.md": b"Theirs\n"})
    main = pretend.repo.branches["main"]
    with pretend.host() as host:
        assert host.pull(HERE, pull.number).pull.mergeable is False
        assert merge(pretend, pull.number) == 405 and pretend.repo.branches["main"] == main
        git(clone, "fetch", "-q", "origin", "main")
        git(clone, "reset", "-q", "--hard", "FETCH_HEAD")
        commit_file(clone, "README.md", "Both\n")
        git(clone, "push", "-qf", "origin", BRANCH)
        assert host.pull(HERE, pull.number).pull.mergeable
        assert merge(pretend, pull.number, head=head) == 409, "the person had seen another commit"
        host.session.request("PATCH", f"{HERE.path}/pulls/{pull.number}", body={"state": "closed"}, again=True)
        found = host.brief(HERE, pull.number)
    assert found is not None and found.state == "closed" and merge(pretend, pull.number) == 405


def test_a_branch_deleted_by_git_closes_its_pull_and_makes_room(pretend: HostSite, clone: Path) -> None:
    git(clone, "push", "-q", "origin", "HEAD:refs/heads/a")
    commit_file(clone, "x.md", "x\n")
    git(clone, "push", "-q", "origin", "HEAD:refs/heads/a")
    pull = pretend.repo.add_pull(title="T", head="a")
    git(clone, "push", "-q", "origin", ":refs/heads/a")
    assert pull.state == "closed" and pretend.repo.branches.keys() == {"main"}
    git(clone, "push", "-q", "origin", "HEAD:refs/heads/a/b")
    pretend.repo.drop_branch("a/b")
    pretend.repo.set_branch("a", pretend.repo.branches["main"])
    assert [line.split("\t")[1] for line in git(clone, "ls-remote", "--heads", "origin").splitlines()] == [
        "refs/heads/a",
        "refs/heads/main",
    ]


def test_a_token_decides_who_may_fetch_and_push(pretend: HostSite, clone: Path, tmp_path: Path) -> None:
    commit_file(clone, "x.md", "x\n")
    for key in (f"any:{TOKEN}", TOKEN, f"{TOKEN}:x-oauth-basic"):
        git(clone, "push", "-q", address(pretend, key), f"HEAD:refs/heads/b{len(pretend.repo.branches)}")
    git(tmp_path, "clone", "-q", address(pretend, ""), "read")
    assert "could not read Username" in refused_push(clone, address(pretend, ""), "HEAD:refs/heads/no")
    assert "Authentication failed" in refused_push(clone, address(pretend, "any:wrong"), "HEAD:refs/heads/no")
    wrong = "http.extraHeader=Authorization: Basic " + base64.b64encode(b"any:wrong").decode()
    assert run_git(clone, "-c", wrong, "ls-remote", address(pretend, "")).returncode != 0
    refused = refused_push(clone, address(pretend, name="octo/gone"), "HEAD")
    assert "Repository not found." in refused and "not found" in refused.splitlines()[-1]
    pretend.fake.forbid("octo", "ops")
    refused = refused_push(clone, address(pretend), "HEAD:refs/heads/no")
    assert f"remote: {DENIED[pretend.name]}" in refused and "403" in refused
    git(clone, "fetch", "-q", "origin")
    assert len(pretend.repo.branches) == 4 and not pretend.fake.exchanges
    unknown = next(one for one in pretend.fake.git_exchanges if one.status == 401)
    assert unknown.answer_headers["www-authenticate"] == f'Basic realm="{pretend.title}"'


def test_a_protected_branch_and_a_hook_refuse_a_push(pretend: HostSite, clone: Path) -> None:
    main = pretend.repo.branches["main"]
    commit_file(clone, "x.md", "x\n")
    pretend.repo.protected.add("main")
    refused = refused_push(clone, "origin", "HEAD:refs/heads/main", "HEAD:refs/heads/new")
    assert PROTECTED[pretend.name] in refused and "pre-receive hook declined" in refused
    assert pretend.repo.branches == {"main": main}
    git(clone, "push", "-q", "origin", "HEAD:refs/heads/new")
    with pretend.host() as host:
        shown = host.session.request("GET", f"{HERE.path}/branches/main").body
    assert shown["protected"] is True
    pretend.repo.hook = "echo 'Too large: x.md' >&2\nexit 1\n"
    refused = refused_push(clone, "origin", "HEAD:refs/heads/more")
    assert "remote: Too large: x.md" in refused and "hook declined" in refused
    assert "more" not in pretend.repo.branches


def test_large_packs_and_packed_bodies_arrive(pretend: HostSite, clone: Path) -> None:
    for number in range(40):
        git(clone, "commit", "-qm", f"Number {number}", "--allow-empty")
    pretend.repo.add_commit("main", {"new.md": b"new\n"})
    git(clone, "fetch", "-q", "origin", "main")
    assert git(clone, "rev-parse", "FETCH_HEAD") == pretend.repo.branches["main"]
    (clone / "large").write_bytes(os.urandom(2_000_000))
    sha = commit(clone, "Large")
    git(clone, "-c", "http.postBuffer=65536", "push", "-q", "origin", f"HEAD:refs/heads/{BRANCH}")
    assert pretend.repo.files(BRANCH)["large"] == (clone / "large").read_bytes()
    assert len(pretend.repo.log(BRANCH)) == 42 and pretend.repo.branches[BRANCH] == sha
    sent = [one.headers for one in pretend.fake.git_exchanges]
    assert any(one.get("transfer-encoding") == "chunked" for one in sent), "git sends a large pack in chunks"
    assert any(one.get("content-encoding") == "gzip" for one in sent), "and packs a long list of what it has"


def test_of_two_pushes_to_one_branch_one_wins(pretend: HostSite, clone: Path) -> None:
    first = commit_file(clone, "x.md", "1\n")
    git(clone, "checkout", "-q", "HEAD~1")
    second = commit_file(clone, "x.md", "2\n")
    holds = [Fault(kind="hold", path="git-receive-pack", method="POST") for _ in range(2)]
    for hold in holds:
        pretend.fake.fail(hold)
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(run_git, clone, "push", "origin", f"{sha}:refs/heads/x") for sha in (first, second)]
        assert all(hold.gate.reached.wait(5) for hold in holds)
        for hold in holds:
            hold.gate.opened.set()
        codes = sorted(one.result(20).returncode for one in ends)
    assert codes == [0, 1] and pretend.repo.branches["x"] in (first, second)


def test_a_renamed_repository_is_found_under_its_old_name(pretend: HostSite, clone: Path) -> None:
    pretend.fake.rename("octo", "ops", "new")
    sha = commit_file(clone, "x.md", "x\n")
    git(clone, "push", "-q", "origin", f"HEAD:refs/heads/{BRANCH}")
    assert pretend.repo.branches[BRANCH] == sha and 301 in [one.status for one in pretend.fake.git_exchanges]


def test_a_push_that_takes_too_long_is_ended(pretend: HostSite, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smart_http, "SECONDS", 0.5)
    pretend.repo.hook = "exec sleep 600\n"
    with marked_environment() as (environment, alive):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert "504" in refused_push(clone, "origin", "HEAD:refs/heads/x")
        assert pretend.repo.branches.keys() == {"main"} and not [one for one in alive() if one.startswith("sleep")]


@pytest.mark.parametrize("where", ["hook", "gate"])
def test_a_host_ends_at_once_though_a_push_hangs(pretend: HostSite, clone: Path, tmp_path: Path, where: str) -> None:
    os.mkfifo(tmp_path / "began")
    pretend.repo.hook = f"echo > {tmp_path}/began\nexec sleep 600\n"
    hold = Fault(kind="hold", path="git-receive-pack", times=1 if where == "gate" else 0)
    pretend.fake.fail(hold)
    with ThreadPoolExecutor(1) as pool:
        push = pool.submit(run_git, clone, "push", "origin", "HEAD:refs/heads/x")
        assert hold.gate.reached.wait(5) if where == "gate" else (tmp_path / "began").read_text()
        directory = pretend.fake.directory
        ending = threading.Thread(target=pretend.fake.__exit__)
        ending.start()
        ending.join(10)
        assert not ending.is_alive() and push.result(10).returncode != 0
    assert not directory.exists()


def test_most_repositories_need_no_directory(pretend: HostSite) -> None:
    with pretend.host() as host:
        assert host.branches(HERE, "main") == ["main"] and list(host.pulls(HERE, "all")) == []
    assert "directory" not in vars(pretend.fake) and pretend.repo.files("main") == FILES
