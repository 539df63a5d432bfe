"""
A worktree taken away, and nothing of it lost.

    remove_worktree(repo, path, branch, delete_branch, ref_prefix) -> Removed(saved_refs, was_there, branch_deleted)

    there ── save its work ── move it aside ── save again ── forget it ── delete it ── delete the branch ──▶ gone

A process killed between any two steps leaves what the next call finishes. The directory is moved before it is deleted,
so there is never a half-deleted one whose missing files would be taken for the agent's work; and what was written on
the way is saved where it was moved to, until nothing new is found there.
"""

import contextlib
import glob
import os
from dataclasses import dataclass

from crewhall.errors import Conflict, InvalidState
from crewhall.outside.disk import delete, refuse_mounts
from crewhall.outside.git import GitRepository
from crewhall.outside.program_files import read_plain
from crewhall.outside.saving import (
    STATE_BYTES,
    git_dir_of,
    is_kept,
    keep_under,
    namespace,
    place_of_state,
    save_staged,
    save_work,
)
from crewhall.outside.submodules import module_dirs, module_of, repositories_below, save_modules
from crewhall.outside.worktree_place import true_path
from crewhall.outside.worktrees import (
    GitWorktree,
    clear_half_made,
    forget,
    lock_for,
    trash_of,
    worktrees,
)
from crewhall.paths import is_below

SAVES = 3  # of what was moved aside, before it is said that somebody goes on writing there
HOME = "-worktrees"  # how a directory ends that is made for worktrees, and goes with the last of them


@dataclass(frozen=True)
class Removed:
    """What a removal did: the refs that now keep work, whether git knew the worktree, whether the branch went too."""

    saved_refs: tuple[str, ...]
    was_there: bool
    branch_deleted: bool


def remove_worktree(
    repo: GitRepository, path: str, branch: str | None, delete_branch: bool, ref_prefix: str
) -> Removed:
    """Take a worktree away, with its branch if `delete_branch`, after saving what nothing else keeps.

    Work goes under `ref_prefix`, the branch's tip under `ref_prefix-branch`, submodules' `-submodule-<name>`;
    what git ignores is not saved. Doing it twice is fine, and so is a directory that is gone. A branch that is in use
    elsewhere stays, and so does a parent directory unless it is one for worktrees. Raises InvalidState, and changes
    nothing, for the main worktree, one that is locked, one with a repository that is no submodule, a mounted disk, a
    live process or something unreadable inside, and a directory that is no worktree of this repository; InvalidState
    as well, with all of it still there, when somebody goes on writing in it; Conflict when the branch moves meanwhile.
    """
    path = true_path(path)
    with lock_for(repo, path) as (alone, there):
        _refuse(alone, path, there)
        doomed = branch if branch and delete_branch and not _is_used(alone, branch, path) else None
        refs = _take_away(alone, there, doomed, ref_prefix) if there else []
        delete(trash_of(path))
        tip = alone.commit_of(f"refs/heads/{doomed}") if doomed else None
        if tip and not is_kept(alone, tip, doomed, namespace(ref_prefix)):
            refs.append(keep_under(alone, f"{ref_prefix}-branch", tip))
        if doomed and tip:
            _delete_branch(alone, doomed, tip)
        if os.path.dirname(path).endswith(HOME):
            with contextlib.suppress(OSError):  # others are in it, or it is gone
                os.rmdir(os.path.dirname(path))
        return Removed(tuple(refs), there is not None, tip is not None)


def _refuse(repo: GitRepository, path: str, there: GitWorktree | None) -> None:
    if path in (repo.root, repo.git_dir):
        raise InvalidState(f"{path} is the repository's main worktree", hint="Name a worktree that the hall made.")
    if there is None and os.path.lexists(path):
        raise InvalidState(
            f"{path} is not a worktree of the repository at {repo.root}", hint="Look at it, and delete it by hand."
        )
    if there is None or there.is_half_made:
        return
    if there.is_locked:
        raise InvalidState(
            f"{path} is locked: {there.reason or 'no reason given'}", hint=f"Run `git worktree unlock {path}` first."
        )
    if os.path.lexists(path):
        refuse_mounts(path)
        _refuse_nested(path, git_dir_of(repo, path))
        _refuse_busy(path)


def _refuse_nested(path: str, git_dir: str) -> None:
    """Repositories inside have commits of their own, which are saved for submodules only."""
    modules = module_dirs(git_dir)
    nested = [top for top in repositories_below(path, _refuse_unread) if module_of(top) not in modules]
    if nested:
        raise InvalidState(
            f"{path} has {len(nested)} repositories of its own inside, the first at {nested[0]}",
            hint="Push or move away what they hold and delete them, then try again.",
        )


