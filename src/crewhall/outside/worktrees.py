"""
Worktrees: which there are, and how one is made, whole or not at all.

    worktrees(repo) -> list[GitWorktree(path, branch, head, is_main, is_locked, reason, is_prunable)]
    add_worktree(repo, path, branch, base, may_be_ours=False) -> Added(branch_is_new, was_there)

    registered, marked "initializing" ── files checked out ── mark removed ──▶ whole

Only the first part needs the repository's lock, so many worktrees are filled at the same time. Whoever fills one holds
a lock on its directory: a mark without that lock was left by a process that died, or belongs to somebody else's git.
How one is taken away is in removal.py.
"""

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crewhall.errors import Conflict, Failure, InvalidInput, InvalidState, NotFound, TimedOut
from crewhall.outside.disk import FULL, delete, hold, is_held, room_hint
from crewhall.outside.git import LAZY_FETCH, LOCK_SECONDS, GitRepository, lock, pause, refusal, version
from crewhall.outside.program_files import open_plain
from crewhall.outside.root_path import real_path
from crewhall.outside.run import Ended
from crewhall.outside.saving import git_dir_of
from crewhall.outside.worktree_place import refuse_strange, refuse_unmade, safe_place

HALF_MADE = "initializing"  # git's own lock on a worktree that it is making
SINCE_NULS = (2, 36)
LOOKS = 10
LOG_BYTES = 64_000  # of a reflog's end
TRASH = ".crewhall-removed"  # how a directory ends that waits for its deletion
MOST_NAME = 255  # bytes of a file's name
UNWRITTEN = re.compile(b"(unable to|couldn't|could not) write|write error|No space left|quota exceeded")


@dataclass(frozen=True)
class GitWorktree:
    """One worktree as git knows it. `branch` is None when detached, `head` when there is no commit."""

    path: str
    branch: str | None
    head: str | None
    is_main: bool
    is_locked: bool = False
    reason: str = ""
    is_prunable: bool = False

    @property
    def is_half_made(self) -> bool:
        return self.is_locked and self.reason == HALF_MADE


@dataclass(frozen=True)
class Added:
    """`was_there`: an earlier call had made it or begun it; whether its branch was new, that call's caller knows."""

    branch_is_new: bool
    was_there: bool = False


def worktrees(repo: GitRepository) -> list[GitWorktree]:
    """All worktrees of a repository, the main one first, also those whose directory is gone."""
    ends = "\0" if version() >= SINCE_NULS else "\n"
    blocks = _porcelain_list(repo, ["-z"] if ends == "\0" else []).split(ends * 2)
    lines = [block.strip(ends).split(ends) for block in blocks if block.strip(ends)]
    first, *others = [_worktree(dict(line.partition(" ")[::2] for line in each)) for each in lines]
    return [replace(first, path=repo.root, is_main=True), *others]


def _porcelain_list(repo: GitRepository, options: list[str]) -> str:
    """The output of `git worktree list`. It fails while another process creates a worktree, so this retries."""
    for _ in range(LOOKS - 1):
        ended = repo.git("worktree", "list", "--porcelain", *options)
        if ended.code == 0:
            return os.fsdecode(ended.out)
        pause(repo.stop)
    return repo.text("worktree", "list", "--porcelain", *options)


def _worktree(told: dict[str, str]) -> GitWorktree:
    head = told.get("HEAD", "")
    return GitWorktree(
        real_path(told["worktree"]),
        told["branch"].removeprefix("refs/heads/") if "branch" in told else None,
        head if head.strip("0") else None,
        is_main=False,
        is_locked="locked" in told,
        reason=told.get("locked", ""),
        is_prunable="prunable" in told,
    )


def at(repo: GitRepository, path: str) -> GitWorktree | None:
    """The worktree that git knows at a path."""
    return next((each for each in worktrees(repo) if each.path == path), None)


