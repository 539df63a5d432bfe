"""Another user who swaps a directory above a root, for as long as a block runs: what a hub may never follow."""

import contextlib
import ctypes
import os
import pwd
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

EXCHANGE = 2  # RENAME_EXCHANGE: two names change places in one step
HERE = -100  # AT_FDCWD
RESTS = (0.001, 0.01, 0.05, 0.2, 0.4)  # seconds; a call that began in a longer one meets the next swap
THERE_AND_BACK = 2
SWAPS_A_LOOK = 21  # an odd number: it rests in either state


@dataclass(frozen=True)
class Stage:
    """A directory of nobody's, in which `place` may change places with `lure`; `private` is root's alone.

    Both have a directory `shop`: that in `place` is the root of the tests, the other is behind the lure.
    """

    top: Path

    @property
    def root(self) -> Path:
        return self.top / "theirs/place/shop"

    @property
    def private(self) -> Path:
        return self.top / "private/shop"

    def lure_by_link(self) -> None:
        (self.top / "theirs/lure").symlink_to(self.private.parent)

    def lure_by_directory(self) -> None:
        """Root's own directory is in nobody's: nobody may rename it, and not look into it."""
        shutil.copytree(self.private.parent, self.top / "theirs/lure", symlinks=True)
        (self.top / "theirs/lure").chmod(0o700)

    @contextlib.contextmanager
    def swapping(self, *, rests: bool = False) -> Iterator[None]:
        """Nobody swaps the two all the time, or there and back now and then; at the end they are in their places."""
        place, lure = (os.fsencode(self.top / "theirs" / name) for name in ("place", "lure"))
        before = os.lstat(place).st_ino
        has_begun, begun = os.pipe()
        child = os.fork()
        if child == 0:
            _swap_as_nobody(place, lure, begun, rests)
        os.close(begun)
        try:
            assert os.read(has_begun, 1) == b"."
            yield
        finally:
            os.close(has_begun)
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)[1]
            if os.lstat(place).st_ino != before:
                exchange(place, lure)
        assert os.WTERMSIG(ended) == signal.SIGKILL, "it swapped to the end"


def exchange(one: bytes, other: bytes) -> None:
    assert ctypes.CDLL(None).renameat2(HERE, one, HERE, other, EXCHANGE) == 0


def _swap_as_nobody(place: bytes, lure: bytes, begun: int, rests: bool) -> None:
    """In a child: swap until the parent is gone. A link that was left at the place is the next run's lure."""
    try:
        parent, rename = os.getppid(), ctypes.CDLL(None).renameat2
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
        assert rename(HERE, place, HERE, lure, EXCHANGE) == rename(HERE, place, HERE, lure, EXCHANGE) == 0
        os.write(begun, b".")
        while os.getppid() == parent:
            for _ in range(THERE_AND_BACK if rests else SWAPS_A_LOOK):
                rename(HERE, place, HERE, lure, EXCHANGE)
            time.sleep(random.choice(RESTS) if rests else 0)
    finally:
        os._exit(1)


@contextlib.contextmanager
def nobodys_stage() -> Iterator[Stage]:
    """An empty stage where nobody may go; the test is skipped where there can be none."""
    if os.geteuid() != 0 or not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("only root on Linux can have another user swap directories")
    top = Path(tempfile.mkdtemp(prefix="crewhall-stage-", dir="/tmp"))
    try:
        top.chmod(0o755)
        (top / "theirs/place/shop").mkdir(parents=True)
        (top / "private/shop").mkdir(parents=True)
        (top / "private").chmod(0o700)
        nobody = pwd.getpwnam("nobody")
        for path in (top / "theirs", top / "theirs/place"):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        yield Stage(top)
    finally:
        shutil.rmtree(top)
