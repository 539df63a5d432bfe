"""A branch pushed to a host with real git: what arrives, what a refusal means, and where the token never is."""

import logging
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from crewhall.errors import Failure
from crewhall.fakehosts import faults
from crewhall.fakehosts.faults import Fault
from crewhall.outside.git import GitRepository, open_repository
from crewhall.outside.pushing import delete_remote_branch, push_branch
from crewhall.stop import Stop
from tests.hosts.conftest import BRANCH, TOKEN, HostSite, failure_of, response_fault
from tests.outside.repos import commit, git

Make = Callable[..., HostSite]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator without settings of git."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home))
    return home


def clone_of(site: HostSite, where: Path, *words: str) -> GitRepository:
    """A clone without a remote, on the branch to push, one commit ahead."""
    git(where.parent, "clone", "-q", *words, address(site), where.name)
    git(where, "remote", "remove", "origin")
    git(where, "checkout", "-qb", BRANCH)
    (where / "own.md").write_text("own\n")
    commit(where, "Mine")
    return open_repository(str(where))


@pytest.fixture
def repo(pretend: HostSite, tmp_path: Path) -> GitRepository:
    return clone_of(pretend, tmp_path / "ops")


def address(site: HostSite, name: str = "octo/ops") -> str:
    return f"{site.fake.url}/{name}.git"


def push(
    repo: GitRepository,
    site: HostSite,
    *,
    url: str | None = None,
    token: str | None = TOKEN,
    expected: str | None = None,
    stop: Stop | None = None,
) -> None:
    push_branch(repo, url or address(site), BRANCH, token=token, expected=expected, stop=stop or Stop(20))


def delete(repo: GitRepository, site: HostSite, expected: str) -> None:
    delete_remote_branch(repo, address(site), BRANCH, token=TOKEN, expected=expected, stop=Stop(20))


def head(repo: GitRepository) -> str:
    return git(repo.root, "rev-parse", BRANCH)


def next_commit(repo: GitRepository, text: str = "more\n") -> str:
    Path(repo.root, "own.md").write_text(text)
    return commit(repo.root, "More")


def test_exactly_one_branch_arrives_under_its_own_name(pretend: HostSite, repo: GitRepository, home: Path) -> None:
    (home / ".gitconfig").write_text("[push]\n\tfollowTags = true\n\tdefault = matching\n\tgpgSign = true\n")
    git(repo.root, "tag", "-am", "One", "v1")
    git(repo.root, "branch", "other")
    main = pretend.repo.branches["main"]
    for _ in range(2):
        push(repo, pretend)
        assert pretend.repo.branches == {"main": main, BRANCH: head(repo)}
    next_commit(repo)
    push(repo, pretend)
    assert pretend.repo.branches == {"main": main, BRANCH: head(repo)}
    assert git(pretend.repo.bare.path, "for-each-ref", "refs/tags") == ""
    assert git(repo.root, "for-each-ref", "refs/remotes") == "", "the repository learns nothing of it"


def test_a_shallow_clone_and_another_worktree_push_too(github: HostSite, tmp_path: Path) -> None:
    github.repo.add_commit("main", {"second.md": b"2\n"})
    repo = clone_of(github, tmp_path / "shallow", "--depth=1")
    git(repo.root, "checkout", "-q", "--detach")
    git(repo.root, "worktree", "add", "-q", str(tmp_path / "tree"), BRANCH)
    (tmp_path / "tree" / "own.md").write_text("from there\n")
    sha = commit(tmp_path / "tree", "There")
    github.repo.add_commit("main", {"third.md": b"3\n"})
    push(open_repository(str(tmp_path / "tree")), github)
    assert github.repo.branches[BRANCH] == sha and len(github.repo.log(BRANCH)) == 4


def test_other_commits_on_the_host_are_never_overwritten(pretend: HostSite, repo: GitRepository) -> None:
    theirs = pretend.repo.add_commit(BRANCH, {"theirs.md": b"1\n"})
    refused = failure_of(lambda: push(repo, pretend))
    assert refused.code == "CONFLICT" and BRANCH in refused.message and "Fetch that branch" in refused.hint
    assert failure_of(lambda: push(repo, pretend, expected=theirs)).code == "CONFLICT", "it is not what was asked for"
    assert pretend.repo.branches[BRANCH] == theirs
    git(repo.root, "fetch", "-q", address(pretend), BRANCH)
    assert failure_of(lambda: push(repo, pretend)).code == "CONFLICT", "though git knows them"


