"""Feedback comes into a tree in which somebody works: the coder's bytes stay, and it is merged exactly once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.families.review.conftest import Loop
from tests.outside.repos import change, commit, fingerprint, git

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
NAME = "REVIEW_FEEDBACK.md"
REST = ("--", ".", f":!{NAME}")


def own_bytes(tree: Path) -> dict[str, object]:
    """What a coder has in its worktree, its index and its stash, without the feedback's file."""
    return {
        "files": fingerprint(tree, skip=(".git", NAME)),
        "index": git(tree, "ls-files", "--stage", *REST),
        "staged": git(tree, "diff", "--cached", "--binary", *REST),
        "changed": git(tree, "diff", "--binary", *REST),
        "stash": git(tree, "stash", "list", "-p"),
        "head": git(tree, "symbolic-ref", "--quiet", "HEAD", check=False),
    }


def feedback_bytes(tree: Path) -> tuple[object, ...]:
    """The feedback's file: in the worktree, and staged."""
    file = tree / NAME
    content = file.readlink() if file.is_symlink() else file.read_bytes() if file.is_file() else file.is_dir()
    return content, git(tree, "diff", "--cached", "--", NAME)


def merges(loop: Loop) -> list[str]:
    subjects = git(loop.site.repository, "log", "--first-parent", "--format=%s", loop.coder).splitlines()
    return [one for one in subjects if one.startswith("Merge review feedback")]


# What may be under way in the tree, and how it ends.


def conflict(loop: Loop) -> None:
    """main and the coder's branch change the same line."""
    change(loop.tree / "file-0", "the coder's")
    commit(loop.tree, "the coder's")
    change(loop.site.repository / "file-0", "main's")
    commit(loop.site.repository, "main's")


def rebase(loop: Loop) -> Callable[[], object]:
    conflict(loop)
    git(loop.tree, "rebase", "main", check=False)
    (loop.tree / "file-1").write_text("half resolved")
    return lambda: git(loop.tree, "rebase", "--abort")


def merge(loop: Loop) -> Callable[[], object]:
    conflict(loop)
    git(loop.tree, "merge", "main", check=False)
    (loop.tree / "file-0").write_text("resolved")

    def end() -> None:
        git(loop.tree, "add", "file-0")
        git(loop.tree, "commit", "-qm", "merged")

    return end


def index_lock(loop: Loop) -> Callable[[], object]:
    lock = Path(git(loop.tree, "rev-parse", "--absolute-git-dir"), "index.lock")
    change(loop.tree / "file-1", "staged")
    git(loop.tree, "add", "file-1")
    lock.write_text("of another git")

    def end() -> None:
        assert lock.read_text() == "of another git"
        lock.unlink()

    return end


def branch_lock(loop: Loop) -> Callable[[], object]:
    lock = loop.site.repository / f".git/refs/heads/{loop.coder}.lock"
    lock.write_text("")
    return lock.unlink


def other_branch(loop: Loop) -> Callable[[], object]:
    git(loop.tree, "switch", "-qc", "trial")
    change(loop.tree / "file-1", "on trial")
    git(loop.tree, "add", "file-1")
    return lambda: git(loop.tree, "switch", "-q", loop.coder)


def edited(loop: Loop) -> Callable[[], object]:
    (loop.tree / NAME).write_text("I have done half of it.")
    return lambda: git(loop.tree, "checkout", "-q", "--", NAME)


def edited_and_staged(loop: Loop) -> Callable[[], object]:
    edited(loop)
    git(loop.tree, "add", NAME)
    (loop.tree / NAME).write_text("I have done most of it.")
    return lambda: commit(loop.tree, "notes")


def deleted(loop: Loop) -> Callable[[], object]:
    (loop.tree / NAME).unlink()
    return lambda: commit(loop.tree, "done with it")


def deleted_and_staged(loop: Loop) -> Callable[[], object]:
    git(loop.tree, "rm", "-q", NAME)
    return lambda: git(loop.tree, "reset", "-q", "--hard")


def link(loop: Loop) -> Callable[[], object]:
    (loop.tree / NAME).unlink()
    (loop.tree / NAME).symlink_to("file-0")
    return lambda: git(loop.tree, "checkout", "-q", "--", NAME)


IN_THE_WAY = [rebase, merge, index_lock, branch_lock, other_branch]
OF_THE_FILE = [edited, edited_and_staged, deleted, deleted_and_staged, link]


