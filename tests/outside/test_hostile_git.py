"""What an agent does to refs, git's files and its own worktree, and what the hall still never touches."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from crewhall.errors import Failure, InvalidState
from crewhall.outside.file_commits import Hindered, OneFileChange, advance, write_blob
from crewhall.outside.git import GitRepository, open_repository
from crewhall.outside.removal import remove_worktree
from crewhall.outside.saving import git_dir_of, keep_under, snapshot
from crewhall.outside.worktrees import add_worktree, last_head, trash_of
from tests.outside.repos import change, commit, fingerprint, git
from tests.outside.test_git import slow_git

REF = "refs/crewhall/saved/work-1"
AT = 1_700_000_000_000  # UTC milliseconds


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
        advance(repo, str(tree), "work-1", OneFileChange("NOTE.md", blob, "A note", "m1", AT))
    assert git(repo.root, "rev-parse", "main") == tip


def lead_to_main(repo: GitRepository, tree: Path) -> None:
    (tree / ".git").write_text(f"gitdir: {repo.git_dir}\n")


def lead_to_another(repo: GitRepository, tree: Path) -> None:
    (tree / ".git").write_text(f"gitdir: {repo.git_dir}/worktrees/mine\n")


def become_a_link(repo: GitRepository, tree: Path) -> None:
    tree.rename(tree.with_name("moved"))
    tree.symlink_to(tree.parent.parent / "mine")


@pytest.mark.parametrize("swap", [lead_to_main, lead_to_another, become_a_link])
def test_a_worktree_that_leads_to_the_persons_touches_nothing_of_theirs(
    repo: GitRepository, tree: Path, swap: Callable[[GitRepository, Path], None]
) -> None:
    mine = tree.parent.parent / "mine"
    git(repo.root, "worktree", "add", "-q", "-b", "mine", str(mine))
    for git_dir in (Path(repo.git_dir), Path(repo.git_dir, "worktrees/mine")):
        module = git_dir / "modules/lib"
        module.parent.mkdir()
        git(repo.root, "init", "-q", "--bare", str(module))
        git(repo.root, "config", "-f", str(module / "config"), "core.worktree", "../../lib")
    for place in (Path(repo.root), mine):
        change(place / "file-1", "staged")
        git(place, "add", "file-1")
        (place / "fresh").write_text("mine")
    swap(repo, tree)
    before = fingerprint(Path(repo.root)), fingerprint(mine)
    with pytest.raises(InvalidState, match=r"is not a worktree"):
        remove_worktree(repo, str(tree), "work-1", True, REF)
    with pytest.raises(InvalidState):
        advance(repo, str(tree), "work-1", OneFileChange("NOTE.md", None, "A note", "m1", AT))
    with pytest.raises(InvalidState):
        git_dir_of(repo, str(tree))
    assert (fingerprint(Path(repo.root)), fingerprint(mine)) == before


def test_modules_that_are_a_link_lead_to_no_other_repository(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "others" / "work"
    git(tmp_path, "init", "-q", str(other))
    (other / "a").write_text("a")
    commit(other, "theirs")
    git(other, "config", "core.worktree", str(other))
    Path(git_dir_of(repo, str(tree)), "modules").symlink_to(other.parent)
    before = fingerprint(other)
    remove_worktree(repo, str(tree), "work-1", True, REF)
    assert fingerprint(other) == before and not tree.exists()


def test_a_link_in_the_place_of_the_trash_is_removed_itself(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "inner").mkdir(parents=True)
    for path in (precious / "inner", precious):
        path.chmod(0o500)
    Path(trash_of(str(tree))).symlink_to(precious)
    before = fingerprint(precious)
    remove_worktree(repo, str(tree), "work-1", True, REF)
    assert fingerprint(precious) == before and not tree.exists()


STATE = ("index", "gitdir", "MERGE_HEAD", "rebase-merge/head-name", "rebase-apply/orig-head", "logs/HEAD")


@pytest.mark.parametrize("kind", ["pipe", "endless"])
@pytest.mark.parametrize("name", STATE)
def test_no_file_of_gits_is_waited_for(repo: GitRepository, tree: Path, name: str, kind: str) -> None:
    """Whatever an agent puts in the place of one: each call of the hall ends, and what it can't read is said."""
    file = Path(git_dir_of(repo, str(tree)), name)
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")
    quick = replace(repo, seconds=0.5)
    note = OneFileChange("NOTE.md", None, "A note", "m1", AT)
    calls: list[Callable[[], object]] = [
        lambda: last_head(quick, str(tree)),
        lambda: snapshot(quick, str(tree), "A look"),
        lambda: advance(quick, str(tree), "work-1", note),
        lambda: remove_worktree(quick, str(tree), "work-1", True, REF),
    ]
    for call in calls:
        try:
            call()
        except Failure as failure:
            assert failure.message and failure.hint


