"""The operator's token, in a file of the hall's directory. Standard library only: the command line starts with this."""

import os
from pathlib import Path

from crewhall.ownership import open_own

TOKEN_FILE = "operator.token"  # noqa: S105 - a name, no secret


def read_operator_token(home: Path) -> str | None:
    """This node's operator token, or None if the file is missing, unreadable, empty, a link or another user's."""
    try:
        with open(open_own(home / TOKEN_FILE, os.O_RDONLY), encoding="utf-8") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None
