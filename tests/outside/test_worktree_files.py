"""Ignored files that a worktree needs are copied in, and kept when they changed."""

import os
import time
from pathlib import Path

import pytest

from crewhall.errors import InvalidState
from crewhall.outside import worktree_files
from crewhall.outside.git import GitRepository
from crewhall.outside.worktree_files import copy_included, save_included
from crewhall.outside.worktrees import add_worktree
from tests.outside.repos import commit, git, make_repository


@pytest.fixture
def repo(tmp_path: Path) -> GitRepository:
    """A repository that ignores .env, logs and a directory, and lists the first and the last."""
    repo = make_repository(tmp_path / "shop")
    root = Path(repo.root)
    (root / ".gitignore").write_text(".env*\n*.log\n/local/\n")
    (root / ".worktreeinclude").write_text(".env\nlocal/\nfile-0\nnotes.txt\n")
    commit(root, "ignore")
    (root / ".env").write_text("KEY=1\n")
    (root / ".env.other").write_text("KEY=2\n")
    (root / "build.log").write_text("log\n")
    (root / "notes.txt").write_text("untracked, and not ignored\n")
    (root / "local").mkdir()
    (root / "local/a ü.txt").write_text("a\n")
    (root / "local/link").symlink_to("/etc/passwd")
    return repo


@pytest.fixture
def tree(repo: GitRepository, tmp_path: Path) -> Path:
    add_worktree(repo, str(tmp_path / "tree"), "b", "main")
    return tmp_path / "tree"


def new_files(tree: Path) -> list[str]:
    return sorted(git(tree, "-c", "core.quotePath=off", "ls-files", "--others").splitlines())


def test_ignored_files_of_the_list_are_copied_and_no_others(repo: GitRepository, tree: Path) -> None:
    os.chmod(Path(repo.root, ".env"), 0o600)
    assert copy_included(repo, str(tree)) == 2
    assert new_files(tree) == [".env", "local/a ü.txt"], "no link, nothing that git doesn't ignore"
    assert (tree / ".env").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_stays_as_it_is(repo: GitRepository, tree: Path) -> None:
    (tree / ".env").write_text("MINE=1\n")
    assert copy_included(repo, str(tree)) == 1
    assert (tree / ".env").read_text() == "MINE=1\n"


def test_without_a_list_nothing_is_copied(repo: GitRepository, tree: Path) -> None:
    Path(repo.root, ".worktreeinclude").unlink()
    assert copy_included(repo, str(tree)) == 0 and new_files(tree) == []
    assert save_included(repo, str(tree), "refs/crewhall/saved/x") is None


def test_too_many_files_are_refused(repo: GitRepository, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree_files, "MOST_FILES", 1)
    with pytest.raises(InvalidState, match="names 2 files") as refused:
        copy_included(repo, str(tree))
    assert ".worktreeinclude" in refused.value.hint and new_files(tree) == []


def test_files_that_changed_are_kept_under_a_ref_and_others_not(repo: GitRepository, tree: Path) -> None:
    copy_included(repo, str(tree))
    assert save_included(repo, str(tree), "refs/crewhall/saved/x") is None, "they are as they were"
    (tree / ".env").write_text("KEY=3\n")
    (tree / "local/new.txt").write_text("new\n")
    before = git(tree, "status", "--short")
    ref = save_included(repo, str(tree), "refs/crewhall/saved/x")
    assert ref == "refs/crewhall/saved/x"
    assert git(Path(repo.root), "ls-tree", "-r", "--name-only", ref).splitlines() == [".env", "local/new.txt"]
    assert git(Path(repo.root), "show", f"{ref}:.env") == "KEY=3"
    assert git(tree, "status", "--short") == before, "the worktree and its index are as they were"
    assert save_included(repo, str(tree), "refs/crewhall/saved/x") == ref, "twice makes no second ref"


def test_a_worktree_that_is_gone_keeps_nothing(repo: GitRepository, tmp_path: Path) -> None:
    assert save_included(repo, str(tmp_path / "nowhere"), "refs/crewhall/saved/x") is None


@pytest.mark.parametrize("outside", ["../elsewhere", "{tmp}/elsewhere"])
def test_a_link_of_the_branch_leads_no_copy_out(repo: GitRepository, tmp_path: Path, outside: str) -> None:
    """Where the main worktree has a directory with a secret, the branch of a stranger has a link."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(repo.root, "checkout", "-q", "-b", "theirs")
    git(repo.root, "clean", "-qfdX")
    Path(repo.root, "local").symlink_to(outside.format(tmp=tmp_path))
    git(repo.root, "add", "--force", "local")
    git(repo.root, "commit", "-qm", "link")
    git(repo.root, "checkout", "-q", "main")
    Path(repo.root, "local").mkdir()
    Path(repo.root, "local/key").write_text("secret\n")
    tree = tmp_path / "theirs"
    add_worktree(repo, str(tree), "theirs", "main")
    with pytest.raises(InvalidState, match="local/key"):
        copy_included(repo, str(tree))
    assert list(elsewhere.iterdir()) == []


def test_what_is_too_large_stays_in_its_worktree(repo: GitRepository, tree: Path) -> None:
    """Ten gigabytes that take no room on the disk are neither read into memory nor into the repository."""
    with (tree / ".env").open("wb") as file:
        file.truncate(10_000_000_000)
    began = time.monotonic()
    with pytest.raises(InvalidState, match="10000000000 bytes"):
        save_included(repo, str(tree), "refs/crewhall/saved/x")
    assert time.monotonic() - began < 20


def test_neither_a_pipe_nor_a_huge_list_is_waited_for(repo: GitRepository, tree: Path) -> None:
    listed = Path(repo.root, ".worktreeinclude")
    with listed.open("wb") as file:
        file.truncate(10_000_000_000)
    with pytest.raises(InvalidState, match="more than 1000000 bytes"):
        copy_included(repo, str(tree))
    listed.unlink()
    os.mkfifo(listed)
    assert copy_included(repo, str(tree)) == 0
