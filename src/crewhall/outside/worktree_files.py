"""
Ignored files that a worktree needs: copied in when it is made, and those that changed kept when it goes.

    copy_included(repo, path) -> int                files copied
    save_included(repo, path, ref) -> str | None    a ref with those that differ from the main worktree's

The list is `.worktreeinclude` in the main worktree, in the syntax of .gitignore, as Claude Code has it. A file that it
names counts only if git ignores it: all others are in the branch anyway. Links are neither copied nor followed.
"""

import contextlib
import os
import shutil
import stat

from crewhall.errors import InvalidState
from crewhall.outside.disk import scratch
from crewhall.outside.git import GitRepository
from crewhall.outside.saving import git_dir_of, keep_under

LIST = ".worktreeinclude"
MOST_FILES = 1_000
MOST_BYTES = 100 * 1024 * 1024
MESSAGE = "Ignored files that were changed in {path}, saved when it was removed"


def copy_included(repo: GitRepository, path: str) -> int:
    """Copy the ignored files that the list names from the main worktree; how many there were.

    A file that is there already stays as it is. Raises InvalidState when there are too many, or the disk refuses.
    """
    names = _list_files(repo, repo.root)
    _refuse_many(repo.root, names)
    copied = 0
    for name in names:
        target = os.path.join(path, name)
        if os.path.lexists(target):
            continue
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(os.path.join(repo.root, name), target, follow_symlinks=False)
        except OSError as error:
            raise InvalidState(
                f"{name} of {LIST} can't be copied: {error.strerror or error}",
                hint=f"See that it can be read, or take it out of {LIST}.",
            ) from None
        copied += 1
    return copied


def save_included(repo: GitRepository, path: str, ref: str) -> str | None:
    """Keep the ignored files of the list that are new or changed in a worktree; the ref, or None without any."""
    if not os.path.isdir(path):
        return None
    changed = [name for name in _list_files(repo, path) if not _is_same(os.path.join(repo.root, name), path, name)]
    return keep_under(repo, ref, _commit(repo, path, changed)) if changed else None


def _list_files(repo: GitRepository, root: str) -> list[str]:
    """The plain files below a worktree's top that the list names and git ignores."""
    listed = os.path.join(repo.root, LIST)
    if not os.path.isfile(listed) or os.path.islink(listed):
        return []
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


def _refuse_many(root: str, names: list[str]) -> None:
    size = sum(os.lstat(os.path.join(root, name)).st_size for name in names)
    if len(names) > MOST_FILES or size > MOST_BYTES:
        raise InvalidState(
            f"{LIST} names {len(names)} files of {size} bytes; {MOST_FILES} files and {MOST_BYTES} bytes are allowed",
            hint=f"Name fewer files in {LIST}; let the setup recipe make what is large.",
        )


def _is_same(original: str, path: str, name: str) -> bool:
    try:
        with open(original, "rb") as ours, open(os.path.join(path, name), "rb") as theirs:
            return ours.read() == theirs.read()
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
