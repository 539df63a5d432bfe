"""The address files of a hall: each hub on this node writes where it listens. Standard library only."""

import http.client
import json
import os
import urllib.parse
from contextlib import suppress
from pathlib import Path

from crewhall import __version__
from crewhall.config import Settings
from crewhall.edges.bridge.hub_socket import hall_key
from crewhall.hall_directory import make_home
from crewhall.ownership import open_own

CONNECT_SECONDS = 5


class AddressFile:
    """`hub-<pid>.json` in the hall's directory: the URL that this hub listens on. Each hub has its own."""

    def __init__(self, settings: Settings) -> None:
        self.path = settings.home / f"hub-{os.getpid()}.json"
        self._hall = hall_key(settings)

    def write(self, url: str) -> None:
        """Publish the URL, and delete the files of hubs that were killed."""
        make_home(self.path.parent)
        for file in self.path.parent.glob("hub-*.json"):
            if not _is_alive(file):
                file.unlink(missing_ok=True)
        part = self.path.with_suffix(".part")
        facts = {"url": url, "pid": os.getpid(), "version": __version__, "hall": self._hall}
        with open(open_own(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as address_file:
            address_file.write(json.dumps(facts) + "\n")
        part.rename(self.path)

    def remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def _is_alive(file: Path) -> bool:
    """Whether the process that the file is named after runs, whoever owns it."""
    try:
        os.kill(int(file.stem.partition("-")[2]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass  # another user's
    return True


def running_hubs(settings: Settings) -> list[str]:
    """The URLs of the hall's hubs on this node, the longest running first."""
    files = []
    for path in settings.home.glob("hub-*.json"):
        with suppress(OSError):
            files.append((path.stat().st_mtime, path))
    hall = hall_key(settings)
    return [url for _, path in sorted(files) if (url := _live_url(path, hall)) is not None]


def _live_url(file: Path, hall: str) -> str | None:
    """The URL in a hub's address file, or None if that hub no longer listens there.

    Another program may have the port of a hub that was killed, and must not get the token.
    """
    try:
        with open(open_own(file, os.O_RDONLY), encoding="utf-8") as address_file:
            facts = json.load(address_file)
        url = str(facts["url"])
        if facts.get("hall", hall) != hall:
            return None  # another hall that keeps its files in the same directory
        os.kill(int(facts["pid"]), 0)
        address = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=CONNECT_SECONDS)
        connection.connect()
        connection.close()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url
