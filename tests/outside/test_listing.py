"""Listings when git is missing, slow, broken or led astray: names all the same, and a reason."""

import os
import tempfile
import threading
from pathlib import Path

import pytest

from crewhall.errors import Cancelled, LimitExceeded, Unavailable
from crewhall.outside import listing
from crewhall.outside.files import Found, open_root
from crewhall.outside.git import GitRepository
from crewhall.outside.listing import GitLookup, Listing, contents, look_at, read_listing
from crewhall.stop import Stop
from tests.conftest import eventually
from tests.outside.repos import commit, git, make_repository


def look(root: Path, found: Found, stop: Stop | None = None) -> Listing:
    asking = GitLookup(str(root), found, stop)
    return read_listing(found, asking, lambda: contents(found, asking))


def list_path(root: Path, path: str = ".", stop: Stop | None = None) -> Listing:
    with open_root(str(root)) as top, top.directory(path) as found:
        return look(root, found, stop)


@pytest.fixture
def root(repo: GitRepository) -> Path:
    root = Path(repo.root)
    (root / ".gitignore").write_text("*.log\n")
    (root / "x.log").write_text("x")
    return root


def put_git(place: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Another program of that name, found before git."""
    place.mkdir()
    (place / "git").write_text(f"#!/bin/sh\n{script}\n")
    (place / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


def test_git_tells_what_it_ignores_and_what_it_tracks(root: Path) -> None:
    found = list_path(root)
    assert found.names == [".gitignore", "file-0", "file-1", "file-2", "x.log"] and found.problem is None
    assert found.ignored == {"x.log"} and found.tracked == ["file-0", "file-1", "file-2"]


def test_without_git_everything_is_listed_with_the_reason(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for directory in (root, tmp_path / "home"):
        directory.mkdir(exist_ok=True)
        (directory / "x.log").touch()
        found = list_path(directory)
        assert "x.log" in found.names and not found.ignored
        assert found.problem is not None and found.problem.startswith("git can't be started")


def test_a_git_that_fails_or_is_slow_is_told(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SECONDS", 0.2)
    for number, (script, told) in enumerate(
        {
            "echo 'fatal: no such luck' >&2; exit 128": "git could not ls-files: fatal: no such luck",
            "case $* in *check-ignore*) echo fatal: odd >&2; exit 128;; esac": "git could not check-ignore: fatal: odd",
            "exec sleep 60": "git ls-files took longer than 0.2 s",
            "kill -9 $$": "git could not ls-files: exit code -9",
        }.items()
    ):
        put_git(tmp_path / f"bin-{number}", monkeypatch, script)
        found = list_path(root)
        assert (found.problem, found.ignored, "x.log" in found.names) == (told, frozenset(), True)


def test_a_cancelled_call_ends_with_git(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_git(tmp_path / "bin", monkeypatch, f"touch {tmp_path}/begun; exec sleep 60")
    stop, ended = Stop(), threading.Event()

    def ask() -> None:
        with pytest.raises(Cancelled):
            list_path(root, stop=stop)
        ended.set()

    asking = threading.Thread(target=ask)
    asking.start()
    eventually((tmp_path / "begun").exists)
    stop.cancel()
    assert ended.wait(10)
    asking.join()


def test_no_room_for_a_temporary_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    (tmp_path / "a").touch()
    found = list_path(tmp_path)
    assert "a" in found.names and found.problem is not None and found.problem.startswith("no temporary directory")


def test_nothing_is_left_of_the_repository_that_git_was_lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "x.log").touch()
    (tmp_path / "plain" / ".gitignore").write_text("*.log")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    assert "x.log" in list_path(tmp_path / "plain").ignored
    assert os.listdir(tmp_path / "temporary") == [] and sorted(os.listdir(tmp_path / "plain")) == [
        ".gitignore",
        "x.log",
    ]


@pytest.mark.parametrize("planted", ["docs/fixture", "docs/fixture/refs", "empty"])
def test_a_repository_among_the_files_changes_no_answer(root: Path, planted: str) -> None:
    """A bare one in a directory of files, and a `.git` that is none."""
    git(root, "init", "-q", "--bare", "docs/fixture")
    (root / "docs/fixture/info/exclude").write_text("*\n")
    (root / "empty/.git").mkdir(parents=True)
    for name in ("shown.txt", "hidden.log"):
        (root / planted / name).touch()
    found = list_path(root, planted)
    assert found.problem is None and found.ignored == {"hidden.log"} and ".git" not in found.names


def test_a_nested_repository_and_a_broken_one_are_asked_themselves(root: Path) -> None:
    git(root, "init", "-q", "nested")
    (root / "nested/.gitignore").write_text("*.txt\n")
    for name in ("a.txt", "a.log"):
        (root / "nested" / name).touch()
    assert list_path(root, "nested").ignored == {"a.txt"}
    (root / "broken").mkdir()
    (root / "broken/.git").write_text("gitdir: nowhere\n")
    (root / "broken/x.log").touch()
    found = list_path(root, "broken")
    assert found.names == ["x.log"] and found.problem is not None and "not a git repository" in found.problem


@pytest.mark.parametrize("part", ["", "/worktrees/linked"])
def test_a_nested_git_file_tells_nothing_of_another_repository(root: Path, part: str) -> None:
    other = Path(make_repository(root.parent / "other").root)
    git(other, "worktree", "add", "-q", "../linked")
    (root / "nested").mkdir()
    for name in ("file-0", "x"):
        (root / "nested" / name).mkdir()  # as what that one tracks, it would be a submodule
    (root / "nested/.git").write_text(f"gitdir: {other}/.git{part}\n")
    found = list_path(root, "nested")
    assert found.problem is not None and "does not name this as its working tree" in found.problem
    assert not found.tracks("file-0") and found.names == ["file-0", "x"]


def test_a_linked_worktree_and_a_submodule_in_it_are_asked_themselves(root: Path) -> None:
    inner = Path(make_repository(root.parent / "inner").root)
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(root, "commit", "-qm", "a submodule")
    tree = root.parent / "tree"
    git(root, "worktree", "add", "-q", str(tree))
    git(tree, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
    for place in (tree, tree / "sub"):
        (place / ".gitignore").write_text("hidden\n")
        (place / "hidden").touch()
    for path in (".", "sub"):
        found = list_path(tree, path)
        assert (found.problem, found.ignored) == (None, {"hidden"})


@pytest.mark.parametrize(
    "place",
    [".git/index", ".git/info/exclude", ".git/config", ".gitignore", "sub/.gitignore", ".git/info/exclude -> .git/x"],
)
def test_git_is_not_asked_where_it_would_wait(root: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO in place of a file that git reads, or a link to one; git alone would wait for ever."""
    place, _, target = place.partition(" -> ")
    (root / "sub").mkdir()
    (root / "sub/y").touch()
    (root / place).unlink(missing_ok=True)
    os.mkfifo(root / (target or place))
    if target:
        (root / place).symlink_to(root / target)
    monkeypatch.setenv("PATH", "")
    found = list_path(root, "sub")
    assert "y" in found.names and found.problem == f"{root / place} is no regular file"


def test_git_has_little_time_for_what_it_includes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SECONDS", 0.2)
    git(root, "config", "include.path", "../more")
    os.mkfifo(root / "more")
    found = list_path(root)
    assert "x.log" in found.names and found.problem == "git ls-files took longer than 0.2 s"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_repository_of_another_owner_is_refused_in_git_s_words(root: Path) -> None:
    for place in (root, root / ".git"):
        os.chown(place, 12345, 12345)
    found = list_path(root)
    assert "x.log" in found.names and found.problem is not None and "dubious ownership" in found.problem


@pytest.mark.parametrize("way", ["config", "include", "config.worktree", "link"])
def test_no_file_elsewhere_is_read_as_rules_of_the_repository(root: Path, tmp_path: Path, way: str) -> None:
    """Which names are ignored would tell the lines of that file."""
    (tmp_path / "secrets").write_text("hunter2\n")
    (root / "hunter2").touch()
    if way == "config":
        git(root, "config", "core.excludesFile", str(tmp_path / "secrets"))
    elif way == "include":
        (root / "more").write_text(f"[core]\nexcludesFile = {tmp_path / 'secrets'}\n")
        git(root, "config", "include.path", "../more")
    elif way == "config.worktree":
        git(root, "config", "extensions.worktreeConfig", "true")
        git(root, "config", "--worktree", "core.excludesFile", str(tmp_path / "secrets"))
    else:
        (root / ".git/info/exclude").unlink()
        (root / ".git/info/exclude").symlink_to(tmp_path / "secrets")
    assert git(root, "check-ignore", "hunter2") == "hunter2", "git on its own tells"
    found = list_path(root)
    assert "hunter2" in found.names and "hunter2" not in found.ignored
    assert (found.problem is None and found.ignored == {"x.log"}) == (way != "link")


@pytest.mark.parametrize("theirs", ["set", "default"])
def test_the_person_s_own_rules_count_in_place_of_the_repository_s(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    home = tmp_path / "home"
    (home / "git").mkdir(parents=True)
    (home / ("rules" if theirs == "set" else "git/ignore")).write_text("file-9\n")
    if theirs == "set":
        (home / ".gitconfig").write_text("[core]\nexcludesFile = ~/rules\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    (root / "file-9").touch()
    assert list_path(root).ignored == {"x.log", "file-9"}
    git(root, "config", "core.excludesFile", "/dev/null")
    assert list_path(root).ignored == {"x.log", "file-9"}


def test_a_repository_of_strangers_runs_none_of_their_programs(root: Path, tmp_path: Path) -> None:
    """A part of the index is missing, and would be fetched from where a program of theirs serves it."""
    ran, trap = tmp_path / "ran", root / ".git" / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {ran}\n")
    trap.chmod(0o755)
    for place in ("kept/a", "away/b"):
        (root / place).parent.mkdir()
        (root / place).touch()
    commit(root, "two directories")
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "kept")
    tree = git(root, "rev-parse", "HEAD:away")
    (root / ".git/objects" / tree[:2] / tree[2:]).unlink()
    for key, value in {"url": str(root), "promisor": "true", "uploadpack": str(trap)}.items():
        git(root, "config", f"remote.origin.{key}", value)
    git(root, "config", "extensions.partialClone", "origin")
    git(root, "ls-files", check=False)
    assert ran.exists(), "git on its own runs it"
    ran.unlink()
    assert "kept" in list_path(root).names and not ran.exists()


def test_a_directory_with_too_many_names_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_NAMES", 5)
    with pytest.raises(LimitExceeded, match=r"'\.' holds 6 names"):
        list_path(root)


def test_a_name_that_is_gone_is_something_else(root: Path) -> None:
    with open_root(str(root)) as top, top.directory(".") as found:
        assert look_at(found, "file-0")[0] == "file" and look_at(found, "gone") == ("other", None)


def test_what_the_kernel_does_not_list_says_so(root: Path) -> None:
    with (
        open_root(str(root)) as top,
        top.file("file-0") as found,
        pytest.raises(Unavailable, match="'file-0' can't be"),
    ):
        look(root, found)


def test_a_directory_that_is_removed_meanwhile_is_empty(root: Path) -> None:
    (root / "gone").mkdir()
    with open_root(str(root)) as top, top.directory("gone") as found:
        (root / "gone").rmdir()
        assert look(root, found).names == []
