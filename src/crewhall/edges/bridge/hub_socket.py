"""
The Unix socket and the lock of a hall's hub. Standard library only.

Their names come from the hall alone: its directory and its database. Clients scrub their servers' environment, and all
bridges of a hall must still find the same hub.
"""

import fcntl
import os
import socket
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crewhall.config import Settings
from crewhall.hall_directory import make_home
from crewhall.ownership import open_own

Identity = tuple[int, int]  # of a file: its device and inode
SOCKET_PATH_BYTES = 100  # the kernel's limit is 107 on Linux, 103 on macOS


class HubSocket:
    """The socket on which a hall's hub listens for bridges, and the lock that makes it the only one."""

    def __init__(self, settings: Settings) -> None:
        self.home = settings.home
        hall = hall_key(settings)
        self.socket = self.home / f"hub-{hall}.sock"
        self.lock = self.home / f"hub-{hall}.lock"
        self._bound: Identity | None = None  # of the socket that this process listens on
        self._found: Identity | None = None  # of the one to which it connected last

    def try_lock(self) -> int | None:
        """The lock that a hub holds as long as it lives, as an open file; None when another has it.

        Raises OSError, and Forbidden when others can change the hall's directory.
        """
        make_home(self.home)
        held = open_own(self.lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return None
        return held

    def is_locked_by(self, held: int) -> bool:
        """Whether a lock that this process holds is still the hall's, and not that of a file which was removed."""
        try:
            return os.path.samestat(os.fstat(held), self.lock.stat())
        except FileNotFoundError:
            return False

    def connect(self) -> socket.socket:
        """A connection to the hub. Raises OSError when none listens, or when it takes no more."""
        self._found = _identity(self.socket)
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

    def is_found(self) -> bool:
        """Whether a new connection would go where the last one went."""
        return self._found == _identity(self.socket)

    def listen(self) -> socket.socket:
        """The hub's end, for the hub that holds the lock."""
        self.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        with _short(self.socket) as path:
            listener.bind(path)
        self.socket.chmod(0o600)
        listener.listen(512)
        self._bound = _identity(self.socket)
        return listener

    def is_bound(self) -> bool:
        """Whether the socket that bridges find is the one on which this process listens."""
        return self._bound is not None and _identity(self.socket) == self._bound


def _identity(path: Path) -> Identity | None:
    """Which file a path names, links not followed; None when there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def is_own(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end; elsewhere than on Linux the socket's mode alone tells."""
    if sys.platform != "linux":
        return True
    return _peer(connection)[1] == os.getuid()


def peer_pids(connection: socket.socket) -> list[int]:
    """The process that opened the other end, on Linux; none elsewhere."""
    return [_peer(connection)[0]] if sys.platform == "linux" else []


def _peer(connection: socket.socket) -> tuple[int, int]:
    """The pid and the uid of the process at the other end."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def hall_key(settings: Settings) -> str:
    """A short name for the hall's database, so that two halls in one directory have a socket each."""
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
