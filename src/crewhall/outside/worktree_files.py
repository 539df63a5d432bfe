"""
Ignored files that a worktree needs: copied in when it is made, and those that changed kept when it goes.

    copy_included(repo, path) -> int                files copied
    save_included(repo, path, ref) -> str | None    a ref with those that differ from the main worktree's

The list is `.worktreeinclude` in the main worktree, in the syntax of .gitignore, as Claude Code has it. A file that it
names counts only if git ignores it: all others are in the branch anyway. Links are neither copied nor followed: a
branch of a stranger may have one where the main worktree has a directory.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from typing import BinaryIO

from crewhall.errors import InvalidState
from crewhall.outside.disk import scratch
from crewhall.outside.git import GitRepository
from crewhall.outside.saving import git_dir_of, keep_under

LIST = ".worktreeinclude"
LIST_BYTES = 1_000_000
MOST_FILES = 1_000
MOST_BYTES = 100 * 1024 * 1024
PIECE = 1024 * 1024
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
MESSAGE = "Ignored files that were changed in {path}, saved when it was removed"


def copy_included(repo: GitRepository, path: str) -> int:
    """Copy the ignored files that the list names from the main worktree; how many there were.

    A file that is there already stays as it is. Raises InvalidState when there are too many, or the disk refuses.
    """
    names = _list_files(repo, repo.root)
    _refuse_many(repo.root, names, f"Name fewer files in {LIST}; let the setup recipe make what is large.")
    return sum(_copy(repo.root, path, name) for name in names)


def _copy(root: str, path: str, name: str) -> bool:
    """Copy one file, with its mode and time; False when there is one already."""
    try:
        with _open(root, name) as file, _directory(path, name, makes=True) as (directory, last):
            _write_copy(file, directory, last)
    except FileExistsError:
        return False
    except OSError as error:
        raise InvalidState(
            f"{name} of {LIST} can't be copied: {error.strerror or error}",
            hint=f"See that it can be read and that no link is in its way, or take it out of {LIST}.",
        ) from None
    return True


def _write_copy(file: BinaryIO, directory: int, name: str) -> None:
    """Write a new file with a copy. Raises FileExistsError, and OSError with nothing written."""
    facts = os.fstat(file.fileno())
    with open(os.open(name, NEW, 0o600, dir_fd=directory), "wb") as copy:
        try:
            shutil.copyfileobj(file, copy, PIECE)
            copy.flush()
            os.fchmod(copy.fileno(), stat.S_IMODE(facts.st_mode))
            os.utime(copy.fileno(), ns=(facts.st_atime_ns, facts.st_mtime_ns))
        except OSError:
            os.unlink(name, dir_fd=directory)
            raise


@contextlib.contextmanager
def _directory(root: str, name: str, *, makes: bool = False) -> Iterator[tuple[int, str]]:
    """The directory that a file is in, reached through no link below the root, and the file's last name."""
    *parents, last = name.split("/")
    with contextlib.ExitStack() as opened:
        here = os.open(root, DIRECTORY)
        opened.callback(os.close, here)
        for parent in parents:
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parent, dir_fd=here)
            here = os.open(parent, DIRECTORY, dir_fd=here)
            opened.callback(os.close, here)
        yield here, last


@contextlib.contextmanager
def _open(root: str, name: str) -> Iterator[BinaryIO]:
    """A plain file, reached through no link. Raises OSError for everything else, and waits for nobody."""
    with _directory(root, name) as (directory, last):
        descriptor = os.open(last, READ, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{name} is no file")
            yield file


def save_included(repo: GitRepository, path: str, ref: str) -> str | None:
    """Keep the ignored files of the list that are new or changed in a worktree; the ref, or None without any.

    Raises InvalidState when they are too many or too large.
    """
    if not os.path.isdir(path):
        return None
    changed = [name for name in _list_files(repo, path) if not _is_same(repo.root, path, name)]
    _refuse_many(path, changed, f"Move away what is large, or take it out of {LIST}; then try again.")
    return keep_under(repo, ref, _commit(repo, path, changed)) if changed else None


def _list_files(repo: GitRepository, root: str) -> list[str]:
    """The plain files below a worktree's top that the list names and git ignores."""
    listed = os.path.join(repo.root, LIST)
    if not _is_plain(listed):
        return []
    if os.lstat(listed).st_size > LIST_BYTES:
        raise InvalidState(f"{listed} has more than {LIST_BYTES} bytes", hint="Shorten it: one line names many files.")
    env = {"GIT_DIR": git_dir_of(repo, root), "GIT_WORK_TREE": root}
    named = repo.text("ls-files", "--others", "--ignored", f"--exclude-from={listed}", "-z", cwd=root, env=env)
    if not named:
        return []
    ignored = repo.git("check-ignore", "--stdin", "-z", cwd=root, env=env, stdin=os.fsencode(named))
    names = os.fsdecode(ignored.out).split("\0")
    return [name for name in names if name and _is_plain(os.path.join(root, name))]


def _is_plain(path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return False


def _refuse_many(root: str, names: list[str], hint: str) -> None:
    size = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # it is gone again
            size += os.lstat(os.path.join(root, name)).st_size
    if len(names) > MOST_FILES or size > MOST_BYTES:
        raise InvalidState(
            f"{LIST} names {len(names)} files of {size} bytes; {MOST_FILES} files and {MOST_BYTES} bytes are allowed",
            hint=hint,
        )


def _is_same(root: str, path: str, name: str) -> bool:
    """Whether a file is in both places alike, compared a piece at a time."""
    try:
        with _open(root, name) as ours, _open(path, name) as theirs:
            if os.fstat(ours.fileno()).st_size != os.fstat(theirs.fileno()).st_size:
                return False
            return all(piece == theirs.read(PIECE) for piece in iter(lambda: ours.read(PIECE), b""))
    except OSError:
        return False


def _commit(repo: GitRepository, path: str, names: list[str]) -> str:
    """A commit of these files and nothing else."""
    with scratch() as directory:
        env = {"GIT_INDEX_FILE": os.path.join(directory, "index"), "GIT_WORK_TREE": path}
        lines = "".join(f"{name}\0" for name in names)
        words = ("add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
        repo.text(*words, cwd=path, env=env | {"GIT_LITERAL_PATHSPECS": "1"}, stdin=os.fsencode(lines))
        tree = repo.text("write-tree", cwd=path, env=env)
        return repo.text("commit-tree", "--no-gpg-sign", tree, stdin=MESSAGE.format(path=path).encode())
