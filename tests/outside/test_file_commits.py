"""A file committed onto a branch in which somebody works: all else stays, to the byte, whoever is killed."""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from crewhall.errors import InvalidState
from crewhall.outside.file_commits import TRIES, Hindered, OneFileChange, advance, commit_file, write_blob
from crewhall.outside.git import GitRepository, open_repository
from crewhall.outside.worktrees import add_worktree
from tests.outside.repos import change, commit, fingerprint, git, make_repository
from tests.sizes import size

NAME = "REVIEW_FEEDBACK.md"
NOW = 1_800_000_000_000


class Desk:
    """A repository with a worktree in which somebody works."""

    def __init__(self, directory: Path) -> None:
        self.repo = make_repository(directory / "shop")
        self.tree = directory / "shop-worktrees" / "work-1-a1"
        add_worktree(self.repo, str(self.tree), "work-1-a1", "main")
        self.fork = git(self.tree, "rev-parse", "HEAD")

    def feedback(self, text: str = "fix it\n", mark: str = "fb_1") -> OneFileChange:
        """The merge of a commit with the file, made where the branch was forked."""
        plain = OneFileChange(NAME, write_blob(self.repo, text.encode()), "Feedback", mark, NOW)
        return replace(plain, merges=commit_file(self.repo, self.fork, plain), message="Merge feedback")

    def put(self, what: OneFileChange) -> str:
        return advance(self.repo, str(self.tree), "work-1-a1", what)

    def status(self) -> str:
        return git(self.tree, "status", "--porcelain")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_file_is_merged_and_twice_is_once(desk: Desk) -> None:
    before = git(desk.tree, "rev-parse", "HEAD")
    what = desk.feedback()
    made = desk.put(what)
    assert desk.put(what) == made == git(desk.tree, "rev-parse", "HEAD")
    assert git(desk.tree, "rev-parse", "HEAD^1", "HEAD^2").split() == [before, what.merges]
    assert (desk.tree / NAME).read_text() == "fix it\n" and desk.status() == ""
    assert git(desk.tree, "diff", "--name-only", "HEAD^1") == NAME


def test_a_later_one_replaces_it_and_a_removal_takes_it_away(desk: Desk) -> None:
    desk.put(desk.feedback())
    desk.put(desk.feedback("again\n", "fb_2"))
    assert (desk.tree / NAME).read_text() == "again\n" and desk.status() == ""
    desk.put(OneFileChange(NAME, None, "Remove the feedback", "fb_3", NOW))
    assert not (desk.tree / NAME).exists() and desk.status() == ""
    assert git(desk.tree, "diff", "--name-only", "main") == ""


def test_a_link_in_place_of_the_new_file_leads_it_nowhere(desk: Desk, tmp_path: Path) -> None:
    """The mark is told to whoever gets the feedback."""
    (tmp_path / "mine").write_text("mine")
    (desk.tree / f".{NAME}.fb_1").symlink_to(tmp_path / "mine")
    desk.put(desk.feedback())
    assert (tmp_path / "mine").read_text() == "mine"
    assert (desk.tree / NAME).read_text() == "fix it\n" and not (desk.tree / NAME).is_symlink()


def stage_and_edit(desk: Desk) -> None:
    change(desk.tree / "file-0", "staged")
    git(desk.tree, "add", "file-0")
    change(desk.tree / "file-0", "staged, then edited", 5)
    change(desk.tree / "file-1", "edited")
    (desk.tree / "file-2").unlink()
    (desk.tree / "new.txt").write_text("untracked")
    (desk.tree / "added.txt").write_text("added")
    git(desk.tree, "add", "added.txt")


def commit_ten(desk: Desk) -> None:
    for number in range(10):
        change(desk.tree / "file-0", f"commit {number}", number)
        commit(desk.tree, f"commit {number}")


@pytest.mark.parametrize("prepare", [stage_and_edit, commit_ten])
def test_the_coders_own_work_stays_to_the_byte(desk: Desk, prepare: Callable[[Desk], None]) -> None:
    prepare(desk)
    files, status = fingerprint(desk.tree, (NAME,)), desk.status()
    staged = git(desk.tree, "diff", "--cached")
    desk.put(desk.feedback())
    assert fingerprint(desk.tree, (NAME,)) == files and desk.status() == status
    assert git(desk.tree, "diff", "--cached") == staged and (desk.tree / NAME).read_text() == "fix it\n"


def edit_file(desk: Desk) -> None:
    desk.put(desk.feedback("earlier\n", "fb_0"))
    (desk.tree / NAME).write_text("done: all of it\n")


def delete_file(desk: Desk) -> None:
    edit_file(desk)
    (desk.tree / NAME).unlink()


def own_file(desk: Desk) -> None:
    (desk.tree / NAME).write_text("mine\n")


def begin_merge(desk: Desk) -> None:
    git(desk.tree, "branch", "side")
    change(desk.tree / "file-0", "ours")
    commit(desk.tree, "ours")
    git(desk.repo.root, "worktree", "add", "-q", f"{desk.tree}-side", "side")
    change(Path(f"{desk.tree}-side", "file-0"), "theirs")
    commit(f"{desk.tree}-side", "theirs")
    git(desk.tree, "merge", "side", check=False)


def begin_rebase(desk: Desk) -> None:
    begin_merge(desk)
    git(desk.tree, "merge", "--abort")
    git(desk.tree, "rebase", "side", check=False)


