"""A process whose mounts nobody else sees, for tests of disks that are full or can't be written to."""

import ctypes
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.contract.writer import PATIENCE, SERVER

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
IMPOSSIBLE = "nothing can be mounted here"
PAGE = 4096  # bytes; a tmpfs counts in them


def with_own_mounts(body: Callable[..., None], *words: Any) -> None:
    """Run a function of a module in a process that may mount; skips where that is impossible."""
    ours, theirs = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=_run, args=(theirs, body, words))
    process.start()
    theirs.close()
    try:
        problem = ours.recv() if ours.poll(PATIENCE) else f"it took longer than {PATIENCE:g} s"
    except EOFError:
        problem = "the process died"
    finally:
        process.kill()
        process.join()
    if problem == IMPOSSIBLE:
        pytest.skip(IMPOSSIBLE)
    assert not problem, problem


def _run(tell: Connection, body: Callable[..., None], words: tuple[Any, ...]) -> None:
    problem = "" if _leave_mounts() else IMPOSSIBLE
    try:
        if not problem:
            body(*words)
    except BaseException:
        problem = traceback.format_exc()
    tell.send(problem)


def _leave_mounts() -> bool:
    """Whether this process now has mounts of its own; one that is not root's becomes root in a namespace."""
    user, group = os.geteuid(), os.getegid()
    if sys.platform != "linux" or ctypes.CDLL(None).unshare(NEW_MOUNTS | (NEW_USER if user else 0)):
        return False
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path("/proc/self", name).write_text(text)
    return subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False).returncode == 0


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def mount_small(path: Path, pages: int) -> None:
    """An empty disk with room for so many pages."""
    path.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={pages * PAGE},mode=700", "tmpfs", path)


def fill(path: Path, spare: int) -> None:
    """Fill a small disk up to so many pages; again with another number of them. Others may write meanwhile."""
    with open(path / "filling", "wb", buffering=0) as filling:
        found = os.statvfs(path)
        for _ in range(found.f_bavail * found.f_frsize // PAGE - spare):
            try:
                filling.write(bytes(PAGE))
            except OSError:  # others have taken the rest
                filling.truncate(max(0, filling.tell() - spare * PAGE))
                return
