"""
What a bridge and its hub say first, and what a client says of itself. Standard library only.

    bridge ── {"crewhall": "0.1.0", "directory": …, "token": …, "families": …, "profile": …, "variables": {…}} ──▶ hub
    bridge ◀── {"version": "0.1.0", "max_bytes": 4194304, "leaving": false} ── hub, or {"error": {…}}
    then JSON-RPC both ways, a message a line; and two words:
    bridge ◀── !leaving    the hub stops: send no more, what was sent is still answered
    bridge ──▶ !bye        nothing more comes
"""

import os
import re
from collections.abc import Mapping

from crewhall.config import BY_KEY, CLIENT_VARIABLES, said

LEAVING = b"!leaving"
BYE = b"!bye"
PATH_LETTERS = 4096


def version_of(text: str) -> tuple[int, ...]:
    """A version as numbers that can be compared: `1.10.0` is newer than `1.9.2`."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:4])


def told_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What a client's own environment says about its calls; its dry run by either name."""
    names = {name: name for name in CLIENT_VARIABLES} | {"CLAUDEOPS_DRY_RUN": BY_KEY["pulls.dry_run"].variable}
    told = {name: said(environ, name) or said(environ, other) for name, other in names.items()}
    return {name: value for name, value in told.items() if value is not None}


def directory() -> str | None:
    """Where this process is; None when somebody has removed it."""
    try:
        return os.getcwd()
    except OSError:
        return None


def directory_told(said: object) -> str | None:
    """The directory that a client says it is in, or None for what cannot be one."""
    if not isinstance(said, str) or not said.startswith("/") or len(said) > PATH_LETTERS or "\0" in said:
        return None
    try:
        said.encode()
    except UnicodeEncodeError:
        return None  # a name that is not UTF-8, which no text in the hall can hold
    return said
