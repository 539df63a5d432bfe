"""A worktree with submodules is taken away, and what only they had is kept."""

import shutil
from pathlib import Path

import pytest

from crewhall.errors import InvalidState
from crewhall.outside.git import GitRepository
from crewhall.outside.removal import Removed, remove_worktree
from crewhall.outside.worktrees import add_worktree
from tests.outside.repos import change, commit, fingerprint, git, make_repository, refs
from tests.outside.test_git import slow_git
from tests.outside.test_removal import is_clean

REF = "refs/crewhall/saved/ws_1"
LIB = f"{REF}-submodule-lib"
ALLOWED = ("-c", "protocol.file.allow=always")


@pytest.fixture
def tree(repo: GitRepository, tmp_path: Path) -> Path:
    """A worktree in which a submodule with a submodule of its own is set up."""
    for name in ("inner", "lib"):
        make_repository(tmp_path / name)
        (tmp_path / name / "own").write_text(name)
        commit(tmp_path / name, "a history of its own")
    for name, path in (("inner", tmp_path / "lib"), ("lib", Path(repo.root))):
        git(path, *ALLOWED, "submodule", "--quiet", "add", str(tmp_path / name), name)
        commit(path, "submodule")
    tree = tmp_path / "shop-worktrees" / "login"
    add_worktree(repo, str(tree), "login", "main")
    git(tree, *ALLOWED, "submodule", "--quiet", "update", "--init", "--recursive")
    return tree


def remove(repo: GitRepository, tree: Path) -> Removed:
    return remove_worktree(repo, str(tree), "login", True, REF)


def saved(repo: GitRepository) -> list[str]:
    """The saved refs, each of them with all its commits and files."""
    git(repo.root, "fsck", "--connectivity-only", "--no-dangling")
    return [name for name in refs(repo.root) if name.startswith("refs/crewhall/")]


def test_submodules_without_work_leave_nothing(repo: GitRepository, tree: Path) -> None:
    before = fingerprint(Path(repo.root), (".git/worktrees", ".git/refs", ".git/logs"))
    assert remove(repo, tree) == Removed((), was_there=True, branch_deleted=True)
    assert is_clean(repo, tree) and saved(repo) == []
    assert fingerprint(Path(repo.root), (".git/worktrees", ".git/refs", ".git/logs")) == before


def test_commits_branches_stashes_and_files_of_a_submodule_are_kept(repo: GitRepository, tree: Path) -> None:
    lib = tree / "lib"
    git(lib, "checkout", "-q", "-b", "side")
    change(lib / "file-1", "on a branch")
    side = commit(lib, "side")
    git(lib, "checkout", "-q", "--detach", "HEAD~1")
    for number in (1, 2):
        change(lib / "file-2", f"stashed {number}")
        git(lib, "stash", "-q")
    change(lib / "file-0", "committed")
    head = commit(lib, "head")
    (lib / "new").write_text("new")
    (lib / "inner" / "deep").write_text("deep")
    assert set(remove(repo, tree).saved_refs) == {REF, LIB, f"{LIB}-modules-inner"}
    assert is_clean(repo, tree) and set(saved(repo)) == {REF, LIB, f"{LIB}-modules-inner"}
    kept = git(repo.root, "rev-list", LIB).split()
    assert {side, head} <= set(kept) and git(repo.root, "show", f"{LIB}:new") == "new"
    shown = git(repo.root, "log", "-p", "-m", "--format=", LIB)
    assert "+stashed 1" in shown and "+stashed 2" in shown
    assert git(repo.root, "show", f"{LIB}-modules-inner:deep") == "deep"


@pytest.mark.parametrize("how", ["put away", "gone"])
def test_commits_of_a_submodule_without_files_are_kept(repo: GitRepository, tree: Path, how: str) -> None:
    change(tree / "lib" / "file-0", "committed")
    tip = commit(tree / "lib", "not pushed")
    if how == "gone":
        shutil.rmtree(tree)
    else:
        git(tree, "submodule", "--quiet", "deinit", "--force", "lib")
    assert LIB in remove(repo, tree).saved_refs and is_clean(repo, tree)
    assert refs(repo.root)[LIB] == tip


def test_what_is_written_in_a_submodule_meanwhile_is_saved_too(
    repo: GitRepository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(tree / "file-0", "work")
    late = f"[ ! -e {tree} ] || echo late > {tree}/lib/late"  # after the submodule was read, and before it is moved
    monkeypatch.setenv("PATH", slow_git(tmp_path, "update-ref --no-deref -- refs/crewhall/saved/ws_1", late)["PATH"])
    remove(repo, tree)
    assert is_clean(repo, tree) and saved(repo) == [REF, LIB]
    assert git(repo.root, "show", f"{LIB}:late") == "late"


def test_a_removal_that_fails_after_saving_saves_no_second_time(repo: GitRepository, tree: Path) -> None:
    git(tree / "lib", "checkout", "-q", "-b", "side")
    git(tree / "lib", "commit", "-q", "--allow-empty", "-m", "side")
    git(tree / "lib", "checkout", "-q", "--detach", "HEAD~1")
    (tree / "lib" / "new").write_text("new")
    trash = tree.parent / ".login.crewhall-removed"
    trash.write_text("in the way of the move")
    with pytest.raises(InvalidState):
        remove(repo, tree)
    assert LIB in saved(repo) and (tree / "lib" / "new").exists()
    trash.unlink()
    remove(repo, tree)
    assert saved(repo) == [LIB] and is_clean(repo, tree)


def test_the_files_of_a_shallow_submodule_are_kept(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    git(tree, "submodule", "--quiet", "deinit", "--force", "lib")
    shutil.rmtree(Path(repo.git_dir, "worktrees", "login", "modules"))
    git(tree, "config", "submodule.lib.url", (tmp_path / "lib").as_uri())
    git(tree, *ALLOWED, "submodule", "--quiet", "update", "--init", "--depth=1")
    git(tree / "lib", "checkout", "-q", "-b", "side")
    change(tree / "lib" / "file-1", "on a branch")
    commit(tree / "lib", "side")
    git(tree / "lib", "checkout", "-q", "--detach", "HEAD~1")
    (tree / "lib" / "new").write_text("new")
    assert remove(repo, tree).saved_refs == (LIB,) and is_clean(repo, tree)
    assert saved(repo) == [LIB] and not Path(repo.git_dir, "shallow").exists()
    assert git(repo.root, "show", f"{LIB}:new") == "new"
    assert any("on a branch" in git(repo.root, "show", f"{LIB}^{number}:file-1") for number in (1, 2))


def test_a_clone_in_the_place_of_a_submodule_stays(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    git(tree, "submodule", "--quiet", "deinit", "--force", "lib")
    git(tree, "clone", "-q", str(tmp_path / "lib"), "lib")
    before = fingerprint(tmp_path)
    with pytest.raises(InvalidState, match=r"the first at .*lib"):
        remove(repo, tree)
    assert fingerprint(tmp_path) == before


def test_no_program_of_the_settings_runs_when_commits_are_copied(
    repo: GitRepository, tree: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    git(tmp_path, "init", "-q", "other")
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "other")
    Path(repo.git_dir, "objects/info").mkdir(exist_ok=True)
    Path(repo.git_dir, "objects/info/alternates").write_text(f"{tmp_path}/other/.git/objects\n")
    git(repo.root, "config", "core.alternateRefsCommand", f"touch {ran};")
    git(tree / "lib", "commit", "-q", "--allow-empty", "-m", "side")
    remove(repo, tree)
    assert LIB in saved(repo) and not ran.exists()
