"""
The hall's directory: obeyed only while nobody else owns or may write it, what it is in, or its files.

    token, config.toml, database      whoever wrote one of them would be the operator
    lock, log, address files          whoever made one a link would have us write elsewhere

Standard library only: the bridge starts with this.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

from crewhall.errors import Forbidden, Unavailable
from crewhall.ownership import Weakness, make_private, place_weakness

DATABASE_ENDS = ("", "-wal", "-shm", "-journal", ".line")
FILES = re.compile(r"config\.toml|operator\.token|instances|hub[.-].*|hall\.db.*")


def refuse_open_home(home: Path) -> None:
    """Raise Forbidden for a hall's directory that others can change; one that is not there yet is fine."""
    _refuse(home, FILES.fullmatch, "the hall's directory", "Or choose another with CREWHALL_HOME or --home.")


def make_home(home: Path) -> None:
    """Make the hall's directory if it is missing. Raises Forbidden when it is open to others, or OSError."""
    make_private(str(home))
    refuse_open_home(home)


def refuse_open_database(path: Path) -> None:
    """Raise Forbidden for a database that others can change, by its directory or by what is beside it."""
    target = Path(os.path.realpath(path))
    for each in {path, target}:
        beside = {f"{each.name}{end}" for end in DATABASE_ENDS}
        _refuse(
            each.parent,
            beside.__contains__,
            "the database's directory",
            "Or choose another with CREWHALL_DATABASE_PATH.",
        )


def _refuse(directory: Path, counts: Callable[[str], object], title: str, otherwise: str) -> None:
    try:
        weakness = place_weakness(str(directory), counts)
    except OSError as error:
        raise Unavailable(
            f"{title} {directory} can't be looked at: {error.strerror}", hint="Check the path and its permissions."
        ) from None
    if weakness is not None:
        raise Forbidden(
            f"{title} {directory} is not used: {weakness.problem}",
            hint=f"{_caution(directory, weakness)}{weakness.repair} {otherwise}",
        )


def _caution(directory: Path, weakness: Weakness) -> str:
    """What to do first where somebody may have left a token, settings or a database."""
    is_inside = os.path.dirname(weakness.path) == str(directory)
    return "" if is_inside else f"See first that everything in {directory} is yours. "
