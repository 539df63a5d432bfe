"""
Whether a hub that says nothing is at work or stands still. Standard library only.

    request ──▶ hub … nothing comes ──▶ GET on another connection ── answered ──▶ it is at work: wait on
                                                                  └─ silence ──▶ our own connection is cut

A call may take minutes, so its own silence says nothing. A hub whose process is stopped is given up at the first
silence; one that seems to run, as on a busy machine, after some.
"""

import http.client
import socket
import sys
import threading
import time
import urllib.parse
from contextlib import suppress
from types import TracebackType

from crewhall.edges.bridge.address_files import HubAddress
from crewhall.errors import Unavailable
from crewhall.outside.leftovers import read_process

SMALL_FILE = "/web/icon.svg"  # for anyone, and without a look at the database
ANSWER_SECONDS = 3.0  # in which a hub at work answers something
ACCEPT_SECONDS = 5.0  # in which one that is not stopped takes a connection
PATIENCE_SECONDS = 15.0  # with one that does not, though it is not known to be stopped
FIRST_LOOK_SECONDS, LOOK_SECONDS = 1.0, 5.0


def is_stopped(hub: HubAddress) -> bool:
    """Whether the hub's process is known to be stopped, as by Ctrl-Z."""
    if sys.platform == "linux":
        state = read_process(hub.pid, "stat").rpartition(b")")[2].strip()
    else:
        import subprocess  # as a rule nobody asks

        words = ["ps", "-o", "stat=", "-p", str(hub.pid)]
        state = subprocess.run(words, capture_output=True, timeout=ANSWER_SECONDS, check=False).stdout.strip()
    return state[:1] in (b"T", b"t")


def silent_hub(hub: HubAddress, *, may_happen: bool) -> Unavailable:
    """What a command says of a hub that does not answer."""
    kept = "What was asked may still happen: look before you repeat it." if may_happen else "Nothing was changed."
    way = f"`kill -KILL {hub.pid}` ends it, and costs nothing that it has acknowledged"
    why = (
        f"It is stopped: `kill -CONT {hub.pid}` lets it go on, {way}." if is_stopped(hub) else f"If it stays so, {way}."
    )
    return Unavailable(f"the hub at {hub.url} (pid {hub.pid}) does not answer", hint=f"{kept} {why}")


class SilenceWatch:
    """While its block runs, sees that the hub is at work; cuts the connection when it is not."""

    def __init__(self, hub: HubAddress, connection: socket.socket) -> None:
        self._hub, self._connection = hub, connection
        self._over = threading.Event()
        self.is_silent = False

    def __enter__(self) -> "SilenceWatch":
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()

    def _run(self) -> None:
        pause, heard_at = FIRST_LOOK_SECONDS, time.monotonic()
        while not self._over.wait(pause):
            pause = LOOK_SECONDS
            if self._answers():
                heard_at = time.monotonic()
            elif is_stopped(self._hub) or time.monotonic() - heard_at > PATIENCE_SECONDS:
                self._cut()
                return

    def _answers(self) -> bool:
        """Whether the hub says anything at all; one that takes no connection any more may still be finishing ours."""
        place = urllib.parse.urlsplit(self._hub.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", SMALL_FILE)
            connection.getresponse()
        except TimeoutError:
            return False
        except (OSError, http.client.HTTPException):
            return True
        finally:
            connection.close()
        return True

    def _cut(self) -> None:
        if not self._over.is_set():
            self.is_silent = True
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
