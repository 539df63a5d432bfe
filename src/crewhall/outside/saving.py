"""
The uncommitted work of a worktree as a commit, made beside it: its files, index, branch and HEAD stay as they are.

    save_work(repo, path, ref, message, besides=None, git_dir=None) -> Saved(commit, ref, had_changes, skipped)
    save_staged(repo, git_dir, …) -> Saved   the same when the directory is gone
    snapshot(repo, path, message, env=None) -> Snapshot(commit, had_changes, skipped)
    keep_under(repo, ref, commit) -> str    the ref's name     is_kept(repo, commit, besides, also) -> bool
    git_dir_of(repo, path) -> str           the worktree's own git directory; `place_of_state` is the way back

What is ignored is not in it, nor what a nested repository holds. Changes that are staged and no longer in the files,
and commits that only the worktree's own state knows (a merge's other side, a rebase's autostash, refs/worktree), are
its parents. What only a reflog knows is not kept.
"""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from crewhall.errors import InvalidState, Unavailable
from crewhall.outside.disk import scratch
from crewhall.outside.git import GitRepository, refusal, version
from crewhall.outside.hostile_repository import leads_to
from crewhall.outside.program_files import open_plain, read_plain
from crewhall.outside.worktree_place import true_path

STATE_BYTES = 8_000  # of a small file of git's: each line of some costs a call of git
INDEX_BYTES = 2_000_000_000
ATTEMPTS = 3  # files come and go while an agent works
SINCE_SPARSE = (2, 34)
EMBEDDED = b"adding embedded git repository"
# Git goes on without what it can't read. Names of the worktree's own files are relative; the person's ignore file,
# which may be out of our reach, is not.
UNREAD = re.compile(rb"^warning: (?:could not|unable to) [^'\n]*'[^/\n][^\n]*", re.MULTILINE)
MERGING = ("MERGE_HEAD",)
OTHER_STATE = (
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "MERGE_AUTOSTASH",
    "rebase-merge/orig-head",
    "rebase-merge/autostash",
    "rebase-apply/orig-head",
    "rebase-apply/autostash",
)
OWN_REFS = ("refs/worktree", "refs/bisect", "refs/rewritten")
KEEPERS = ("refs/heads", "refs/tags", "refs/remotes")


@dataclass(frozen=True)
class Snapshot:
    """A worktree's state as a commit (None: no commit and no files), and the nested repositories left out of it."""

    commit: str | None
    had_changes: bool
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Saved(Snapshot):
    """The same, and the ref that now keeps it; None when something else does."""

    ref: str | None = None


def save_work(
    repo: GitRepository, path: str, ref: str, message: str, besides: str | None = None, git_dir: str | None = None
) -> Saved:
    """Put everything uncommitted into a commit under a ref, or under its next free name (`ref-2` …).

    The ref is written when nothing else keeps the work: no branch but `besides`, no tag, no remote's branch, nothing
    saved before beside `ref`. Doing it twice makes no second ref. `git_dir` is that of a worktree that was moved.
    Raises InvalidState when git can't read a file or directory, Unavailable when there is no room for temporary files.
    """
    index = _SnapshotIndex(repo, path, git_dir or git_dir_of(repo, path))
    return _keep_snapshot(repo, index.full_snapshot(message, besides, namespace(ref)), ref, besides)


def save_staged(repo: GitRepository, git_dir: str, ref: str, message: str, besides: str | None = None) -> Saved:
    """The same for a worktree whose directory is gone: its HEAD, and what was staged."""
    index = _SnapshotIndex(repo, None, git_dir)
    return _keep_snapshot(repo, index.full_snapshot(message, besides, namespace(ref)), ref, besides)


def _keep_snapshot(repo: GitRepository, taken: Snapshot, ref: str, besides: str | None) -> Saved:
    if taken.commit is None or (not taken.had_changes and is_kept(repo, taken.commit, besides, namespace(ref))):
        return Saved(taken.commit, taken.had_changes, taken.skipped)
    return Saved(taken.commit, taken.had_changes, taken.skipped, keep_under(repo, ref, taken.commit))


def snapshot(repo: GitRepository, path: str, message: str, env: Mapping[str, str] | None = None) -> Snapshot:
    """What a worktree holds now, as a commit on top of its HEAD and of what it is merging; HEAD if that is all.

    `env` may send the new objects elsewhere.
    """
    return _SnapshotIndex(repo, path, git_dir_of(repo, path), env).files_snapshot(message)