def _refuse_unread(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # it is gone already
        raise InvalidState(
            f"{error.filename} can't be looked into: {error.strerror}",
            hint="Let the hall's user read it, or delete it, then try again.",
        )


def _refuse_busy(path: str) -> None:
    """Linux says where a process is; elsewhere this finds none."""
    for link in glob.iglob("/proc/[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            where = os.readlink(link)
            process = os.path.dirname(link)
            if is_below(where, path) and not _is_of_our_git(process):
                with open(f"{process}/comm", encoding="utf-8", errors="replace") as file:
                    name = file.read().strip()
                raise InvalidState(
                    f"process {os.path.basename(process)} ({name}) is working in {where}",
                    hint="End it, or let it leave the directory, then try again.",
                )


def _is_of_our_git(process: str) -> bool:
    """Whether it is a git of ours, which looks at the worktree for a forecast and soon ends, or what that started."""
    with open(f"{process}/stat", "rb") as file:
        name, _, more = file.read().partition(b" (")[2].rpartition(b")")
    parent = int(more.split()[1])
    if parent == os.getpid():
        return name == b"git"
    return parent > 1 and _is_of_our_git(f"/proc/{parent}")


def _is_used(repo: GitRepository, branch: str, path: str) -> bool:
    """Whether another worktree is on the branch, or in the middle of rebasing it."""
    if any(tree.branch == branch and tree.path != path for tree in worktrees(repo)):
        return True
    own = _git_dir_at(repo, path)
    for place in (repo.git_dir, *glob.iglob(os.path.join(glob.escape(repo.git_dir), "worktrees", "*"))):
        for name in ("rebase-merge/head-name", "rebase-apply/head-name"):
            with contextlib.suppress(OSError):
                rebased = os.fsdecode(read_plain(os.path.join(place, name), STATE_BYTES)).strip()
                if place != own and rebased == f"refs/heads/{branch}":
                    return True
    return False


def _git_dir_at(repo: GitRepository, path: str) -> str | None:
    """The git directory of the worktree at a path, which need not be there any more."""
    places = glob.iglob(os.path.join(glob.escape(repo.git_dir), "worktrees", "*"))
    return next((place for place in places if place_of_state(place) == path), None)


def _take_away(repo: GitRepository, there: GitWorktree, doomed: str | None, ref: str) -> list[str]:
    """Move a worktree aside and make git forget it; returns the refs that now keep its work."""
    if there.is_half_made:
        clear_half_made(repo, there)
        return []
    keeping = _Keeping(repo, there, doomed, ref)
    trash = trash_of(there.path)
    if os.path.lexists(there.path):
        keeping.save(there.path)
        delete(trash)
        _move(there.path, trash)
    if os.path.lexists(trash):
        keeping.save_to_the_last(trash)
    else:
        keeping.save_staged()
    forget(repo, there.path)
    return keeping.refs


class _Keeping:
    """A worktree whose work is saved again and again on its way out, and the refs that keep it."""

    def __init__(self, repo: GitRepository, there: GitWorktree, doomed: str | None, ref: str) -> None:
        self.repo, self.doomed, self.ref = repo, doomed, ref
        self.refs: list[str] = []
        self.git_dir = git_dir_of(repo, there.path) if os.path.lexists(there.path) else _git_dir_at(repo, there.path)
        self.message = f"Work in {there.path} ({there.branch or 'detached'}), saved when it was removed"

    def save(self, where: str) -> bool:
        """Save what is in a directory now; whether that was new."""
        is_new = self._keep_modules(where)
        saved = save_work(self.repo, where, self.ref, self.message, self.doomed, self.git_dir)
        return self._keep(saved.ref) or is_new

    def save_staged(self) -> None:
        if self.git_dir:
            self._keep_modules(None)
            self._keep(save_staged(self.repo, self.git_dir, self.ref, self.message, self.doomed).ref)

    def _keep_modules(self, where: str | None) -> bool:
        refs = save_modules(self.repo, where, self.git_dir, self.ref, self.message) if self.git_dir else []
        return sum(self._keep(ref) for ref in refs) > 0

    def _keep(self, ref: str | None) -> bool:
        is_new = ref is not None and ref not in self.refs
        self.refs += [ref] if ref is not None and is_new else []
        return is_new

    def save_to_the_last(self, trash: str) -> None:
        """Save what was moved aside until nothing new is in it."""
        _refuse_busy(trash)
        for _ in range(SAVES):
            if not self.save(trash):
                return
        raise InvalidState(
            f"the files in {trash} go on changing", hint="All until now is saved. End what writes there, and try again."
        )


def _move(path: str, trash: str) -> None:
    try:
        os.rename(path, trash)
    except OSError as error:
        raise InvalidState(
            f"{path} can't be moved: {error.strerror}", hint="Its work is saved. See who uses it, and try again."
        ) from None


def _delete_branch(repo: GitRepository, branch: str, tip: str) -> None:
    """Delete a branch if it still is where it was seen, and what the configuration says of it."""
    if not repo.delete_ref(f"refs/heads/{branch}", tip):
        raise Conflict(
            f"the branch {branch} moved on from {tip} while its worktree was removed",
            hint="Call again: its new commits will be saved first.",
        )
    repo.git("config", "--local", "--remove-section", f"branch.{branch}")
