"""The operator's token, in a file of the hall's directory. Standard library only: the command line starts with this."""

from pathlib import Path

TOKEN_FILE = "operator.token"  # noqa: S105 - a name, no secret


def read_operator_token(home: Path) -> str | None:
    """This node's operator token, or None if the file is missing, unreadable or empty."""
    try:
        return (home / TOKEN_FILE).read_text("utf-8").strip() or None
    except (OSError, ValueError):
        return None
