"""The hubs of a hall on this node tell where they listen, each in a file of its own. Standard library only."""

import http.client
import json
import os
import urllib.parse
from contextlib import suppress
from pathlib import Path

from crewhall import __version__
from crewhall.config import Settings
from crewhall.edges.bridge.hub_socket import hall_key

CONNECT_SECONDS = 5


class Notice:
    """`hub-<pid>.json` in the hall's directory: where this hub listens. Each hub of the hall has its own."""

    def __init__(self, settings: Settings) -> None:
        self.path = settings.home / f"hub-{os.getpid()}.json"
        self._hall = hall_key(settings)

    def put_up(self, url: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for notice in self.path.parent.glob("hub-*.json"):
            if not _lives(notice):
                notice.unlink(missing_ok=True)  # of a hub that was killed
        part = self.path.with_suffix(".part")
        part.touch(0o600)
        facts = {"url": url, "pid": os.getpid(), "version": __version__, "hall": self._hall}
        part.write_text(json.dumps(facts) + "\n", "utf-8")
        part.rename(self.path)

    def take_down(self) -> None:
        with suppress(OSError):
            self.path.unlink()


def _lives(notice: Path) -> bool:
    """Whether the process that a notice is named after runs, whoever's it is."""
    try:
        os.kill(int(notice.stem.partition("-")[2]), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass  # another user's
    return True


def running_hubs(settings: Settings) -> list[str]:
    """The addresses of the hall's hubs on this node, the longest running first."""
    notices = []
    for path in settings.home.glob("hub-*.json"):
        with suppress(OSError):
            notices.append((path.stat().st_mtime, path))
    hall = hall_key(settings)
    return [url for _, path in sorted(notices) if (url := _answering(path, hall)) is not None]


def _answering(notice: Path, hall: str) -> str | None:
    """The address in a hub's notice, or None when that hub no longer listens there.

    The port of a hub that was killed may be a stranger's by now, and the token is not for strangers.
    """
    try:
        told = json.loads(notice.read_text("utf-8"))
        url = str(told["url"])
        if told.get("hall", hall) != hall:
            return None  # another hall that keeps its files in the same directory
        os.kill(int(told["pid"]), 0)
        place = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=CONNECT_SECONDS)
        connection.connect()
        connection.close()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url
