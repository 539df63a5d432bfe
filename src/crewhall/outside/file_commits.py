"""
Commits that change one file, put on the branch of a worktree in which somebody works; everything else stays as it is.

    write_blob(repo, data) -> blob                          commit_file(repo, parent, change) -> commit
    advance(repo, worktree, branch, change) -> commit       on top of the branch, in the index, and in the directory

    a new index beside the old ── linked as index.lock ── branch moved ── file written ── index.lock becomes the index

Git's own lock is held from the second step to the last, so no git command of the agent comes between them. A process
that is killed on the way leaves its new index under a name of its own: the next call knows the lock by it, and goes on.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crewhall.errors import Conflict, Failure, InvalidState
from crewhall.outside.disk import scratch
from crewhall.outside.files import open_root
from crewhall.outside.git import GitRepository, lock, refusal
from crewhall.outside.program_files import read_plain
from crewhall.outside.saving import INDEX_BYTES, git_dir_of
from crewhall.outside.worktrees import at
from crewhall.outside.writing import put, take_away

TRIES = 3  # while the agent commits
LOOKED_THROUGH = 5_000  # commits of a branch, for one that was made before
BUSY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "sequencer": "a cherry-pick",
}


class Hindered(Conflict):
    """The worktree can't take the commit now; nothing was changed, and it can be tried again."""


@dataclass(frozen=True)
class OneFileChange:
    """What a commit does to one file at the top of the tree. The same change makes the same commit.

    `blob` is its new content (None: the file goes), `mark` names the change, `at` is its time in UTC milliseconds.
    `merges` is a commit that becomes the second parent.
    """

    name: str
    blob: str | None
    message: str
    mark: str
    at: int
    merges: str | None = None


def write_blob(repo: GitRepository, data: bytes) -> str:
    """Put a file's content into the repository's objects."""
    return repo.text("hash-object", "-w", "--stdin", "--no-filters", stdin=data)


def commit_file(repo: GitRepository, parent: str, change: OneFileChange) -> str:
    """A commit on top of another one, in no worktree and on no branch."""
    with scratch() as directory:
        own = {"GIT_INDEX_FILE": os.path.join(directory, "index")}
        repo.text("read-tree", parent, env=own)
        repo.text("update-index", "--index-info", env=own, stdin=_entry(change, len(parent)))
        tree = repo.text("write-tree", "--missing-ok", env=own)  # a partial clone does not have every file
    merged = ("-p", change.merges) if change.merges else ()
    time = f"{change.at // 1000} +0000"
    dates = {"GIT_AUTHOR_DATE": time, "GIT_COMMITTER_DATE": time}
    return repo.text("commit-tree", tree, "-p", parent, *merged, "-F", "-", env=dates, stdin=_message(change))


def _entry(change: OneFileChange, width: int) -> bytes:
    entry = f"100644 {change.blob}" if change.blob else f"0 {'0' * width}"
    return f"{entry}\t{change.name}\n".encode()


def _message(change: OneFileChange) -> bytes:
    return f"{change.message}\n\nCrewhall-Change: {change.mark}\n".encode()


def advance(repo: GitRepository, worktree: str, branch: str, change: OneFileChange) -> str:
    """Put the change on the branch that a worktree is on; twice is once. The commit that has it.

    Raises Hindered while the agent's own work is in the way: another branch, a merge or rebase, git's lock on the index
    or the branch, or changes of this very file that are not committed. Raises InvalidState when there is no such
    worktree.
    """
    with lock(repo) as alone:
        place = _Place(alone, worktree, branch, change)
        place.refuse_missing()
        for tries_left in range(TRIES, -1, -1):
            done = place.find_done()
            if done is not None:
                place.finish(done)
                return done
            if tries_left:
                place.refuse_busy()
                place.move_branch()
        raise Hindered(f"{branch} moves all the time", hint="It is tried again.")


