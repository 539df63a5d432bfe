"""
The hall's directory: obeyed only while nobody else owns or may write it, what it is in, or its files.

    token, config.toml, database      whoever wrote one of them would be the operator
    lock, log, address files          whoever made one a link would have us write elsewhere

Standard library only: the bridge starts with this.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from crewhall.errors import Forbidden, Unavailable
from crewhall.ownership import Weakness, make_private, place_weakness

DATABASE_ENDS = ("", "-wal", "-shm", "-journal", ".line")
FILES = re.compile(r"config\.toml|operator\.token|instances|hub[.-].*|hall\.db.*")


def refuse_open_home(home: Path) -> bool:
    """Raise Forbidden for a hall's directory that others can change; False for one that is not there yet.

    That is as good, but whoever finds one later has to look again: another user may have made it.
    """
    return _refuse(home, FILES.fullmatch, "the hall's directory", "Or choose another with CREWHALL_HOME or --home.")


def make_home(home: Path) -> None:
    """Make the hall's directory if it is missing. Raises Forbidden when it is open to others, or OSError."""
    make_private(str(home))
    if not refuse_open_home(home):
        raise _changing(home)


def refuse_read_only_home(home: Path) -> None:
    """Raise Unavailable for a hall's directory in which a hub cannot say where it listens."""
    hint = unwritable_hint([home])
    if hint is not None:
        raise Unavailable(f"no hub can serve {home}: it cannot be written", hint=hint)


def refuse_open_database(path: Path) -> bool:
    """Raise Forbidden for a database that others can change, by its directory or by what is beside it.

    False when a directory is not there.
    """
    target = Path(os.path.realpath(path))
    is_there = True
    for each in {path, target}:
        beside = {f"{each.name}{end}" for end in DATABASE_ENDS}
        otherwise = "Or choose another with CREWHALL_DATABASE_PATH."
        is_there &= _refuse(each.parent, beside.__contains__, "the database's directory", otherwise)
    return is_there


def make_database_directory(path: Path) -> None:
    """Make the directory of a database if it is missing. Raises Forbidden as above, and OSError."""
    make_private(str(path.parent))
    if not refuse_open_database(path):
        raise _changing(path.parent)


def database_files(path: Path) -> list[Path]:
    """The directory of a database, and the files that SQLite and we keep in it."""
    return [path.parent, *(path.with_name(path.name + end) for end in DATABASE_ENDS)]


def unwritable_hint(paths: Iterable[Path]) -> str | None:
    """What to do about the first of these that is there and that this process may not write; None if there is none."""
    return next((_unwritable(path) for path in paths if os.path.exists(path) and not os.access(path, os.W_OK)), None)


def _unwritable(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"{path} is on a file system that is mounted read-only. Mount it writable, or choose another place."
    return (
        f"This user may not write {path}. See its owner and mode (`ls -ld {path}`); `chmod u+w {path}` if it is yours."
    )


def _changing(directory: Path) -> Unavailable:
    return Unavailable(
        f"{directory} leads to no directory, or one that comes and goes",
        hint="If it is a link, make the directory that it names; else see who takes it away, or choose another.",
    )


def _refuse(directory: Path, counts: Callable[[str], object], title: str, otherwise: str) -> bool:
    try:
        weakness = place_weakness(str(directory), counts)
    except FileNotFoundError:
        return False
    except NotADirectoryError:  # a file of ours: who opens something in it says so
        return True
    except OSError as error:
        raise Unavailable(
            f"{title} {directory} can't be looked at: {error.strerror}", hint="Check the path and its permissions."
        ) from None
    if weakness is not None:
        raise Forbidden(
            f"{title} {directory} is not used: {weakness.problem}",
            hint=f"{_caution(directory, weakness)}{weakness.repair} {otherwise}",
        )
    return True


def _caution(directory: Path, weakness: Weakness) -> str:
    """What to do first where somebody may have left a token, settings or a database."""
    is_inside = os.path.dirname(weakness.path) == str(directory)
    return "" if is_inside else f"See first that everything in {directory} is yours. "
