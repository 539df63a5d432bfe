"""
Who follows the events over a WebSocket, from a cursor of its own.

    catches up: reads pages by itself ──▶ keeps up: each batch is written to its connection with that of all others
         ▲                                                     │
         └───────── its client is to read first ◀──────────────┘
"""

import asyncio

from crewhall.edges.http.feed import Feed, FeedEvent
from crewhall.edges.http.watcher_connection import WatcherConnection
from crewhall.errors import Failure


class Watcher:
    """A watcher's connection, how far it has been told, and of what."""

    def __init__(self, feed: Feed, connection: WatcherConnection, cursor: int, topic: str | None) -> None:
        self.cursor = cursor
        self._feed = feed
        self._connection = connection
        self._topic = topic
        self._refusal: Failure | None = None
        self._fell_behind: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def follow(self, slow_seconds: float) -> None:
        """Tell it what happens, for ever.

        Raises CursorExpired, what it is refused with, TimeoutError if it reads nothing for so many seconds, and
        ClientDisconnected.
        """
        while True:
            await self._catch_up(slow_seconds)
            await self._keep_up()

    def refuse(self, failure: Failure) -> None:
        """Tell it no more."""
        self._refusal = failure
        self._fall_behind()

    async def _catch_up(self, slow_seconds: float) -> None:
        while self._refusal is None:
            page = await self._feed.page_after(self.cursor, self._topic)
            if page.frame:
                await asyncio.wait_for(self._connection.send_frame(page.frame), slow_seconds)
            self.cursor = page.cursor
            if self.cursor >= self._feed.position and self._refusal is None:
                return
        raise self._refusal

    async def _keep_up(self) -> None:
        """Be told what comes until the connection takes no more. No task wakes up for a batch."""
        self._fell_behind = asyncio.get_running_loop().create_future()
        end = self._feed.listen(self._tell)
        try:
            await self._fell_behind
        finally:
            end()

    def _tell(self, _: list[FeedEvent]) -> None:
        """Send what the feed has in memory, as far as it can be sent at once."""
        while self.cursor < self._feed.position and not self._fell_behind.done():
            page = self._feed.page_in_memory(self.cursor, self._topic)
            if page is None or (page.frame and not self._connection.send_now(page.frame)):
                self._fall_behind()
            else:
                self.cursor = page.cursor

    def _fall_behind(self) -> None:
        if not self._fell_behind.done():
            self._fell_behind.set_result(None)
