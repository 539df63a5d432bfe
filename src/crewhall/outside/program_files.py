"""
Files that an agent's program may write, read so that none of them stops the hall.

    with open_plain(path) as file: …     OSError for a pipe, a link, a device or a directory
    read_plain(path, 64_000) -> bytes    OSError too for one that is longer
    read_object(path, 64_000) -> {…}     {} for anything but a JSON object that UTF-8 can hold
    plain_text(value, 200) -> text       on one line, without what steers a terminal or can't be stored
    plain_number(value) -> int | None    that each database and every reader of JSON holds
    plain_time(value) -> int | None      UTC milliseconds
"""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MOST_NUMBER = (1 << 53) - 1
YEAR_9999_MS = 253_370_764_800_000


@contextlib.contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """A regular file, opened for reading without waiting for anybody. Raises OSError for everything else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        yield file


def read_plain(path: Path | str, most_bytes: int) -> bytes:
    """All of a regular file, read without waiting for anybody. Raises OSError for what is none, or is longer."""
    with open_plain(Path(path)) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data


def read_object(path: Path, most_bytes: int) -> dict[str, Any]:
    """The JSON object in a file; {} when there is none, or it is longer or holds half of a surrogate pair."""
    with contextlib.suppress(OSError, ValueError, RecursionError), open_plain(path) as file:
        value = json.loads(file.read(most_bytes))
        json.dumps(value, ensure_ascii=False).encode()
        return value if isinstance(value, dict) else {}
    return {}


def plain_text(value: object, most: int) -> str:
    """The start of a text, on one line; what can't be printed is shown as `�`."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(value)[:most])


def plain_number(value: object) -> int | None:
    """The value if it is a whole number from 0 on."""
    return value if type(value) is int and 0 <= value <= MOST_NUMBER else None


def plain_time(value: object) -> int | None:
    """The value if it is a time."""
    return value if type(value) is int and 0 < value < YEAR_9999_MS else None
