"""A worktree is taken away whole, again and again if need be, and what only it had is kept."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crewhall.errors import InvalidState, TimedOut
from crewhall.outside import disk
from crewhall.outside.forecast import MergeCandidate, forecast
from crewhall.outside.git import GitRepository, lock, open_repository
from crewhall.outside.removal import SAVES, Removed, remove_worktree
from crewhall.outside.worktrees import add_worktree, trash_of, worktrees
from crewhall.stop import Stop
from tests.conftest import eventually
from tests.contract.writer import PATIENCE, SERVER
from tests.outside.repos import change, commit, fingerprint, git, make_repository, refs, unprivileged_prefix
from tests.outside.test_git import half_made, slow_git

REF = "refs/crewhall/saved/ws_1"


@pytest.fixture
def tree(repo: GitRepository, tmp_path: Path) -> Path:
    """A worktree on the branch login, with a commit, a staged file and an untracked one."""
    path = tmp_path / "shop-worktrees" / "login"
    add_worktree(repo, str(path), "login", "main")
    change(path / "file-0", "committed")
    commit(path, "work")
    (path / "staged").write_text("staged")
    git(path, "add", "staged")
    (path / "fresh").write_text("fresh")
    return path


def remove(repo: GitRepository, tree: Path, delete_branch: bool = True) -> Removed:
    return remove_worktree(repo, str(tree), "login", delete_branch, REF)


def is_clean(repo: GitRepository, tree: Path) -> bool:
    """Nothing of the worktree is left: no directory, parent, entry, branch or lock."""
    left = [tree.parent, Path(trash_of(str(tree))), *Path(repo.git_dir).glob("worktrees/*")]
    left += [*Path(repo.git_dir).rglob("*.lock")]
    return not any(os.path.lexists(path) for path in left) and not repo.branch_exists("login")


def test_a_removal_keeps_the_work_and_takes_the_rest(repo: GitRepository, tree: Path) -> None:
    tip = git(tree, "rev-parse", "HEAD")
    git(repo.root, "config", "branch.login.remote", "origin")
    assert remove(repo, tree) == Removed((REF,), was_there=True, branch_deleted=True)
    assert is_clean(repo, tree)
    assert git(repo.root, "rev-parse", f"{REF}^") == tip
    assert [git(repo.root, "show", f"{REF}:{name}") for name in ("staged", "fresh")] == ["staged", "fresh"]
    assert "branch.login" not in git(repo.root, "config", "--list")
    before = fingerprint(Path(repo.root))
    assert remove(repo, tree) == Removed((), was_there=False, branch_deleted=False)
    assert fingerprint(Path(repo.root)) == before


def test_a_clean_worktree_leaves_no_ref_while_its_branch_stays(repo: GitRepository, tree: Path) -> None:
    git(tree, "reset", "-q", "--hard")
    git(tree, "clean", "-qfd")
    beside = tree.parent / "other"
    add_worktree(repo, str(beside), "other", "main")
    assert remove(repo, tree, delete_branch=False) == Removed((), was_there=True, branch_deleted=False)
    assert repo.branch_exists("login") and not tree.exists() and beside.exists()
    assert remove(repo, tree) == Removed((f"{REF}-branch",), was_there=False, branch_deleted=True)
    assert "committed" in git(repo.root, "show", f"{REF}-branch:file-0")


def test_a_branch_that_the_worktree_left_is_saved_too(repo: GitRepository, tree: Path) -> None:
    tip = git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "-q", "--detach", "main")
    assert remove(repo, tree).saved_refs == (REF, f"{REF}-branch")
    assert refs(repo.root)[f"{REF}-branch"] == tip


@pytest.mark.parametrize("how", ["checkout", "rebase"])
def test_a_branch_that_is_used_elsewhere_stays(repo: GitRepository, tree: Path, how: str) -> None:
    change(Path(repo.root, "file-0"), "theirs")
    commit(repo.root, "theirs")
    git(tree, "checkout", "-q", "--detach")
    git(repo.root, "checkout", "-q", "login")
    if how == "rebase":
        git(repo.root, "rebase", "-q", "main", check=False)
        assert git(repo.root, "branch", "--show-current") == ""
    assert not remove(repo, tree).branch_deleted
    assert repo.branch_exists("login")


def test_two_worktrees_of_one_commit_do_not_rely_on_each_other(repo: GitRepository, tree: Path) -> None:
    git(tree, "stash", "-qu")
    git(repo.root, "stash", "drop", "-q")
    tip = git(tree, "rev-parse", "HEAD")
    twin = tree.parent / "twin"
    add_worktree(repo, str(twin), "twin", "login")
    assert remove(repo, tree).saved_refs == ()
    assert remove_worktree(repo, str(twin), "twin", True, REF).saved_refs == (REF,)
    assert refs(repo.root)[REF] == tip


def test_removals_wait_for_each_other(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    """Otherwise two of one commit could each take the other's branch for its keeper."""
    before = fingerprint(tmp_path)
    with lock(repo), pytest.raises(TimedOut):
        remove(replace(repo, stop=Stop(0.2)), tree)
    assert fingerprint(tmp_path) == before


