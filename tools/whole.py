"""A directory that an installer fills: whole, or made again. Standard library only."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Refused(SystemExit):
    """The installer gave up and left the directory as it was. Uncaught, it ends the command with this message."""


@contextmanager
def filling(directory: Path) -> Iterator[None]:
    """Fill a directory inside this block. After an interrupted block, the next one starts without the directory.

    An interrupted installer leaves packages that it counts as installed and that lack files. So the directory holds
    a mark while the block runs. Two processes take turns; start the installer with `close_fds=False`, so that one
    whose parent was killed keeps its turn until it ends.
    """
    with directory.with_name(f"{directory.name}.lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        _wait_for(lock.fileno(), directory)
        mark = directory / "unfinished"
        if mark.exists():
            note(f"the last install into {directory.name} was interrupted; starting over")
            _remove(directory)
        directory.mkdir(exist_ok=True)
        mark.touch()
        try:
            yield
        except Refused:
            mark.unlink()
            raise
        mark.unlink()


def _wait_for(lock: int, directory: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(f"waiting for another process that installs into {directory.name}")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _remove(directory: Path) -> None:
    """Remove a directory, its name first: an interrupted removal must not leave half of it without its mark."""
    old = directory.with_name(f"{directory.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    directory.rename(old)
    shutil.rmtree(old)


def note(line: str) -> None:
    """Print progress, at once; standard output is for results."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