def last_head(repo: GitRepository, path: str) -> str:
    """The commit that a worktree was last on, by its reflog; empty when it has none."""
    try:
        with open_plain(Path(git_dir_of(repo, path), "logs", "HEAD")) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            lines = file.read(LOG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[-1].split()[1] if lines and len(lines[-1].split()) > 1 else ""


def trash_of(path: str) -> str:
    """Where a worktree waits for its deletion, out of everybody's way; all in it has been saved."""
    parent, name = os.path.split(path)
    return os.path.join(parent, f".{name}{TRASH}")


def add_worktree(repo: GitRepository, path: str, branch: str, base: str, may_be_ours: bool = False) -> Added:
    """Make a worktree on a branch, which begins at `base` if it is new; parent directories are made.

    Calling again finds the finished one. One that is half made is cleared away when `may_be_ours` says that a process
    of ours may have been killed over it. If it fails nothing stays behind. Raises Conflict when the path is taken, half
    made by others, or the branch is checked out elsewhere, InvalidInput for a bad branch name or path, NotFound for an
    unknown base, InvalidState when the disk refuses.
    """
    repo.refuse_bad_branch(branch)
    with _plainly(path):
        path = safe_place(repo.root, path)
    _refuse_bad_path(path)
    with _plainly(path), contextlib.ExitStack() as held:
        with lock_for(repo, path) as (alone, there):
            if there is not None and not there.is_half_made:
                return _reuse(alone, there, branch)
            if there is not None:
                _refuse_in_the_making(there, may_be_ours)
                clear_half_made(alone, there)
            _refuse_taken(alone, path, branch)
            making = _Making(alone, path, branch, base)
            making.register(alone)
            handle = held.enter_context(hold(path))
        making.check_out(replace(repo, keep=(handle,)), handle)
    return Added(making.is_new, was_there=there is not None)


@contextlib.contextmanager
def lock_for(repo: GitRepository, path: str) -> Iterator[tuple[GitRepository, GitWorktree | None]]:
    """Be alone in a repository, and with the worktree at a path: one that is being filled is waited for.

    Gives what `lock` gives, and the worktree that git knows there. Raises TimedOut when others take too long.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        with lock(repo) as alone:
            was_held = is_held(path)  # before the mark is looked at: whoever fills it may be done in between
            there = at(alone, path)
            if there is None or not there.is_half_made or not was_held:
                yield alone, there
                return
        if time.monotonic() > deadline:
            raise TimedOut(f"others are busy in {path}", hint="Try again when they are done.")
        pause(repo.stop)


def _refuse_bad_path(path: str) -> None:
    if any(part.startswith(".") and part.endswith(TRASH) for part in path.split("/")):
        raise InvalidInput(
            f"{path} is named like what the hall is about to delete", hint=f"Choose a path without {TRASH}."
        )
    if len(os.fsencode(os.path.basename(trash_of(path)))) > MOST_NAME:  # it could never be moved aside
        most = MOST_NAME - len(f".{TRASH}")
        raise InvalidInput(
            f"{path} is too long: its last part may have {most} bytes",
            hint="Choose a shorter path, or a shorter branch if the path comes from that.",
        )


@contextlib.contextmanager
def _plainly(path: str) -> Iterator[None]:
    """What the disk refuses, as a failure that tells what to do."""
    try:
        yield
    except OSError as error:
        told = f"{path} can't be made: {error.strerror or error}"
        if error.errno == errno.ENAMETOOLONG:
            raise InvalidInput(told, hint="Choose a shorter path.") from None
        home = os.path.dirname(path)
        writable = f"Make {home} a directory that the hall can write to, or a link to one."
        raise InvalidState(told, hint=room_hint(home) if error.errno in FULL else writable) from None


def _refuse_in_the_making(there: GitWorktree, may_be_ours: bool) -> None:
    if not may_be_ours:
        raise Conflict(
            f"{there.path} is being made by another git",
            hint=f"Wait until it is done, or choose another path. If no git runs there any more, "
            f"`git worktree remove -f -f {there.path}` clears it away.",
        )


def clear_half_made(repo: GitRepository, tree: GitWorktree) -> None:
    """Take away a worktree that git was killed over; there is nothing in it but what git itself had put there."""
    delete(tree.path)
    forget(repo, tree.path)


def forget(repo: GitRepository, path: str) -> None:
    """Make git forget one worktree whose directory is gone; the person's other entries stay."""
    ended = repo.git("worktree", "remove", "--force", "--force", "--", path)
    if ended.code != 0:
        raise refusal(ended, f"forget the worktree {path}")


def _reuse(repo: GitRepository, there: GitWorktree, branch: str) -> Added:
    """Reuse the worktree at the path. Raises Conflict when it is on another branch or its directory is gone."""
    if there.branch != branch:
        raise Conflict(
            f"{there.path} is already a worktree, of {there.branch or there.head}", hint="Choose another path."
        )
    if not os.path.isdir(there.path):
        raise Conflict(
            f"git knows a worktree at {there.path} whose directory is gone",
            hint="Remove that workspace first, or run `git worktree prune`.",
        )
    git_dir_of(repo, there.path)
    return Added(branch_is_new=False, was_there=True)


def _refuse_taken(repo: GitRepository, path: str, branch: str) -> None:
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path) or os.listdir(path)):
        raise Conflict(f"{path} is there already, and is not an empty directory", hint="Choose another path.")
    for tree in worktrees(repo):
        if tree.branch == branch:
            gone = "" if os.path.isdir(tree.path) else ", whose directory is gone (`git worktree prune` forgets it)"
            raise Conflict(
                f"the branch {branch} is checked out at {tree.path}{gone}",
                hint="Choose another branch, or remove that worktree.",
            )