def test_a_directory_that_is_gone_is_forgotten_and_no_other(repo: GitRepository, tree: Path) -> None:
    other = tree.parent / "other"
    add_worktree(repo, str(other), "other", "main")
    git(tree, "checkout", "-q", "--detach")
    git(tree, "commit", "-qm", "loose")
    loose = git(tree, "rev-parse", "HEAD")
    shutil.rmtree(tree)
    shutil.rmtree(other)  # the person's, perhaps on a disk that is not mounted
    assert remove(repo, tree) == Removed((REF,), was_there=True, branch_deleted=True)
    assert refs(repo.root)[REF] == loose
    assert [each.path for each in worktrees(repo)] == [repo.root, str(other)]


def test_a_half_made_one_is_taken_away(repo: GitRepository, tmp_path: Path) -> None:
    tree = tmp_path / "shop-worktrees" / "login"
    half_made(repo, tree)
    assert remove(repo, tree) == Removed((), was_there=True, branch_deleted=True)
    assert is_clean(repo, tree)


def test_a_parent_that_is_not_for_worktrees_stays(repo: GitRepository, tmp_path: Path) -> None:
    path = tmp_path / "desk" / "login"
    path.parent.mkdir()
    add_worktree(repo, str(path), "login", "main")
    assert remove(repo, path).was_there
    assert list(tmp_path.glob("desk/.*")) == list(tmp_path.glob("desk/*")) == [] and path.parent.exists()


def locked_worktree(repo: GitRepository, tree: Path) -> Path:
    git(repo.root, "worktree", "lock", "--reason", "on a stick", str(tree))
    return tree


def main_worktree(repo: GitRepository, tree: Path) -> Path:
    return Path(repo.root)


def plain_directory(repo: GitRepository, tree: Path) -> Path:
    (tree.parent / "plain").mkdir()
    return tree.parent / "plain"


def another_repository(repo: GitRepository, tree: Path) -> Path:
    make_repository(tree.parent / "other")
    return tree.parent / "other"


def replaced_worktree(repo: GitRepository, tree: Path) -> Path:
    tree.rename(tree.parent / "moved")
    make_repository(tree)
    return tree


def without_its_link(repo: GitRepository, tree: Path) -> Path:
    (tree / ".git").unlink()
    return tree


def behind_a_link(repo: GitRepository, tree: Path) -> Path:
    (tree.parent / "link").symlink_to(tree)
    return tree.parent / "link"


def nested_repository(repo: GitRepository, tree: Path) -> Path:
    make_repository(tree / "vendor" / "lib")
    return tree


def ignored_repository(repo: GitRepository, tree: Path) -> Path:
    (tree / ".gitignore").write_text("build\n")
    make_repository(tree / "build" / "deps")
    return tree


def worktree_inside(repo: GitRepository, tree: Path) -> Path:
    add_worktree(repo, str(tree / "inner"), "inner", "main")
    return tree


REASONS: list[tuple[Callable[[GitRepository, Path], Path], str]] = [
    (locked_worktree, "is locked: on a stick"),
    (main_worktree, "main worktree"),
    (plain_directory, "not a worktree"),
    (another_repository, "not a worktree"),
    (replaced_worktree, "not a worktree"),
    (without_its_link, "not a worktree"),
    (behind_a_link, "not a worktree"),
    (nested_repository, "the first at .*vendor/lib"),
    (ignored_repository, "the first at .*build/deps"),
    (worktree_inside, "the first at .*inner"),
]


@pytest.mark.parametrize(("reason", "told"), REASONS)
def test_what_may_not_be_removed_is_left_as_it_is(
    repo: GitRepository, tree: Path, tmp_path: Path, reason: Callable[[GitRepository, Path], Path], told: str
) -> None:
    path = reason(repo, tree)
    before = fingerprint(tmp_path)
    with pytest.raises(InvalidState, match=told) as refused:
        remove(repo, path)
    assert refused.value.hint
    assert fingerprint(tmp_path) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says where a process is")
