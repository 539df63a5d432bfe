"""The services of a running hub: dispatcher, chores and edges, started and stopped together."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from crewhall.app import Hub
from crewhall.edges.bridge.hub_socket import HubSocket
from crewhall.edges.http.feed import Feed
from crewhall.edges.http.waiting_room import WaitingRoom
from crewhall.edges.hub.bridge_server import BridgeServer
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.edges.mcp.server import McpEdge
from crewhall.edges.mcp.sse import SseEdge
from crewhall.edges.mcp.subscriptions import Listening
from crewhall.edges.worktree.servers import WorktreeServers
from crewhall.errors import Unavailable

log = logging.getLogger(__name__)


class HubServices:
    """Everything that one hub runs, except for the HTTP server in front of it."""

    def __init__(self, hub: Hub, stop: Callable[[], None]) -> None:
        self.hub = hub
        self.dispatcher = Dispatcher(hub)
        self.feed = Feed(self.dispatcher)
        self.listening = Listening(self.dispatcher, self.feed, hub.registry)
        self.mcp = McpEdge(self.dispatcher, self.listening)
        self.sse = SseEdge(self.mcp)
        self.room = WaitingRoom()
        self.worktrees = WorktreeServers(self.dispatcher, self.feed, self.room)
        self.bridges = BridgeServer(self.mcp, self.worktrees.edge, HubSocket(hub.settings), stop)
        self.connections: dict[str, Callable[[], int]] = {
            "bridge": lambda: self.bridges.connections,
            "sse": lambda: self.sse.connections,
            "listen": lambda: self.listening.streams,
            "worktree": lambda: self.worktrees.connections,
        }
        self.is_stuck = False  # a thread could not be ended
        self._stop_at: float | None = None

    @asynccontextmanager
    async def serve(self, *, is_alone: bool = False) -> AsyncIterator[None]:
        """Do chores and serve bridges until the block ends; then let running calls finish, and stop everything.

        A hub that `is_alone` has one client already, and takes no bridges.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            async with self.mcp.running(), self.worktrees.edge.running():
                tasks.append(asyncio.create_task(self._chores()))
                if not is_alone:
                    tasks.append(asyncio.create_task(self.worktrees.begin(self.bridges.has_place)))
                    await self._wait_for_worktrees()
                    tasks.append(asyncio.create_task(self.bridges.open()))
                yield
        finally:
            for task in tasks:
                task.cancel()
            await self.leave()
            self.feed.close()
            has_ended = await asyncio.to_thread(self.hub.chores.close, self._seconds_left())
            self.is_stuck = not await self.dispatcher.close(self._seconds_left()) or not has_ended
            self.bridges.release()

    async def _wait_for_worktrees(self) -> None:
        """If this hub serves the worktrees, they are served before it says that it is up."""
        with suppress(OSError):
            if self.bridges.take_place():
                await self.worktrees.has_begun.wait()

    async def leave(self) -> None:
        """Send bridges and standing streams away; whoever waits for an answer gets it first."""
        await self.bridges.close(self._seconds_left())  # first: a bridge takes its standing questions to the next hub
        self.listening.close()
        self.sse.close()
        await self.worktrees.close(self._seconds_left())

    def _seconds_left(self) -> float:
        """Of the time that a stopping hub lets running calls finish."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self.hub.settings["server.shutdown_seconds"]
        return max(0.0, self._stop_at - time.monotonic())

    async def _chores(self) -> None:
        while True:
            try:
                await self.dispatcher.thread(self.hub.chores.tick)
                self.hub.outages.clear("chores")
            except Unavailable as failure:
                self.hub.outages.note("chores", failure)
            except Exception:
                log.exception("no chore could be started")
            await asyncio.sleep(self.hub.chores.pause_seconds)