class _Making:
    """A worktree on its way, and what was there before: if it fails, nothing stays behind."""

    def __init__(self, repo: GitRepository, path: str, branch: str, base: str) -> None:
        self.path, self.branch = path, branch
        self.is_new = not repo.branch_exists(branch)
        commit = repo.commit_of(repo.base_of(base) if self.is_new else f"refs/heads/{branch}")
        if commit is None:
            raise NotFound(
                f"{base} is no commit of {repo.root}", hint="Give a branch, a tag or a commit that is there."
            )
        self.commit = commit
        self._was_empty = os.path.isdir(path)
        self._missing = _missing_parents(path)

    def register(self, repo: GitRepository) -> None:
        """Let git make the branch and an empty worktree that is marked as half made. The repository is locked."""
        new = ("--no-track", "-b", self.branch, "--", self.path, self.commit)
        words = new if self.is_new else ("--", self.path, self.branch)
        self._make_parents(repo)  # until this is done, what is at the path may be anybody's, and is not undone
        try:
            delete(trash_of(self.path))
            self._run(repo, "worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", HALF_MADE, *words)
        except BaseException:
            self._undo(_calm(repo))
            raise

    def _make_parents(self, repo: GitRepository) -> None:
        """Make the missing directories above the path. Raises Conflict, Forbidden if another user interferes."""
        made: list[str] = []
        try:
            for parent in reversed(_missing_parents(self.path)):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parent, 0o755)  # whatever the umask, others may not write it
                    made.append(parent)
            refuse_unmade(repo.root, self.path)
        except BaseException:
            for parent in reversed(made):
                with contextlib.suppress(OSError):
                    os.rmdir(parent)
            raise

    def check_out(self, repo: GitRepository, handle: int) -> None:
        """Fill the worktree as git itself does, and take the mark away. The handle holds its directory."""
        try:
            refuse_strange(repo.root, self.path, handle)
            git_dir = git_dir_of(repo, self.path)
            env = {"GIT_DIR": git_dir, "GIT_WORK_TREE": self.path} | LAZY_FETCH
            self._run(repo, "reset", "--hard", "--quiet", "--no-recurse-submodules", cwd=self.path, env=env)
            os.unlink(os.path.join(git_dir, "locked"))
        except BaseException:
            with lock(_calm(repo)) as alone:
                self._undo(alone)
            raise

    def _run(self, repo: GitRepository, *words: str, **more: Any) -> None:
        ended = repo.git(*words, **more)
        if ended.code != 0:
            raise _add_failure(repo, ended, self.path)

    def _undo(self, repo: GitRepository) -> None:
        with contextlib.suppress(Failure):  # then it is named by what hindered it first
            delete(self.path)
        if at(repo, self.path) is not None:
            forget(repo, self.path)
        if self.is_new and repo.branch_exists(self.branch):
            repo.delete_ref(f"refs/heads/{self.branch}", self.commit)
        if self._was_empty:
            os.makedirs(self.path)
        for parent in (os.path.join(repo.git_dir, "worktrees"), *self._missing):
            with contextlib.suppress(OSError):  # another worktree may be in it by now
                os.rmdir(parent)


def _calm(repo: GitRepository) -> GitRepository:
    """The repository without a stop: the caller may have given up, and what was begun is still cleared away."""
    return replace(repo, stop=None)


def _add_failure(repo: GitRepository, ended: Ended, path: str) -> Failure:
    """Git's words; it often keeps it to itself that a disk is full."""
    is_unwritten = UNWRITTEN.search(ended.err)
    hint = room_hint(os.path.dirname(path), repo.git_dir) if is_unwritten else "Fix what git says, then try again."
    return refusal(ended, f"make the worktree {path}", f"Nothing was made. {hint}")


def _missing_parents(path: str) -> list[str]:
    """The directories above a path that are not there yet, the deepest first."""
    missing = []
    parent = os.path.dirname(path)
    while not os.path.lexists(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    return missing