@pytest.fixture
def trap(repo: GitRepository, tmp_path: Path) -> Path:
    """A program that a repository's settings name, in a partial clone that lacks a file; what it leaves when it ran."""
    program, ran = tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    git(tmp_path, "init", "-q", str(tmp_path / "other"))
    git(repo.root, "checkout", "-q", "-b", "partial")
    (Path(repo.root) / "gone").write_text("gone\n")
    commit(repo.root, "gone")
    blob = git(repo.root, "rev-parse", "HEAD:gone")
    git(repo.root, "checkout", "-q", "main")
    Path(repo.git_dir, "objects", blob[:2], blob[2:]).unlink()
    settings = {"url": str(tmp_path / "other"), "uploadpack": str(program), "promisor": "true"}
    for name, value in settings.items():
        git(repo.root, "config", f"remote.evil.{name}", value)
    git(repo.root, "config", "extensions.partialClone", "evil")
    git(repo.root, "config", "core.repositoryFormatVersion", "1")
    git(repo.root, "config", "gpg.program", str(program))
    git(repo.root, "config", "log.showSignature", "true")
    return ran


def test_no_program_runs_when_a_partial_clone_is_read(repo: GitRepository, tree: Path, trap: Path) -> None:
    opened = open_repository(repo.root)
    assert opened.git("diff", "--stat", "main...partial", "--").code != 0
    assert opened.commit_of("f" * 40) is None
    git(tree, "update-ref", "refs/heads/work-1", "partial")
    git(tree, "read-tree", "partial")
    with suppress(Failure):
        snapshot(opened, str(tree), "A look")
    with suppress(Failure):
        remove_worktree(opened, str(tree), "work-1", True, REF)
    assert not trap.exists()


def test_a_signed_commit_runs_no_program_when_its_worktree_goes(repo: GitRepository, tree: Path, trap: Path) -> None:
    head, _, body = git(tree, "cat-file", "commit", "HEAD").partition("\n\n")
    (tree / "signed").write_text(
        f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n -----END PGP SIGNATURE-----\n\n{body}\n"
    )
    git(tree, "reset", "-q", "--soft", git(tree, "hash-object", "-t", "commit", "-w", "signed"))
    git(tree, "add", "signed")
    (tree / "signed").write_text("what is staged is another text")
    assert remove_worktree(repo, str(tree), "work-1", True, REF).saved_refs == (REF,)
    assert not trap.exists()


def test_a_checkout_of_a_partial_clone_fetches_what_it_lacks(tmp_path: Path, repo: GitRepository) -> None:
    git(repo.root, "config", "uploadpack.allowFilter", "true")
    git(repo.root, "config", "uploadpack.allowAnySHA1InWant", "true")
    clone = tmp_path / "partial"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repo.root}", str(clone))
    add_worktree(open_repository(str(clone)), str(tmp_path / "tree"), "b", "main")
    assert (tmp_path / "tree/file-0").read_text().startswith("line 0")


def test_a_worktree_that_is_swapped_before_the_file_is_written_leads_it_nowhere(
    repo: GitRepository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = f"[ -L {tree} ] || {{ mv {tree} {tree}.aside; ln -s {repo.root} {tree}; }}"
    blob = write_blob(repo, b"hello\n")
    before = fingerprint(Path(repo.root), skip=(".git",))
    monkeypatch.setenv("PATH", slow_git(tmp_path, "cat-file blob", swap)["PATH"])
    with pytest.raises(InvalidState, match="can't be written"):
        advance(repo, str(tree), "work-1", OneFileChange("NOTE.md", blob, "A note", "m1", AT))
    assert fingerprint(Path(repo.root), skip=(".git",)) == before