class _SnapshotIndex:
    """A temporary index that builds the commit of a worktree; `path` is None when the directory is gone."""

    def __init__(
        self, repo: GitRepository, path: str | None, git_dir: str, env: Mapping[str, str] | None = None
    ) -> None:
        self.repo, self.path, self.git_dir = repo, path, git_dir
        self.cwd = path or repo.root
        self.env = dict(env or {}) | {"GIT_DIR": git_dir, "GIT_WORK_TREE": self.cwd}
        self.index = ""
        self.has_index = True
        self.head = self._head()
        self.before = self.run_git("rev-parse", f"{self.head}^{{tree}}") if self.head else self._empty_tree()

    def _head(self) -> str | None:
        """The commit that the worktree is on; None only when there is none yet."""
        head = self.repo.commit_of("HEAD", self.env)
        if head is None and self.repo.git("rev-parse", "--verify", "--quiet", "HEAD", env=self.env).code == 0:
            raise InvalidState(f"the commit that {self.cwd} is on can't be read", hint="Run `git fsck` there.")
        return head

    def _empty_tree(self) -> str:
        return self.run_git("hash-object", "-t", "tree", "--stdin")

    def files_snapshot(self, message: str) -> Snapshot:
        """A snapshot of the worktree's files."""
        with self._index():
            skipped = self._add_everything()
            return self._snapshot(self.run_git("write-tree"), [], skipped, message)

    def full_snapshot(self, message: str, besides: str | None, also: str) -> Snapshot:
        """A snapshot of the files whose parents are all commits that would be lost with the worktree."""
        with self._index():
            staged = self._staged_tree() or self.before
            skipped = self._add_everything() if self.path else ()
            tree = self.run_git("write-tree") if self.path else staged
            lost = [self._staged_commit(staged)] if staged not in (self.before, tree) else []
            known = dict.fromkeys([*self._commits_in(OTHER_STATE), *self._own_refs()])
            lost += [commit for commit in known if not is_kept(self.repo, commit, besides, also)]
            return self._snapshot(tree, lost, skipped, message)

    def _snapshot(self, tree: str, more: list[str], skipped: tuple[str, ...], message: str) -> Snapshot:
        head = [self.head] if self.head else []
        parents = list(dict.fromkeys([*head, *self._commits_in(MERGING), *more]))
        if tree == self.before and parents == head:
            return Snapshot(self.head, False, skipped)
        return Snapshot(self._commit(tree, parents, message), True, skipped)

    def _commits_in(self, names: tuple[str, ...]) -> Iterator[str]:
        """The commits that these files of the worktree's git directory name."""
        for name in names:
            lines: list[str] = []
            with contextlib.suppress(OSError):  # it is not there, or it is no file of git's
                lines = read_plain(os.path.join(self.git_dir, name), STATE_BYTES).decode("utf-8", "replace").split("\n")
            yield from (commit for line in lines if line and (commit := self.repo.commit_of(line.strip(), self.env)))

    def _own_refs(self) -> Iterator[str]:
        """The commits of refs that only this worktree has."""
        for name in self.run_git("for-each-ref", "--format=%(objectname)", *OWN_REFS).split():
            commit = self.repo.commit_of(name, self.env)
            if commit is not None:
                yield commit

    @contextlib.contextmanager
    def _index(self) -> Iterator[None]:
        with scratch() as directory:
            self.index = self.env["GIT_INDEX_FILE"] = os.path.join(directory, "index")
            self._copy_index()
            yield

    def run_git(self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        return self.repo.text(*words, cwd=self.cwd, env=self.env | dict(env or {}), stdin=stdin)

    def _copy_index(self) -> None:
        """Begin from the worktree's index; from HEAD if it has none, as a worktree without checkout does."""
        try:
            # Its time comes along: git looks again at files that are as new as the index, and must go on doing so.
            _copy_file(Path(self.git_dir, "index"), self.index)
        except FileNotFoundError:
            self.has_index = False
            self.run_git("read-tree", self.head or "--empty")
        except OSError as error:
            raise Unavailable(
                f"the index of {self.cwd} can't be copied: {error.strerror}", hint="See that TMPDIR has room."
            ) from None
        if self.path:
            self._heed_every_file(self.path)

    def _heed_every_file(self, path: str) -> None:
        """Take away the marks by which a person told git not to look at a file, where the file is there."""
        entries = [
            entry for entry in self.run_git("ls-files", "-v", "-z").split("\0") if entry[:1] not in ("", "H", "M")
        ]
        marked = [entry for entry in entries if os.path.lexists(os.path.join(path, entry[2:]))]
        for option, names in (
            ("--no-assume-unchanged", [entry[2:] for entry in marked if entry[0].islower()]),
            ("--no-skip-worktree", [entry[2:] for entry in marked if entry[0] in "Ss"]),
        ):
            if names:
                self.run_git("update-index", option, "-z", "--stdin", stdin=os.fsencode("\0".join(names)))

    def _staged_tree(self) -> str | None:
        """What is staged; None in the middle of a conflict, whose sides are in commits."""
        ended = self.repo.git("write-tree", cwd=self.cwd, env=self.env)
        return ended.out.decode().strip() if ended.code == 0 else None

    def _add_everything(self) -> tuple[str, ...]:
        """Put the files as they are into the index; the nested repositories that were left out."""
        nested: tuple[str, ...] = ()
        for _ in range(ATTEMPTS):
            wanted = [":/", *(f":(top,exclude,literal){name}" for name in nested)]
            which = "--all" if self.has_index else "--ignore-removal"
            sparse = ["--sparse"] if version() >= SINCE_SPARSE else []
            words = ("add", which, *sparse, "--pathspec-from-file=-", "--pathspec-file-nul")
            ended = self.repo.git(*words, cwd=self.cwd, env=self.env, stdin=os.fsencode("\0".join(wanted)))
            unread = UNREAD.search(ended.err)
            if ended.code == 0 and EMBEDDED not in ended.err and unread is None:
                return nested
            self._copy_index()
            nested = self._nested_repositories()
        ended = replace(ended, err=unread[0]) if unread else ended
        raise refusal(ended, f"read all files of {self.path}", "See that its files can be read, and try again.")

    def _nested_repositories(self) -> tuple[str, ...]:
        others = self.run_git("ls-files", "--others", "--exclude-standard", "-z").split("\0")
        return tuple(name.rstrip("/") for name in others if name.endswith("/"))

    def _staged_commit(self, tree: str) -> str:
        """A commit of what is staged. It is dated as HEAD is, so that making it again gives the same one."""
        date = self.run_git("show", "--no-patch", "--format=%cI", self.head) if self.head else "2000-01-01T00:00:00Z"
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        return self._commit(tree, [self.head] if self.head else [], "What was staged", dates)

    def _commit(self, tree: str, parents: list[str], message: str, env: Mapping[str, str] | None = None) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        return self.run_git(
            "commit-tree", "--no-gpg-sign", *words, tree, stdin=message.encode("utf-8", "replace"), env=env
        )


def _copy_file(source: Path, target: str) -> None:
    """Copy a file with its time. Raises OSError for what is no file."""
    with open_plain(source) as file, open(target, "wb") as copy:
        facts = os.fstat(file.fileno())
        if facts.st_size > INDEX_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        shutil.copyfileobj(file, copy)
    os.utime(target, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def git_dir_of(repo: GitRepository, path: str) -> str:
    """The git directory of one worktree, which names that worktree in turn.

    Raises InvalidState when the path is not the top of one of this repository, or leads to the state of another one.
    """
    found, own = leads_to(path), true_path(path)
    if found == repo.git_dir and own == repo.root:
        return found
    if os.path.dirname(found) == os.path.join(repo.git_dir, "worktrees") and place_of_state(found) == own:
        return found
    raise InvalidState(
        f"{path} is not a worktree of the repository at {repo.root}",
        hint="Name the top of one of its worktrees; `git worktree list` shows them, `git worktree repair` mends one.",
    )


def place_of_state(git_dir: str) -> str | None:
    """The worktree that one of the directories in `worktrees` is the state of; it need not be there any more."""
    try:
        link = os.fsdecode(read_plain(os.path.join(git_dir, "gitdir"), STATE_BYTES)).rstrip("\r\n")
    except OSError:
        return None
    return true_path(os.path.dirname(os.path.join(git_dir, link)))


def namespace(ref: str) -> str:
    return ref.rpartition("/")[0]


def is_kept(repo: GitRepository, commit: str, besides: str | None, also: str = "") -> bool:
    """Whether a branch other than `besides`, a tag, a remote's branch or a ref below `also` has the commit."""
    places = [*KEEPERS, also] if also else KEEPERS
    format_ = "%(refname)%00%(symref)"
    lines = repo.text("for-each-ref", f"--contains={commit}", f"--format={format_}", *places).split("\n")
    refs = [line.split("\0") for line in lines if line]
    return any(not target and name != f"refs/heads/{besides}" for name, target in refs)


def keep_under(repo: GitRepository, ref: str, commit: str) -> str:
    """Write a new ref for a commit; its name: `ref`, or the next free one. One that has it all will do."""
    for number in count(1):
        name = ref if number == 1 else f"{ref}-{number}"
        there = repo.commit_of(name)
        if there is None:
            ended = repo.set_ref(name, commit, "0" * len(commit))
            if ended.code == 0:
                return name
            there = repo.commit_of(name)  # another may have been quicker
            if there is None:
                raise refusal(ended, f"write {name}")
        if _has_all_of(repo, there, commit):
            return name
    raise AssertionError("numbers do not end")


def _has_all_of(repo: GitRepository, kept: str, commit: str) -> bool:
    """Whether a saved commit has the same files, and every parent: what it keeps is no parent of later ones."""
    tree, *parents = repo.text("rev-parse", f"{commit}^{{tree}}", f"{commit}^@").split()
    kept_tree, *kept_parents = repo.text("rev-parse", f"{kept}^{{tree}}", f"{kept}^@").split()
    return kept_tree == tree and set(kept_parents) >= set(parents)
