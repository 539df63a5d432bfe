"""
Whether a hub that says nothing stands still: would it greet another bridge? Standard library only.

    a request is with the hub, and nothing comes ──▶ connect again, say hello ── a word, or the end ──▶ it is at work
                                                                              └─ silence ──▶ it stands still
"""

import json
import socket
from contextlib import suppress

# No version, so the hub leaves for nobody; it replaces nothing, so the hub ends the connection after its greeting.
HELLO = json.dumps({"crewhall": "0", "replaces": True, "port": 0}).encode() + b"\n"


class Probe:
    """A connection that only waits for the hub's greeting."""

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.began_at = now
        self._connection = connection
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(HELLO)

    def is_answered(self) -> bool:
        """Whether the hub has said anything, or ended the connection; both take a process that runs."""
        try:
            self._connection.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._connection.close()
