"""`crewhall mcp --standalone`: the hall served by a thread of the bridge's own process. Imports everything."""

import asyncio
import socket
import threading
from contextlib import closing

from crewhall.app import Hub
from crewhall.config import Settings
from crewhall.edges.hub import logs
from crewhall.edges.hub.services import HubServices
from crewhall.errors import Failure
from crewhall.families.all import registry

END_SECONDS = 15.0


class HubThread:
    """A hub in a thread of its own, for one client: the bridge at the other end of `connection`."""

    def __init__(self, settings: Settings) -> None:
        self.connection, self._theirs = socket.socketpair()
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._run, args=(settings,), name="crewhall-standalone", daemon=True)
        self._thread.start()

    def _run(self, settings: Settings) -> None:
        logs.set_up(settings["log.level"])
        try:
            with closing(Hub(settings, registry())) as hub:
                asyncio.run(self._serve(hub))
        except Failure as failure:
            self.failure = f"{failure.message} ({failure.hint})"
        finally:
            self._theirs.close()

    async def _serve(self, hub: Hub) -> None:
        services = HubServices(hub, lambda: None)
        reader, writer = await asyncio.open_unix_connection(sock=self._theirs, limit=services.bridges.line_bytes)
        async with services.serve(is_alone=True):
            await services.bridges.serve(reader, writer)

    def close(self) -> None:
        """Let the hub finish what it has begun."""
        self.connection.close()
        self._thread.join(END_SECONDS)