def test_a_push_can_require_the_commit_that_it_adds_to(pretend: HostSite, repo: GitRepository) -> None:
    push(repo, pretend)
    first = head(repo)
    second = next_commit(repo)
    for _ in range(2):
        push(repo, pretend, expected=first)
        assert pretend.repo.branches[BRANCH] == second, "and a repeated one is fine"
    pretend.repo.set_branch(BRANCH, first)
    third = next_commit(repo, "third\n")
    assert failure_of(lambda: push(repo, pretend, expected=second)).code == "CONFLICT"
    assert pretend.repo.branches[BRANCH] == first
    push(repo, pretend)
    assert pretend.repo.branches[BRANCH] == third


def test_a_branch_is_removed_only_while_it_has_the_expected_commit(pretend: HostSite, repo: GitRepository) -> None:
    push(repo, pretend)
    first = head(repo)
    other = pretend.repo.add_commit(BRANCH, {"theirs.md": b"1\n"})
    refused = failure_of(lambda: delete(repo, pretend, first))
    assert refused.code == "CONFLICT" and pretend.repo.branches[BRANCH] == other
    pretend.repo.protected.add(BRANCH)
    assert failure_of(lambda: delete(repo, pretend, other)).code == "FORBIDDEN"
    pretend.repo.protected.clear()
    delete(repo, pretend, other)
    assert BRANCH not in pretend.repo.branches
    delete(repo, pretend, other)


def refuse_token(site: HostSite) -> None:
    site.fake.tokens.clear()


def refuse_by_hook(site: HostSite) -> None:
    site.repo.hook = f"printf 'Too large\\033[31m \\342\\200\\256 {TOKEN}\\n' >&2; exit 1\n"


def fail_with(fault: Fault) -> Callable[[HostSite], None]:
    return lambda site: site.fake.fail(replace(fault, times=5, gate=faults.Gate()))