def test_one_in_which_a_process_works_is_not_removed(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    (tree / "deep").mkdir()
    before = fingerprint(tmp_path)
    with subprocess.Popen(["cat"], cwd=tree / "deep", stdin=subprocess.PIPE) as worker:
        with pytest.raises(InvalidState, match=rf"process {worker.pid} \(cat\) is working in .*deep"):
            remove(repo, tree)
        assert fingerprint(tmp_path) == before
    assert remove(repo, tree).was_there


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says where a process is")
def test_a_forecast_s_own_git_does_not_count(
    repo: GitRepository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = tmp_path / "reached", tmp_path / "go"
    os.mkfifo(go)
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", slow_git(tmp_path, "add --all", f"touch {reached}; cat {go}")["PATH"])
    looking = threading.Thread(target=forecast, args=(repo, [MergeCandidate("login", str(tree), "login")]))
    looking.start()
    eventually(reached.exists)
    monkeypatch.setenv("PATH", path)
    try:
        assert remove(repo, tree).was_there
    finally:
        go.write_text("")
        looking.join(20)
    assert is_clean(repo, tree)


def test_what_is_written_while_it_is_saved_is_saved_too(
    repo: GitRepository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = f"[ ! -e {tree} ] || echo late > {tree}/late"  # after its files were read, and before it is moved
    monkeypatch.setenv("PATH", slow_git(tmp_path, "update-ref --no-deref", late)["PATH"])
    assert remove(repo, tree) == Removed((REF, f"{REF}-2"), was_there=True, branch_deleted=True)
    assert is_clean(repo, tree)
    assert git(repo.root, "show", f"{REF}-2:late") == "late"
    assert [git(repo.root, "show", f"{ref}:fresh") for ref in (REF, f"{REF}-2")] == ["fresh", "fresh"]


def test_a_commit_that_is_made_meanwhile_is_kept(
    repo: GitRepository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"env -u GIT_DIR {shutil.which('git')} -C {tree} -c user.name=A -c user.email=a@b commit -qm late >&2"
    monkeypatch.setenv("PATH", slow_git(tmp_path, "update-ref --no-deref", f"[ ! -e {tree} ] || {words}")["PATH"])
    removed = remove(repo, tree)
    assert removed.branch_deleted and is_clean(repo, tree)
    assert "late" in git(repo.root, "log", "--format=%s", removed.saved_refs[-1])


def test_files_that_go_on_changing_are_not_deleted(
    repo: GitRepository, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", slow_git(tmp_path, "add --all", "echo more >> log")["PATH"])
    with pytest.raises(InvalidState, match="go on changing"):
        remove(repo, tree)
    log = Path(trash_of(str(tree)), "log")
    log.write_text(log.read_text() + "the last line")
    monkeypatch.setenv("PATH", path)
    kept = [f"{REF}-{number}" for number in range(2, SAVES + 2)]
    assert set(refs(repo.root)) >= {REF, *kept}
    assert remove(repo, tree).saved_refs == (f"{REF}-{SAVES + 2}",)
    assert is_clean(repo, tree)
    assert git(repo.root, "show", f"{REF}-{SAVES + 2}:log").endswith("the last line")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says where a process is")
def test_one_that_was_moved_aside_waits_for_those_who_work_in_it(repo: GitRepository, tree: Path) -> None:
    """A process that entered between the look and the move."""
    trash = Path(trash_of(str(tree)))
    tree.rename(trash)
    with subprocess.Popen(["sh", "-c", "read x; echo $x > answer"], cwd=trash, stdin=subprocess.PIPE) as worker:
        with pytest.raises(InvalidState, match=rf"process {worker.pid} .* is working in {trash}"):
            remove(repo, tree)
        worker.communicate(b"done\n")
    assert remove(repo, tree).saved_refs == (REF,)
    assert git(repo.root, "show", f"{REF}:answer") == "done"


SCRIPT = """
import sys
from crewhall.errors import Failure
from crewhall.outside.git import open_repository
from crewhall.outside.removal import remove_worktree
try:
    print(remove_worktree(open_repository(sys.argv[1]), sys.argv[2], "login", True, sys.argv[3]))
except Failure as failure:
    print(failure.code, failure.message, failure.hint)
"""


def told_elsewhere(before: list[str], repo: GitRepository, tree: Path) -> str:
    """What a removal says in a process of its own, which other words may lead to."""
    words = [*before, sys.executable, "-c", SCRIPT, repo.root, str(tree), REF]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    return ended.stdout


def test_read_only_directories_are_no_obstacle(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o555)
    (tree / ".gitignore").write_text("cache\n")
    (tree / "cache" / "module" / "deep").mkdir(parents=True)
    (tree / "cache" / "module" / "deep" / "file").touch()
    (tree / "cache" / "link").symlink_to(tmp_path / "elsewhere")
    for directory in (tree / "cache" / "module" / "deep", tree / "cache" / "module", tree / "cache"):
        directory.chmod(0o555)
    assert "was_there=True" in told_elsewhere(unprivileged_prefix(), repo, tree)
    assert is_clean(repo, tree)
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o555


@pytest.mark.parametrize("name", ["notes", "ignored"])
def test_one_with_something_unreadable_inside_stays(repo: GitRepository, tree: Path, tmp_path: Path, name: str) -> None:
    (tree / ".gitignore").write_text("ignored\n")
    (tree / name).mkdir()
    (tree / name / "plan").write_text("days of work")
    before = fingerprint(tmp_path)
    (tree / name).chmod(0)
    told = told_elsewhere(unprivileged_prefix(), repo, tree)
    (tree / name).chmod(0o755)
    assert told.startswith("INVALID_STATE") and f"{name} can't be looked into: Permission denied" in told
    assert fingerprint(tmp_path) == before


def test_one_in_which_something_is_mounted_stays(repo: GitRepository, tree: Path, tmp_path: Path) -> None:
    (tree / ".gitignore").write_text("data*\n")
    data, precious = tree / "data of\tmine", tmp_path / "precious"
    for directory in (data, precious):
        directory.mkdir()
    (precious / "db").write_text("precious")
    before = fingerprint(tmp_path)
    mount = 'mount --bind "$1" "$2" || exit; shift 2; "$@"'
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(precious), str(data)]
    if sys.platform != "linux" or subprocess.run([*namespace, "true"], check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    told = told_elsewhere(namespace, repo, tree)
    assert told.startswith("INVALID_STATE") and f"something is mounted at {data}" in told
    assert fingerprint(tmp_path) == before


def test_mount_points_are_seen_without_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MOUNTS", str(tmp_path / "none"))
    disk.refuse_mounts(str(tmp_path))
    with pytest.raises(InvalidState, match="something is mounted at /dev"):
        disk.refuse_mounts("/dev")


DEADLY = "kill -9 $PPID; exit"  # the caller dies, and this step does not happen
STEPS = [
    "add --all",
    "write-tree",
    "commit-tree",
    "update-ref --no-deref",
    "worktree remove",
    "update-ref -d",
    "config",
]


def _remove(env: dict[str, str], root: str, tree: str) -> None:
    os.environ |= env
    remove_worktree(open_repository(root), tree, "login", True, REF)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("step", "is_moved"), [*((step, False) for step in STEPS), *((step, True) for step in STEPS[:3])]
)
def test_a_removal_killed_at_any_step_is_finished_by_the_next(
    repo: GitRepository, tree: Path, tmp_path: Path, step: str, is_moved: bool, after: bool
) -> None:
    deadly = f'{shutil.which("git")} "$@"; {DEADLY}' if after else DEADLY
    deadly = f"if [ -e {trash_of(str(tree))} ]; then {deadly}; fi" if is_moved else deadly
    killed = SERVER.Process(target=_remove, args=(slow_git(tmp_path, step, deadly), repo.root, str(tree)))
    killed.start()
    killed.join(PATIENCE)
    assert killed.exitcode == -signal.SIGKILL
    remove(repo, tree)
    assert is_clean(repo, tree)
    assert [name for name in refs(repo.root) if name.startswith(REF)] == [REF]
    assert git(repo.root, "show", f"{REF}:fresh") == "fresh"
    assert "committed" in git(repo.root, "show", f"{REF}:file-0")


def test_a_removal_killed_while_files_are_deleted_is_finished_by_the_next(repo: GitRepository, tree: Path) -> None:
    """What is deleted lies aside by then, so what is missing from it is not taken for work."""
    trash = Path(trash_of(str(tree)))
    git(repo.root, "update-ref", REF, "login")
    tree.rename(trash)
    git(repo.root, "worktree", "prune")
    (trash / "file-1").unlink()
    assert remove(repo, tree) == Removed((), was_there=False, branch_deleted=True)
    assert is_clean(repo, tree)
    add_worktree(repo, str(tree), "login", "main")
    assert (tree / "file-1").exists()