@pytest.mark.parametrize("begin", [*IN_THE_WAY, *OF_THE_FILE])
def test_feedback_waits_for_the_tree_and_comes_once(loop: Loop, begin: Callable[[Loop], Callable[[], object]]) -> None:
    if begin in OF_THE_FILE:  # as an earlier round left it
        (loop.tree / NAME).write_text("Too dark.")
        commit(loop.tree, "feedback")
    reviewer = loop.request()
    end = begin(loop)
    before = own_bytes(loop.tree), feedback_bytes(loop.tree)
    sent = loop.send(reviewer, feedback="Still too dark.")
    assert sent["merge_pending"] and loop.status() == "started"
    assert git(loop.site.repository, "show", f"{sent['git_commit_hash']}:{NAME}").endswith("Still too dark.")
    loop.run_chores()
    assert (own_bytes(loop.tree), feedback_bytes(loop.tree)) == before and merges(loop) == []
    assert loop.status(reviewer) == "terminated"
    end()
    after = own_bytes(loop.tree)
    loop.run_chores()
    loop.run_chores()
    assert own_bytes(loop.tree)["files"] == after["files"] and own_bytes(loop.tree)["staged"] == after["staged"]
    assert merges(loop) == ["Merge review feedback, round 1"]
    assert git(loop.tree, "rev-parse", "HEAD^2") == sent["git_commit_hash"]
    assert (loop.tree / NAME).read_text().endswith("Still too dark.\n")
    assert git(loop.tree, "diff", "HEAD", "--", NAME) == ""
    assert [one["merge_pending"] for one in loop.site.call("review_list")["reviews"]] == [False]


# What is not in the way


def ten_commits(loop: Loop) -> None:
    for number in range(10):
        change(loop.tree / "file-0", f"{number}", number)
        git(loop.tree, "commit", "-qam", f"{number}")


def staged_hunks(loop: Loop) -> None:
    """One change of a file staged, another not, a third in the same line on top, a new file staged, one removed."""
    change(loop.tree / "file-0", "staged", 1)
    git(loop.tree, "add", "file-0")
    change(loop.tree / "file-0", "not staged", 20)
    change(loop.tree / "file-0", "staged, then changed", 1)
    (loop.tree / "new.txt").write_text("new")
    git(loop.tree, "add", "new.txt")
    git(loop.tree, "rm", "-q", "--cached", "file-1")
    (loop.tree / "later.txt").write_text("later")
    git(loop.tree, "add", "--intent-to-add", "later.txt")


def stashes(loop: Loop) -> None:
    change(loop.tree / "file-0", "stashed")
    git(loop.tree, "stash", "-q")
    change(loop.tree / "file-0", "at work")


def other_mode(loop: Loop) -> None:
    (loop.tree / "file-0").chmod(0o755)
    (loop.tree / "file-2").unlink()
    (loop.tree / "file-2").symlink_to("file-0")


@pytest.mark.parametrize("work", [ten_commits, staged_hunks, stashes, other_mode])
def test_feedback_passes_by_what_the_coder_has_not_committed(loop: Loop, work: Callable[[Loop], None]) -> None:
    reviewer = loop.request()
    work(loop)
    head, before = git(loop.tree, "rev-parse", "HEAD"), own_bytes(loop.tree)
    sent = loop.send(reviewer)
    assert not sent["merge_pending"] and own_bytes(loop.tree) == before
    assert git(loop.tree, "rev-parse", "HEAD^1", "HEAD").split() == [head, sent["git_commit_hash"]]
    assert git(loop.tree, "diff", "--name-only", "HEAD^1", "HEAD") == NAME, "nothing else comes with it"
    loop.run_chores()
    assert own_bytes(loop.tree) == before and len(merges(loop)) == 1


def test_feedback_that_waited_comes_before_a_later_round(loop: Loop) -> None:
    """The tree is free again just before the second round's feedback is sent, and no chore has run yet."""
    (loop.tree / NAME).write_text("mine")
    assert loop.send(loop.request(), feedback="First.")["merge_pending"]
    loop.run_chores()
    second = loop.request()
    (loop.tree / NAME).unlink()
    loop.send(second, feedback="Second.")
    loop.run_chores()
    assert (loop.tree / NAME).read_text().endswith("Second.\n")
    assert merges(loop) == ["Merge review feedback, round 2", "Merge review feedback, round 1"]
    assert git(loop.tree, "status", "--porcelain") == ""