PROBLEMS: dict[str, tuple[Callable[[HostSite], None], str, str]] = {
    "an unknown token": (refuse_token, "FORBIDDEN", "Invalid username or token"),
    "no write access": (lambda site: site.fake.forbid("octo", "ops"), "FORBIDDEN", "denied"),
    "a protected branch": (lambda site: site.repo.protected.add(BRANCH), "FORBIDDEN", "rotected branch"),
    "a hook": (refuse_by_hook, "FORBIDDEN", "Too large [31m [token]"),
    "no repository": (lambda site: site.fake.repositories.clear(), "NOT_FOUND", "Repository not found."),
    "429": (fail_with(faults.rate_limited()), "UNAVAILABLE", "429"),
    "500": (fail_with(Fault()), "UNAVAILABLE", "500"),
    "a proxy's 502": (fail_with(faults.bad_gateway()), "UNAVAILABLE", "502"),
    "500 in the middle": (fail_with(Fault(method="POST")), "UNAVAILABLE", "500"),
    "a dropped connection": (fail_with(Fault(kind="drop")), "UNAVAILABLE", "Empty reply"),
    "something else": (fail_with(response_fault("<html>")), "UNAVAILABLE", "Cannot access URL"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_refusal_says_who_refuses_and_what_to_do(pretend: HostSite, repo: GitRepository, case: str) -> None:
    break_it, code, words = PROBLEMS[case]
    before = dict(pretend.repo.branches)
    break_it(pretend)
    refused = failure_of(lambda: push(repo, pretend))
    assert refused.code == code and words in refused.message and address(pretend) in refused.message
    assert refused.message.isprintable() and len(refused.message) < 500 and pretend.repo.branches == before


def test_without_a_token_or_a_host_nothing_is_asked(
    github: HostSite, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, asks = clone_of(github, tmp_path / "ops"), tmp_path / "asks"
    asks.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho {TOKEN}\n")
    asks.chmod(0o755)
    monkeypatch.setenv("SSH_ASKPASS", str(asks))
    (home / ".gitconfig").write_text(f"[core]\n\taskPass = {asks}\n")
    refused = failure_of(lambda: push(repo, github, token=None))
    assert refused.code == "FORBIDDEN" and not (tmp_path / "asked").exists()
    gone = failure_of(lambda: push(repo, github, url="http://127.0.0.1:1/octo/ops.git"))
    assert gone.code == "UNAVAILABLE" and "Try again" in gone.hint
    unknown = failure_of(lambda: push(repo, github, url="http://no.invalid/octo/ops.git"))
    assert unknown.code == "UNAVAILABLE" and "no.invalid" in unknown.message
    assert "ASCII" in failure_of(lambda: push(repo, github, token=f"{TOKEN}\nquit=1")).message
    missing = failure_of(partial(push_branch, repo, address(github), "gone", token=None, expected=None, stop=None))
    assert missing.code == "NOT_FOUND" and "'gone'" in missing.message


SSH_ERRORS = {
    "git@127.0.0.1: Permission denied (publickey).": "FORBIDDEN",
    "ERROR: Repository not found.": "NOT_FOUND",
    "ssh: connect to host 127.0.0.1 port 22: Connection refused": "UNAVAILABLE",
    "Host key verification failed.": "UNAVAILABLE",
}


@pytest.mark.parametrize("url", ["git@127.0.0.1:octo/ops.git", "ssh://git@127.0.0.1/octo/ops.git"])
def test_ssh_has_its_own_keys_and_gets_no_token(
    github: HostSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    repo, program = clone_of(github, tmp_path / "ops"), tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    for words, code in SSH_ERRORS.items():
        program.write_text(f"#!/bin/sh\n{{ env; echo $*; }} > {tmp_path}/seen\necho '{words}' >&2\nexit 255\n")
        program.chmod(0o755)
        failure = failure_of(lambda: push(repo, github, url=url))
        assert failure.code == code and words in failure.message
    seen = (tmp_path / "seen").read_text()
    assert "git-receive-pack" in seen and "SSH_ASKPASS_REQUIRE=never" in seen and TOKEN not in seen


ADDRESSES = ["ext::sh -c 'touch {file}'", "{file}", "file://{file}", "--receive-pack=touch {file}", "ftp://x/y", ""]
ADDRESSES += ["http://x/y\n", 'http://"/y', f"http://ada:{TOKEN}@127.0.0.1/octo/ops.git", "-oProxyCommand=x:y"]


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_that_is_no_host_is_refused(github: HostSite, tmp_path: Path, url: str) -> None:
    repo, file = clone_of(github, tmp_path / "ops"), tmp_path / "file"
    with pytest.raises(Failure) as caught:
        push_branch(repo, url.format(file=file), BRANCH, token=TOKEN, expected=None, stop=Stop(20))
    assert caught.value.code == "INVALID_INPUT" and TOKEN not in str(caught.value.body()) and not file.exists()


@pytest.mark.parametrize("limit", ["stop", "seconds", "cancel"])
def test_a_push_ends_with_its_time(github: HostSite, tmp_path: Path, limit: str) -> None:
    repo, hold = clone_of(github, tmp_path / "ops"), Fault(kind="hold", path="git-receive-pack", times=2)
    github.fake.fail(hold)
    stop = Stop(0.5 if limit == "stop" else None)
    repo = replace(repo, seconds=0.5 if limit == "seconds" else 300.0)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(push, repo, github, stop=stop)
        if limit == "cancel":
            assert hold.gate.reached.wait(5)
            stop.cancel()
        failure = late.exception(10)
        hold.gate.opened.set()
    assert isinstance(failure, Failure) and failure.hint
    assert failure.code == ("CANCELLED" if limit == "cancel" else "TIMED_OUT")


def processes() -> dict[str, str]:
    """Command line and environment of every process that can be seen."""
    found: dict[str, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(os.getpid()):
            with suppress(OSError):
                found[(process / "cmdline").read_text(errors="replace")] = (process / "environ").read_text(
                    errors="replace"
                )
    return found


def test_the_token_is_in_no_argument_environment_file_or_log(
    github: HostSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = f"ghp_{secrets.token_hex(16)}"  # which no other test has in its processes
    github.fake.tokens[token] = "octocat"
    repo, hold = clone_of(github, tmp_path / "ops"), Fault(kind="hold", path="git-receive-pack$", method="POST")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("GITHUB_TOKEN", token)
    github.fake.fail(hold)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(push, repo, github, token=token)
        assert hold.gate.reached.wait(10)
        running, files = processes(), [one for one in (tmp_path / "tmp").rglob("*") if one.is_file()]
        contents = [one.read_text() for one in files]
        hold.gate.opened.set()
        late.result(20)
    ours = [line for line in running if address(github) in line]
    assert any("remote-http" in line for line in ours) and any("push\0" in line for line in ours)
    assert not [line for line in ours if token in line + running[line]]
    assert not [line for line in running if token in line]
    assert any("/dev/fd" in text for text in contents) and not [text for text in contents if token in text]
    assert not [one for one in caplog.records if token in str(vars(one))]
    sent = [one.headers for one in github.fake.git_exchanges if "git-receive-pack" in one.path]
    assert sent and all(one["authorization"].startswith("Basic ") for one in sent)
    assert not list((tmp_path / "tmp").iterdir()), "and nothing stays"


def test_a_hostile_repository_gets_neither_the_token_nor_a_program_run(place: Make, tmp_path: Path) -> None:
    github, evil, file = place("github"), place("github"), tmp_path / "ran"
    repo = clone_of(github, tmp_path / "ops")
    planted = f"!touch {file}; echo username=x; echo password=y; :"
    settings = {
        f"url.{evil.fake.url}/.insteadOf": f"{github.fake.url}/",
        f"url.{evil.fake.url}/x.pushInsteadOf": f"{github.fake.url}/",
        "http.proxy": evil.fake.url,
        f"http.{github.fake.url}.proxy": evil.fake.url,
        "http.extraHeader": "Authorization: Basic eDp5",
        "credential.helper": planted,
        f"credential.{github.fake.url}.helper": planted,
        "core.askPass": f"touch {file}; echo",
        "core.sshCommand": f"touch {file};",
        "core.hooksPath": str(tmp_path / "hooks"),
        "core.alternateRefsCommand": f"touch {file};",
        "core.gitProxy": f"touch {file};",
        f"remote.{address(github)}.receivepack": f"touch {file};",
        f"remote.{address(github)}.url": address(evil),
        "push.pushOption": "evil",
        "protocol.ext.allow": "always",
        "http.sslVerify": "false",
    }
    for name, value in settings.items():
        git(repo.root, "config", name, value)
    for folder in (tmp_path / "hooks", Path(repo.git_dir, "hooks")):
        folder.mkdir(exist_ok=True)
        for hook in ("pre-push", "reference-transaction", "post-index-change"):
            (folder / hook).write_text(f"#!/bin/sh\ntouch {file}\n")
            (folder / hook).chmod(0o755)
    push(repo, github)
    delete(repo, github, head(repo))
    push(repo, github)
    assert github.repo.branches[BRANCH] == head(repo) and not file.exists()
    assert evil.fake.git_exchanges == [] == evil.fake.exchanges
    assert all("eDp5" not in one.headers.get("authorization", "") for one in github.fake.git_exchanges)


@pytest.mark.parametrize("kind", ["link", "endless", "pipe", "text"])
def test_no_other_file_is_told_by_way_of_a_shallow_clone(github: HostSite, tmp_path: Path, kind: str) -> None:
    repo = clone_of(github, tmp_path / "ops")
    push(repo, github)
    sha, shallow, secret = head(repo), Path(repo.git_dir, "shallow"), tmp_path / ".netrc"
    secret.write_text("password hunter2\n")
    make = {
        "link": lambda: shallow.symlink_to(secret),
        "endless": lambda: shallow.symlink_to("/dev/zero"),
        "pipe": lambda: os.mkfifo(shallow),
        "text": lambda: shallow.write_bytes(secret.read_bytes()),
    }
    make[kind]()
    refused = failure_of(lambda: delete(repo, github, sha))
    assert refused.code == "INVALID_STATE" and "hunter2" not in f"{refused.message} {refused.hint}"


def test_the_operators_own_credentials_are_used_without_a_token_only(
    github: HostSite, tmp_path: Path, home: Path
) -> None:
    repo, asked = clone_of(github, tmp_path / "ops"), tmp_path / "asked"
    helper = f"!f() {{ echo $1 >> {asked}; echo username=ada; echo password={TOKEN}; }}; f"
    git(tmp_path, "config", "-f", str(home / ".gitconfig"), "credential.helper", helper)
    push(repo, github)
    assert not asked.exists(), "with a token the operator's helper is neither asked nor told"
    next_commit(repo)
    push(repo, github, token=None)
    assert github.repo.branches[BRANCH] == head(repo) and asked.read_text().split() == ["get", "store"]


@pytest.mark.parametrize("how", ["redirect", "insteadOf"])
def test_another_host_never_gets_the_token(place: Make, tmp_path: Path, home: Path, how: str) -> None:
    github, other = place("github"), place("github")
    repo = clone_of(github, tmp_path / "ops")
    if how == "redirect":
        there = f"{address(other)}/info/refs?service=git-receive-pack"
        github.fake.fail(response_fault("", 301, location=there))
    else:
        rewritten = f'[url "{other.fake.url}/"]\n\tinsteadOf = {github.fake.url}/\n'
        (home / ".gitconfig").write_text(rewritten)
    assert failure_of(lambda: push(repo, github)).code == "FORBIDDEN"
    assert other.fake.git_exchanges, "git went there"
    assert not [one for one in other.fake.git_exchanges if "authorization" in one.headers]


def test_a_large_push_arrives_whole(github: HostSite, tmp_path: Path) -> None:
    repo = clone_of(github, tmp_path / "ops")
    Path(repo.root, "large").write_bytes(os.urandom(3_000_000))
    commit(repo.root, "Large")
    push(repo, github)
    assert len(github.repo.files(BRANCH)["large"]) == 3_000_000
