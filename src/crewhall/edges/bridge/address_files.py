"""
The address files of a hall: each hub on this node writes where it listens. Standard library only.

    hub ── writes, and holds a lock on it ──▶ hub-<pid>.json ── is it locked? ──▶ that hub runs
                                                                 no ──▶ it was killed, and the port may be anyone's

The system releases the lock with its process, after a boot and in a new container too. A pid says less: another
process may have it by then.
"""

import fcntl
import http.client
import json
import os
import urllib.parse
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crewhall import __version__
from crewhall.config import Settings
from crewhall.edges.bridge.hub_socket import hall_key
from crewhall.hall_directory import make_home
from crewhall.ownership import open_own

CONNECT_SECONDS = 2


class AddressFile:
    """`hub-<pid>.json` in the hall's directory: the URL that this hub listens on. Each hub has its own."""

    def __init__(self, settings: Settings) -> None:
        self.path = settings.home / f"hub-{os.getpid()}.json"
        self._hall = hall_key(settings)
        self._held: int | None = None

    def write(self, url: str) -> None:
        """Publish the URL, and delete the files of hubs that were killed."""
        make_home(self.path.parent)
        for file in self.path.parent.glob("hub-*.json"):
            if not _is_alive(file):
                file.unlink(missing_ok=True)
        part = self.path.with_suffix(".part")
        facts = {"url": url, "pid": os.getpid(), "version": __version__, "hall": self._hall}
        self._held = open_own(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(self._held, json.dumps(facts).encode() + b"\n")
        part.rename(self.path)

    def remove(self) -> None:
        """Take it back, before the port is given up; twice is once."""
        if self._held is not None:
            with suppress(OSError):
                self.path.unlink()
            os.close(self._held)
            self._held = None


def _is_alive(file: Path) -> bool:
    """Whether the hub that wrote the file runs; also if it cannot be looked at, since it is another user's."""
    try:
        descriptor = open_own(file, os.O_RDONLY)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        return _is_locked(descriptor)
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


class HubAddress(NamedTuple):
    """Where a hub listens, and the process that it is."""

    url: str
    pid: int


def running_hubs(settings: Settings) -> list[str]:
    """The URLs of the hall's hubs on this node, the longest running first."""
    return [hub.url for hub in hub_addresses(settings)]


def hub_addresses(settings: Settings) -> list[HubAddress]:
    """The hall's hubs on this node, the longest running first."""
    files = []
    for path in settings.home.glob("hub-*.json"):
        with suppress(OSError):
            files.append((path.stat().st_mtime, path))
    hall = hall_key(settings)
    return [hub for _, path in sorted(files) if (hub := _live_address(path, hall)) is not None]


def _live_address(file: Path, hall: str) -> HubAddress | None:
    """What a hub's address file says, or None if that hub no longer listens there."""
    try:
        with open(open_own(file, os.O_RDONLY), encoding="utf-8") as address_file:
            if not _is_locked(address_file.fileno()):
                return None
            facts = json.load(address_file)
        hub = HubAddress(str(facts["url"]), int(facts["pid"]))
        if facts.get("hall", hall) != hall:
            return None  # another hall that keeps its files in the same directory
        address = urllib.parse.urlsplit(hub.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=CONNECT_SECONDS)
        with suppress(TimeoutError):  # it stands still, and its queue is full
            connection.connect()
        connection.close()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return hub
