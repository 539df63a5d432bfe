"""
A client's settings file on the disk: edited whole or not at all, and its old text is kept beside it.

    read ── edit ──▶ a new file beside it ── has somebody written meanwhile? read again ──▶ backup ──▶ renamed over it
"""

import itertools
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crewhall.errors import Conflict, InvalidInput
from crewhall.outside.clients.syntax_error import syntax_error
from crewhall.outside.root_path import real_path

TRIES = 5
OTHERS = 0o077  # what a file's mode lets anybody but its owner do


class SettingsChange(NamedTuple):
    """The result of an edit: the file with links resolved, whether it changed, and the backup of its old text."""

    file: Path
    has_changed: bool
    backup: Path | None = None


def text_of(path: Path) -> str:
    """What a file holds; one that is not there holds nothing. Raises InvalidInput, OSError."""
    return _decode(_bytes(path) or b"", path)


def change(path: Path, edit: Callable[[str], str], *, is_secret: bool) -> SettingsChange:
    """Edit a file, or make it. A link is followed; mode and owner stay, but a secret is for the owner alone.

    Raises what the edit raises, and Conflict when others write it all the time; then it is as it was.
    """
    target = Path(real_path(str(path)))
    for _ in range(TRIES):
        old = _bytes(target)
        new = edit(_decode(old or b"", path)).encode()
        if new == (old or b""):
            if is_secret and old is not None:
                _hide(target)
            return SettingsChange(target, False)
        done = _replace(target, old, new, is_secret)
        if done is not None:
            return done
    raise Conflict(f"{target} changes all the time", hint="Close the client that writes it, then try again.")


def _replace(target: Path, old: bytes | None, new: bytes, is_secret: bool) -> SettingsChange | None:
    """Replace the file and back it up; None, with nothing done, when another program changed it. Raises OSError."""
    model = None if old is None else _writable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.crewhall-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    try:
        _create(fresh, new, model, is_secret)
        if _bytes(target) != old:
            return None
        backup = None if old is None else _backup(target, old, model, is_secret)
        fresh.rename(target)
    finally:
        fresh.unlink(missing_ok=True)
    return SettingsChange(target, True, backup)


def _bytes(path: Path) -> bytes | None:
    """Nothing that would keep its reader waiting, or goes on without end, is read. Raises InvalidInput, OSError."""
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(kind):
        raise InvalidInput(f"{path} is no file", hint="Name the client's settings file with --file.")
    return path.read_bytes()


def _decode(text: bytes, path: Path) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        before = text[: error.start].decode()
        raise syntax_error("this is not UTF-8", before, len(before)) from None


def _writable(path: Path) -> os.stat_result:
    """What is known of a file that may be changed. Raises PermissionError when it is read-only."""
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "it is read-only", str(path))
    return path.stat()


def _create(path: Path, text: bytes, model: os.stat_result | None, is_secret: bool) -> None:
    """Make a file with the owner and mode of another, and until it has them for nobody else to read. Raises OSError."""
    mode = 0o666 if model is None and not is_secret else 0o600
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        if model is not None:
            _like(file.fileno(), model, is_secret)


def _like(file: int, model: os.stat_result, is_secret: bool) -> None:
    """Give a file the owner and mode of another; where its group cannot be had, no other group may read it."""
    mode = stat.S_IMODE(model.st_mode) & (~OTHERS if is_secret else ~0)
    try:
        os.fchown(file, model.st_uid, model.st_gid)
    except PermissionError:
        mode &= ~0o070 if os.fstat(file).st_gid != model.st_gid else ~0
    os.fchmod(file, mode)


def _hide(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        path.chmod(mode & ~OTHERS)


def _backup(target: Path, text: bytes, model: os.stat_result | None, is_secret: bool) -> Path:
    """The old text in a new file beside it; no older backup is touched."""
    for number in itertools.count(1):
        path = target.with_name(f"{target.name}.crewhall-backup-{number}")
        with suppress(FileExistsError):
            _create(path, text, model, is_secret)
            return path
    raise AssertionError
