"""What an agent does to refs, git's files and its own worktree, and what the hall still never touches."""

from pathlib import Path

import pytest

from crewhall.outside.file_commits import Hindered, OneFileChange, advance, write_blob
from crewhall.outside.git import GitRepository
from crewhall.outside.removal import remove_worktree
from crewhall.outside.saving import keep_under
from crewhall.outside.worktrees import add_worktree
from tests.outside.repos import change, commit, git

REF = "refs/crewhall/saved/work-1"


@pytest.fixture
def tree(repo: GitRepository, tmp_path: Path) -> Path:
    """The worktree of an agent, on a branch of its own with a commit."""
    path = tmp_path / "shop-worktrees" / "work-1"
    add_worktree(repo, str(path), "work-1", "main")
    change(path / "file-0", "committed")
    commit(path, "work")
    return path


def test_a_branch_that_became_another_name_for_main_goes_alone(repo: GitRepository, tree: Path) -> None:
    tip = git(repo.root, "rev-parse", "main")
    git(tree, "checkout", "-q", "--detach")
    git(tree, "symbolic-ref", "refs/heads/work-1", "refs/heads/main")
    assert remove_worktree(repo, str(tree), "work-1", True, REF).branch_deleted
    assert git(repo.root, "rev-parse", "main") == tip and not repo.branch_exists("work-1")


def test_a_saved_ref_that_is_another_name_for_main_is_deleted_alone(repo: GitRepository) -> None:
    tip = git(repo.root, "rev-parse", "main")
    git(repo.root, "symbolic-ref", REF, "refs/heads/main")
    assert keep_under(repo, REF, tip) == REF
    assert repo.delete_ref(REF) and git(repo.root, "rev-parse", "main") == tip


def test_a_commit_on_another_name_for_main_moves_nothing_of_the_persons(repo: GitRepository, tree: Path) -> None:
    tip = git(repo.root, "rev-parse", "main")
    git(tree, "checkout", "-q", "--detach", "main")
    git(tree, "symbolic-ref", "refs/heads/work-1", "refs/heads/main")
    git(tree, "symbolic-ref", "HEAD", "refs/heads/work-1")
    blob = write_blob(repo, b"hello\n")
    with pytest.raises(Hindered):
        advance(repo, str(tree), "work-1", OneFileChange("NOTE.md", blob, "A note", "m1", 0))
    assert git(repo.root, "rev-parse", "main") == tip
