"""
Files that we write into somebody's directory, each as a whole or not at all, and never through a link that leads out.

    with open_root(root) as top, make_directory(top, "_handoff") as found:
        put(found, "REPORT.md", data)       a new file beside it, then a rename: all of it, or the one before
        take_away(found, "REPORT.md")
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator

from crewhall.errors import InvalidInput, InvalidState, NotFound
from crewhall.outside.files import DEEPEST, SHOWN, Found, Top


@contextlib.contextmanager
def make_directory(top: Top, path: str, fit: Callable[[str], None] = lambda path: None) -> Iterator[Found]:
    """Open a directory below the root; create it and its parents if they are missing.

    `fit` gets the path of each new directory, then the path of this one with links resolved, and may refuse it. Raises
    what `fit` and `Top.directory` raise, and InvalidState.
    """
    if path.count("/") > DEEPEST:
        raise InvalidInput(
            f"'{path[:SHOWN]}' is more than {DEEPEST} directories deep", hint="Name one that is less deep."
        )
    _make(top, path, fit)
    with top.directory(path) as found:
        fit(found.path)
        yield found


def _make(top: Top, path: str, fit: Callable[[str], None]) -> None:
    try:
        with top.directory(path):
            return
    except NotFound:
        above, name = os.path.split(path.rstrip("/"))
        if name in ("", ".."):
            raise
    _make(top, above or ".", fit)
    with top.directory(above or ".") as found, _telling(path), contextlib.suppress(FileExistsError):
        fit(os.path.normpath(os.path.join(found.path, name)))
        os.mkdir(name, dir_fd=found.descriptor)


def put(directory: Found, name: str, data: bytes) -> None:
    """Write a file of that name; it is on disk when this returns. Raises InvalidState, InvalidInput for a directory."""
    passing = f".{name}.{secrets.token_hex(8)}"
    with _telling(name):
        try:
            descriptor = os.open(
                passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=directory.descriptor
            )
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.rename(passing, name, src_dir_fd=directory.descriptor, dst_dir_fd=directory.descriptor)
            os.fsync(directory.descriptor)
        except OSError:
            take_away(directory, passing)
            raise


def take_away(directory: Found, name: str) -> bool:
    """Remove a file, or a link of that name. False when there is one that can't be removed; a directory is none."""
    try:
        os.unlink(name, dir_fd=directory.descriptor)
    except (FileNotFoundError, IsADirectoryError):
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _telling(name: str) -> Iterator[None]:
    try:
        yield
    except IsADirectoryError:
        raise InvalidInput(f"'{name[:SHOWN]}' is a directory", hint="Move it away, or write elsewhere.") from None
    except OSError as error:
        raise InvalidState(
            f"'{name[:SHOWN]}' can't be written: {error.strerror}", hint="Check the directory."
        ) from None