def take_lock(desk: Desk) -> None:
    Path(git(desk.tree, "rev-parse", "--absolute-git-dir"), "index.lock").touch()


def switch_away(desk: Desk) -> None:
    git(desk.tree, "switch", "-q", "-c", "aside")


HINDRANCES = [edit_file, delete_file, own_file, begin_merge, begin_rebase, take_lock, switch_away]


@pytest.mark.parametrize("hinder", HINDRANCES)
def test_a_hindrance_is_named_and_nothing_changes(desk: Desk, hinder: Callable[[Desk], None]) -> None:
    hinder(desk)
    what = desk.feedback()
    before = fingerprint(desk.tree), fingerprint(Path(desk.repo.git_dir), ("objects",))
    with pytest.raises(Hindered) as hindered:
        desk.put(what)
    assert hindered.value.hint and str(desk.tree) in hindered.value.message
    assert (fingerprint(desk.tree), fingerprint(Path(desk.repo.git_dir), ("objects",))) == before


def test_a_hindrance_that_is_over_hinders_no_more(desk: Desk) -> None:
    take_lock(desk)
    with pytest.raises(Hindered):
        desk.put(desk.feedback())
    Path(git(desk.tree, "rev-parse", "--absolute-git-dir"), "index.lock").unlink()
    desk.put(desk.feedback())
    assert desk.status() == ""


def test_a_worktree_that_is_gone_is_told(desk: Desk) -> None:
    git(desk.repo.root, "worktree", "remove", "--force", str(desk.tree))
    with pytest.raises(InvalidState, match="no worktree"):
        desk.put(desk.feedback())


def put_in_a_process(root: str, tree: str, what: OneFileChange) -> None:
    advance(open_repository(root), tree, "work-1-a1", what)


def killed_on_the_way(repo: GitRepository, tree: Path, what: OneFileChange, seconds: float) -> None:
    process = multiprocessing.get_context("fork").Process(target=put_in_a_process, args=(repo.root, str(tree), what))
    process.start()
    process.join(seconds)
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()


@pytest.mark.parametrize("seed", range(size(8, 200)))
def test_whoever_is_killed_on_the_way_the_next_call_finishes(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    stage_and_edit(desk)
    files, status = fingerprint(desk.tree, (NAME,)), desk.status()
    what = desk.feedback()
    for _ in range(3):
        killed_on_the_way(desk.repo, desk.tree, what, chance.uniform(0.01, 0.09))
    made = desk.put(what)
    assert fingerprint(desk.tree, (NAME,)) == files and desk.status() == status
    log = git(desk.tree, "log", "--format=%H", "--grep=Crewhall-Change: fb_1", "--first-parent").split()
    assert log == [made] and (desk.tree / NAME).read_text() == "fix it\n"
    left = [
        one
        for one in os.listdir(git(desk.tree, "rev-parse", "--absolute-git-dir"))
        if "crewhall" in one or "lock" in one
    ]
    assert left == []


RIVAL = """\
#!/bin/sh
case " $* " in *" commit-tree "*)
  left=$(cat {count})
  if [ "$left" -gt 0 ]; then
    echo $((left - 1)) > {count}
    env -i {git} -c user.name=Ada -c user.email=ada@example.org -C {tree} commit -q --allow-empty -m mine || exit 1
  fi
esac
exec {git} "$@"
"""


@pytest.mark.parametrize(("rivals", "is_placed"), [(TRIES - 1, True), (TRIES, False)])
def test_the_last_try_counts(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rivals: int, is_placed: bool
) -> None:
    """The coder commits while we make our commit, so many times."""
    what, count, own = desk.feedback(), tmp_path / "count", tmp_path / "bin"
    count.write_text(f"{rivals}\n")
    own.mkdir()
    (own / "git").write_text(RIVAL.format(count=count, git=shutil.which("git"), tree=desk.tree))
    (own / "git").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{own}:{os.environ['PATH']}")
        with nullcontext() if is_placed else pytest.raises(Hindered, match="moves all the time"):
            desk.put(what)
    subjects = git(desk.tree, "log", "--first-parent", "--format=%s").splitlines()
    assert subjects.count("Merge feedback") == is_placed and subjects.count("mine") == rivals
    assert desk.status() == ""


def test_commits_of_the_coder_at_the_same_time_are_all_there(desk: Desk) -> None:
    once = 'git commit -q --allow-empty -m "mine $n"'
    words = f"for n in 1 2 3 4 5 6 7 8; do {once} || {once} || exit 1; done"
    who = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "user.name"}
    who |= {"GIT_CONFIG_VALUE_0": "Ada", "GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "ada@example.org"}
    coder = subprocess.Popen(["sh", "-c", words], cwd=desk.tree, env=os.environ | who, stderr=subprocess.PIPE)
    placed = []
    for number in range(4):
        try:
            placed.append(desk.put(desk.feedback(f"{number}\n", f"fb_{number}")))
        except Hindered as hindered:
            assert "lock" in hindered.message or "moves all the time" in hindered.message
    coder.wait(20)
    subjects = git(desk.tree, "log", "--first-parent", "--format=%s").splitlines()
    assert subjects.count("Merge feedback") == len(placed) and desk.status() == ""
    if coder.returncode == 0:
        assert {f"mine {n}" for n in range(1, 9)} <= set(subjects)
