"""Followers of the hall's events, which go on at another hub, from their cursor, when theirs says nothing."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.faults.caller import Caller

SILENCE = 4.0  # seconds without an event after which a watcher tries another hub
Event = dict[str, Any]


class Follower:
    """It notes each event that it is shown, until it has been shown the one with the number `last`."""

    def __init__(self, caller: Caller, note: Callable[[Event], None], over: threading.Event) -> None:
        self._caller, self._note, self._over = caller, note, over
        self.cursor = 0
        self.last: int | None = None

    @property
    def is_done(self) -> bool:
        return self._over.is_set() or (self.last is not None and self.cursor >= self.last)

    def _take(self, page: dict[str, Any]) -> bool:
        """Whether it was a page of events."""
        for event in page.get("events", []):
            self._note(event)
        self.cursor = page.get("cursor", self.cursor)
        return bool(page.get("events"))

    def run(self) -> None:
        """By event_list."""
        while not self.is_done:
            if not self._take(self._caller.look("event_list", after=self.cursor, limit=200)):
                self._over.wait(0.2)


class Watcher(Follower):
    """The same over the WebSocket."""

    def __init__(
        self,
        caller: Caller,
        note: Callable[[Event], None],
        over: threading.Event,
        token: str,
        ports: Sequence[int],
        hub: int,
    ) -> None:
        super().__init__(caller, note, over)
        self._headers, self._ports, self._hub = {"Authorization": f"Bearer {token}"}, ports, hub

    def run(self) -> None:
        while not self.is_done:
            try:
                for page in self._pages():
                    self._take(page)
            except (OSError, WebSocketException, ValueError):  # silence is a TimeoutError, an OSError
                self._hub = (self._hub + 1) % len(self._ports)
                self._over.wait(0.2)

    def _pages(self) -> Iterator[dict[str, Any]]:
        """What the hub sends, until all is seen or it is silent."""
        url = f"ws://127.0.0.1:{self._ports[self._hub]}/api/v1/events?after={self.cursor}"
        with connect(
            url, additional_headers=self._headers, open_timeout=SILENCE, close_timeout=1, compression=None
        ) as hub:
            while not self.is_done:
                yield json.loads(hub.recv(timeout=SILENCE))
