"""
Directories that come and go: temporary ones, and the deletion of whole trees, never across a mount point.

    scratch()                   a `with` block with a temporary directory
    delete(path) -> None        refuse_mounts(path) -> None
    room_hint(*paths) -> str    what to do when a disk is full
    try_lock(path)              a `with` block that has the file's lock, or not
    hold(path)                  a `with` block that has the directory's lock        is_held(path) -> bool
    has_entries(path) -> bool   whether there is anything in a directory
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator

from crewhall.errors import InvalidState, Unavailable
from crewhall.paths import is_below

MOUNTS = "/proc/self/mountinfo"
TRIES = 3  # others may write or delete in a tree meanwhile
FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A temporary directory. Raises Unavailable when none can be made."""
    try:
        made = tempfile.TemporaryDirectory(prefix="crewhall-")
    except OSError as error:
        raise Unavailable(
            f"no temporary directory can be made: {error.strerror}",
            hint="See that the hall's TMPDIR is a directory that it can write to, with room in it.",
        ) from None
    with made as path:
        yield path


def room_hint(*paths: str) -> str:
    """Which of these directories, that need not be there yet, has the least room on its disk, and what to do."""
    free, path = min((shutil.disk_usage(_existing(path)).free, path) for path in paths)
    return f"The disk of {path} has {free // 1000} kB free. Make room, then try again."


def _existing(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


@contextlib.contextmanager
def try_lock(path: str) -> Iterator[bool]:
    """Whether we hold the lock of this file, until the block or our process ends; nobody is waited for."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _take_lock(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def hold(path: str) -> Iterator[int]:
    """Hold a directory's lock; a child that is given the handle holds it too, and may outlive us.

    Raises BlockingIOError when somebody else holds it, and OSError when there is no such directory, or a link to one.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


def is_held(path: str) -> bool:
    """Whether somebody holds the directory's lock."""
    try:
        with hold(path):
            return False
    except BlockingIOError:
        return True
    except OSError:  # it is gone
        return False


def _take_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def has_entries(path: str) -> bool:
    """Whether there is a directory with anything in it; it takes some microseconds."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def delete(path: str) -> None:
    """Delete a directory and all in it, also what is read-only; one that is not there is fine.

    Raises InvalidState when something is mounted in it, or it can't be deleted.
    """
    problem = _rest(path)
    for _ in range(TRIES - 1):
        problem = problem and _rest(path)
    if problem is not None:
        raise InvalidState(
            f"{os.fsdecode(problem.filename or path)} can't be deleted: {problem.strerror or problem}",
            hint=f"Nothing in {path} is needed any more. Delete it by hand, or try again.",
        )


def _rest(path: str) -> OSError | None:
    """Delete what can be deleted; None when all is gone, else what hindered it, which may be mended by now."""
    if not os.path.lexists(path):
        return None
    refuse_mounts(path)
    try:
        os.unlink(path) if os.path.islink(path) else shutil.rmtree(path)
    except OSError as error:
        _open_up(path)
        return error
    return None


def _open_up(top: str) -> None:
    """Let the owner write in all directories of a tree, as far as that can be done."""
    for where, names, _ in os.walk(_make_writable(top)):
        for name in names:
            _make_writable(os.path.join(where, name))


def _make_writable(path: str) -> str:
    """Let the owner read, write and enter a directory, if that is possible; returns the path."""
    with contextlib.suppress(OSError):
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            os.chmod(path, stat.S_IMODE(mode) | stat.S_IRWXU)
    return path


def refuse_mounts(path: str) -> None:
    """Raises InvalidState when something is mounted at a path or below: what is in it belongs elsewhere."""
    mounted = next(iter(_mounts_below(path)), None)
    if mounted is not None:
        raise InvalidState(f"something is mounted at {mounted}", hint=f"Run `umount {mounted}` first.")


def _mounts_below(path: str) -> Iterator[str]:
    """Linux lists them. Elsewhere each directory is asked, which does not show what is bound from the same disk."""
    try:
        with open(MOUNTS, "rb") as file:
            points = [os.fsdecode(_plain(line.split(b" ")[4])) for line in file]
    except OSError:
        yield from _mounts_seen(path)
    else:
        yield from (point for point in points if is_below(point, path))


def _plain(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), field)


def _mounts_seen(path: str) -> Iterator[str]:
    for where, _, _ in os.walk(path):
        if os.path.ismount(where):
            yield where
