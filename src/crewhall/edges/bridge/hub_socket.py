"""
Where a hall's bridges and its hub meet: a Unix socket and a lock, and what is said first on it.

The names come from the hall alone: its directory and its database. Clients scrub their servers' environment, and two
bridges of one hall must still meet. Imports the standard library only: the bridge starts with this.

    bridge ── {"crewhall": "0.1.0", "directory": …, "token": …, "families": …, "profile": …, "variables": {…}} ──▶ hub
    bridge ◀── {"version": "0.1.0", "max_bytes": 4194304, "leaving": false} ── hub, or {"error": {…}}
    then JSON-RPC both ways, a message a line; and two words:
    bridge ◀── !leaving    the hub stops: send no more, what was sent is still answered
    bridge ──▶ !bye        nothing more comes
"""

import fcntl
import json
import os
import re
import socket
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crewhall.config import BY_KEY, CLIENT_VARIABLES, Settings, variable_value
from crewhall.errors import Failure

INTERNAL_ERROR = -32603
LEAVING = b"!leaving"
BYE = b"!bye"
PATH_LETTERS = 4096
SOCKET_PATH_BYTES = 100  # the kernel's limit is 107 on Linux, 103 on macOS


class Meeting:
    """The place where the bridges of one hall find its hub."""

    def __init__(self, settings: Settings) -> None:
        self.home = settings.home
        hall = hall_key(settings)
        self.socket = self.home / f"hub-{hall}.sock"
        self.lock = self.home / f"hub-{hall}.lock"

    def try_lock(self) -> int | None:
        """The lock that a hub holds as long as it lives, as an open file; None when another has it."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return None
        return held

    def connect(self) -> socket.socket:
        """A connection to the hub. Raises OSError when none listens, or when it takes no more."""
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)  # a stopped hub's queue may be full, and would be waited for without end
        try:
            with _short(self.socket) as path:
                connection.connect(path)
        except OSError:
            connection.close()
            raise
        connection.setblocking(True)
        if not is_own(connection):  # in a directory that others may write; tokens are not for them
            connection.close()
            raise PermissionError(f"{self.socket} is another user's")
        return connection

    def listen(self) -> socket.socket:
        """The hub's end; only who holds the lock may ask for it."""
        self.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        with _short(self.socket) as path:
            listener.bind(path)
        self.socket.chmod(0o600)
        listener.listen(512)
        return listener


def is_own(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end; elsewhere than on Linux the socket's mode alone tells."""
    if sys.platform != "linux":
        return True
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(uid == os.getuid())


def hall_key(settings: Settings) -> str:
    """A short name for the hall's database, so that two halls in one directory have two meeting places."""
    database = settings.database
    if "://" not in database:
        database = os.path.realpath(database)
    return f"{zlib.crc32(database.encode('utf-8', 'surrogateescape')):08x}"


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """The path in a form that fits into a socket's address."""
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES or not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def is_id(name: Any) -> bool:
    """Whether a request may be known by this: MCP has text and whole numbers."""
    return isinstance(name, str | int) and not isinstance(name, bool)


def refusal(id: Any, method: str, failure: Failure, tool_name: str | None = None) -> dict[str, Any]:
    """A failure as the answer to a request, in the form that its method has."""
    body = failure.body(tool_name)
    answer = {"jsonrpc": "2.0", "id": id}
    if method == "tools/call":
        text = [{"type": "text", "text": json.dumps(body)}]
        return answer | {
            "result": {"content": text, "structuredContent": body, "isError": True, "resultType": "complete"}
        }
    words = f"{failure.code}: {failure.message}. {failure.hint}"
    return answer | {"error": {"code": INTERNAL_ERROR, "message": words, "data": body}}


def version_of(text: str) -> tuple[int, ...]:
    """A version as numbers that can be compared: `1.10.0` is newer than `1.9.2`."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:4])


def told_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What a client's own environment says about its calls; its dry run by either name."""
    names = {name: name for name in CLIENT_VARIABLES} | {"CLAUDEOPS_DRY_RUN": BY_KEY["pulls.dry_run"].variable}
    told = {name: variable_value(environ, name) or variable_value(environ, other) for name, other in names.items()}
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