class _Place:
    """A worktree, its branch, and the change that goes there."""

    def __init__(self, repo: GitRepository, worktree: str, branch: str, change: OneFileChange) -> None:
        self.repo, self.worktree, self.branch, self.change = repo, worktree, branch, change
        self.ref = f"refs/heads/{branch}"
        self.file = Path(worktree, change.name)

    def refuse_missing(self) -> None:
        there = at(self.repo, self.worktree)
        if there is None or not os.path.isdir(self.worktree):
            raise InvalidState(
                f"there is no worktree at {self.worktree}", hint="`crewhall doctor --fix` makes it again."
            )
        self.git_dir = Path(git_dir_of(self.repo, self.worktree))
        self.env = {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": self.worktree}
        self.index, self.lock = self.git_dir / "index", self.git_dir / "index.lock"
        self.new = self.git_dir / f"index.crewhall-{self.change.mark}"

    def find_done(self) -> str | None:
        """The commit of the branch that has the change already."""
        shown = "--format=%H %(trailers:key=Crewhall-Change,valueonly=true,separator=%x2C)"
        words = ("log", "--no-show-signature", "--first-parent", f"--max-count={LOOKED_THROUGH}", shown, self.ref, "--")
        pairs = (line.partition(" ") for line in self.repo.text(*words).splitlines())
        return next((commit for commit, _, mark in pairs if mark.strip() == self.change.mark), None)

    def refuse_busy(self) -> None:
        """Raise Hindered unless the worktree is on its branch, idle, and has the file as the branch has it."""
        if self._holds_lock():  # of an earlier call that was killed before it moved the branch
            self.lock.unlink()
        self.new.unlink(missing_ok=True)
        head = self.repo.git("symbolic-ref", "--quiet", "HEAD", env=self.env)
        busy = next((what for name, what in BUSY.items() if (self.git_dir / name).exists()), None)
        if busy is not None:
            raise Hindered(f"{busy} is under way in {self.worktree}", hint="It is tried again when that is over.")
        if head.out.decode("utf-8", "replace").strip() != self.ref:
            raise Hindered(f"{self.worktree} is not on {self.branch}", hint=f"Run `git switch {self.branch}` there.")
        if self.lock.exists():
            raise self._lock_failure()
        if self.repo.git("cat-file", "-t", f"{self.ref}:{self.change.name}").out == b"tree\n":
            raise Hindered(f"{self.change.name} is a directory on {self.branch}", hint="Call it something else there.")
        words = ("status", "--porcelain", "--untracked-files=all", "--ignored", "--", self.change.name)
        if self.repo.text(*words, cwd=self.worktree, env=self.env):
            raise Hindered(
                f"{self.change.name} in {self.worktree} has changes that are not committed",
                hint=f"Commit or undo them; then {self.change.name} is updated.",
            )

    def _lock_failure(self) -> Hindered:
        return Hindered(f"git's lock is held in {self.worktree}", hint="It is tried again when that git has ended.")

    def _holds_lock(self) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samefile(self.lock, self.new)
        return False

    def move_branch(self) -> None:
        """One try, from a new index to the file in the directory; nothing has changed when the branch has moved."""
        head = self.repo.commit_of(self.ref)
        if head is None:
            raise InvalidState(f"there is no branch {self.branch}", hint="`crewhall doctor --fix` makes it again.")
        before = _signature(self.index)
        commit = commit_file(self.repo, head, self.change)
        self._write_index(head)
        with self._hold_lock():
            if _signature(self.index) != before:
                return  # the agent's git was quicker
            reason = f"crewhall: {self.change.message.splitlines()[0]}"
            ended = self.repo.set_ref(self.ref, commit, head, reason, self.env)
            if ended.code == 0:
                self.finish(commit)
            elif self.repo.commit_of(self.ref) == head:
                raise Hindered(refusal(ended, f"move {self.branch}").message, hint="It is tried again.")

    def _write_index(self, head: str) -> None:
        """The worktree's index with the change in it, as a file of its own."""
        own = self.env | {"GIT_INDEX_FILE": str(self.new)}
        if self.index.exists():
            self.new.write_bytes(self._read_index())
        else:
            self.repo.text("read-tree", head, env=own)
        self.repo.text("update-index", "--index-info", cwd=self.worktree, env=own, stdin=_entry(self.change, len(head)))

    def _read_index(self) -> bytes:
        try:
            return read_plain(self.index, INDEX_BYTES)
        except OSError as error:
            raise Hindered(
                f"the index of {self.worktree} can't be read: {error.strerror or error}",
                hint="`git read-tree HEAD` makes it again.",
            ) from None

    @contextlib.contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold git's own lock on the index, which is our new index under a second name."""
        try:
            os.link(self.new, self.lock)
        except FileExistsError:
            self.new.unlink()
            raise self._lock_failure() from None
        try:
            yield
        finally:
            if self._holds_lock():
                self.lock.unlink()
            self.new.unlink(missing_ok=True)

    def finish(self, commit: str) -> None:
        """The branch has the change; now the directory and the index get it, unless they have it already."""
        if self._holds_lock():
            try:
                if self._is_unchanged_since(commit):
                    self._write_file()
            finally:
                self.lock.rename(self.index)
        self.new.unlink(missing_ok=True)

    def _is_unchanged_since(self, commit: str) -> bool:
        """Whether the directory has the file as it was before this commit: what the agent wrote meanwhile stays."""
        before = self.repo.git("rev-parse", "--verify", "--quiet", f"{commit}^1:{self.change.name}").out.strip()
        if not os.path.lexists(self.file):
            return not before
        if self.file.is_symlink() or not self.file.is_file():
            return False
        words = ("hash-object", "--", self.change.name)
        return self.repo.git(*words, cwd=self.worktree, env=self.env).out.strip() == before

    def _write_file(self) -> None:
        data = self.repo.git("cat-file", "blob", self.change.blob).out if self.change.blob else None
        above, name = os.path.split(self.change.name)
        try:
            with open_root(self.worktree) as top, top.directory(above or ".") as directory:
                take_away(directory, name) if data is None else put(directory, name, data)
        except Failure as failure:
            raise InvalidState(
                f"{self.file} can't be written: {failure.message}",
                hint=f"The branch has it: run `git checkout -- {self.change.name}` there.",
            ) from None


def _signature(path: Path) -> tuple[int, ...] | None:
    """What changes when git writes a new index."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size
