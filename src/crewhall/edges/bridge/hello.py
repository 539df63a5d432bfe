"""
What a bridge and its hub say first, and what a client says of itself. Standard library only.

    bridge ── {"crewhall": "0.1.0", "directory": …, "token": …, "families": …, "profile": …, …} ──▶ hub
    bridge ◀── {"version": "0.1.0", "max_bytes": 4194304, "leaving": false} ── hub, or {"error": {…}}
    "unknown" in a hello counts the bridge's calls that were with a hub when it died
    then JSON-RPC both ways, a message a line; and two words:
    bridge ◀── !leaving    the hub stops: send no more, what was sent is still answered
    bridge ──▶ !bye        nothing more comes
"""

import os
import re
from collections.abc import Mapping

from crewhall.config import BY_KEY, CLIENT_VARIABLES, variable_value

LEAVING = b"!leaving"
BYE = b"!bye"
PATH_LETTERS = 4096


def version_of(text: str) -> tuple[int, ...]:
    """A version as numbers that can be compared: `1.10.0` is newer than `1.9.2`."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:4])


def client_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a client's environment that count for its calls. The dry run goes by either of its names."""
    names = {name: name for name in CLIENT_VARIABLES} | {"CLAUDEOPS_DRY_RUN": BY_KEY["pulls.dry_run"].variable}
    values = {name: variable_value(environ, name) or variable_value(environ, other) for name, other in names.items()}
    return {name: value for name, value in values.items() if value is not None}


def working_directory() -> str | None:
    """The directory this process runs in, or None if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def client_directory(path: object) -> str | None:
    """The path that a client sent as its directory, or None if it cannot be one."""
    if not isinstance(path, str) or not path.startswith("/") or len(path) > PATH_LETTERS or "\0" in path:
        return None
    try:
        path.encode()
    except UnicodeEncodeError:
        return None  # a name that is not UTF-8, which no text in the hall can hold
    return path
