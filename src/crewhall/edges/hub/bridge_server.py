"""
The hub's end of its bridges: a Unix socket that only the hub's own user may open, and a conversation with each.

    lock ─▶ listen ─▶ hello ─▶ talk … ─▶ "!leaving", answer what was sent, close        one hub of the hall at a time
"""

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from crewhall import __version__
from crewhall.app import Origin
from crewhall.config import CLIENT_VARIABLES
from crewhall.edges.bridge.hello import BYE, LEAVING, client_directory, version_of
from crewhall.edges.bridge.hub_socket import HubSocket, is_own, peer_pids
from crewhall.edges.mcp.caller import Caller, caller, families_in
from crewhall.edges.mcp.line_transport import MOST_AT_ONCE, Conversation
from crewhall.edges.mcp.server import McpEdge
from crewhall.errors import Failure, Forbidden, InvalidInput
from crewhall.identity import Credentials, Sender, new_id
from crewhall.outside.processes import is_dead, name_of

log = logging.getLogger(__name__)
HELLO_SECONDS = 10.0
ENDING_SECONDS = 2.5  # in which a bridge that has closed its end is looked at; the chore finds it later
LOOK_SECONDS = 1.0
SPARE_BYTES = 64 * 1024
HELLO_BYTES = 256 * 1024
VERSION_LETTERS = 100
HELLO = {"crewhall": str, "families": str | None, "profile": str | None, "variables": dict | None}
BRIDGE_NAME = re.compile(r"br_[0-9a-z]{1,40}")  # one that any database can hold


class BridgeServer:
    """Serves the hall's bridges. It calls `leave` if a newer hub is to take this one's place."""

    def __init__(self, edge: McpEdge, worktree_edge: McpEdge, hub_socket: HubSocket, leave: Callable[[], None]) -> None:
        self.edge, self._worktree_edge = edge, worktree_edge
        self.hub_socket = hub_socket
        self.port: int | None = None  # of the hub's HTTP
        self.is_for_bridges = False  # started by one, and of no use when the last has gone
        self._leave = leave
        self._lock: int | None = None
        self.has_place = asyncio.Event()  # no other hub of this hall has it on this node
        self._server: asyncio.Server | None = None
        self._bridges: dict[asyncio.Task[None], BridgeConnection] = {}
        self._is_leaving = False
        self._ending: set[asyncio.Task[None]] = set()
        self._trouble = ""

    @property
    def connections(self) -> int:
        return len(self._bridges)

    @property
    def line_bytes(self) -> int:
        """The longest line of a bridge; it refuses a longer message itself, and knows whose it is."""
        return int(self.edge.dispatcher.hub.settings["server.max_body_bytes"]) + SPARE_BYTES

    def hold(self, lock: int, *, for_bridges: bool) -> None:
        """Take the lock that was got before: by the bridge that started this hub, or from a hub that made way."""
        os.set_inheritable(lock, False)
        self._lock = lock
        self.is_for_bridges = for_bridges

    def take_place(self) -> bool:
        """Whether this hub has the hall's place on this node, perhaps from now on. Raises OSError.

        A lock whose file was removed keeps no other hub away: then the new file decides.
        """
        if self._lock is not None and not self.hub_socket.is_locked_by(self._lock):
            log.warning("the hall's lock was removed", extra={"lock": self.hub_socket.lock})
            self.release()
        if self._lock is None:
            self._lock = self.hub_socket.try_lock()
        if self._lock is not None:
            self.has_place.set()
        return self._lock is not None

    async def open(self) -> None:
        """Listen as soon as no other hub of this hall does, and again whenever the socket was removed or replaced."""
        while not self._is_leaving:
            try:
                if self.take_place() and not self.hub_socket.is_bound():
                    await self._listen()
            except OSError as error:
                self._tell_trouble(error)
                if self.is_for_bridges and self._server is None:
                    self._leave()
                    return
            await asyncio.sleep(LOOK_SECONDS)

    async def _listen(self) -> None:
        """Make the socket; one that bridges find no more is closed, and who came by it stays. Raises OSError."""
        if self._server is not None:
            log.warning("the hub's socket was removed or replaced; making it again")
            self._server.close()
        listener = self.hub_socket.listen()
        self._server = await asyncio.start_unix_server(self.serve, sock=listener, limit=self.line_bytes, backlog=512)
        self._trouble = ""

    def _tell_trouble(self, error: OSError) -> None:
        """Log why no bridge can come in, once for each reason: the next try is a second away."""
        if self._trouble != str(error):
            log.error("no bridge can come in", extra={"socket": self.hub_socket.socket, "error": error})
        self._trouble = str(error)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One bridge, from its hello to its end."""
        task, hub = asyncio.current_task(), self.edge.dispatcher.hub
        assert task is not None
        connection = BridgeConnection(self.edge, self._worktree_edge, reader, writer)
        try:
            if await self._greet(connection):
                self._bridges[task] = connection
                if self._is_leaving:
                    connection.leave()
                hub.bindings.forget(connection.bridge)  # it may come from another hub
                with hub.presence.connection(connection.bridge, connection.process):
                    await connection.run()
        except (OSError, EOFError, asyncio.CancelledError):
            log.debug("a bridge went away")
        finally:
            if self._bridges.pop(task, None) is not None and not self._is_leaving and "bridges" in hub.chores.records:
                self._see_off(connection)
            writer.close()

    def _see_off(self, connection: "BridgeConnection") -> None:
        """If a bridge whose connection has ended is dead, the agents that it spoke for are gone: at once."""
        ending = asyncio.create_task(self._look_after(connection))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _look_after(self, connection: "BridgeConnection") -> None:
        """A process that ends closes its socket some time before it is gone; one that lives may come again."""
        hub, end = self.edge.dispatcher.hub, time.monotonic() + ENDING_SECONDS
        while time.monotonic() < end and not self._is_leaving:
            if is_dead(connection.process or ""):
                await self.edge.dispatcher.thread(lambda: hub.chores.run_one("bridges"))
                return
            await asyncio.sleep(ENDING_SECONDS / 50)

    async def _greet(self, connection: "BridgeConnection") -> bool:
        """Whether the bridge may stay."""
        try:
            hello = await asyncio.wait_for(connection.read_hello(), HELLO_SECONDS)
        except (TimeoutError, asyncio.LimitOverrunError):
            return False
        except Failure as failure:
            await connection.say(json.dumps({"error": failure.body()}))
            return False
        self.edge.dispatcher.hub.meter.lose("hub_died", _unknown_calls(hello))
        is_newer = version_of(str(hello["crewhall"])) > version_of(__version__)
        leaves = is_newer or self._makes_way(hello)
        most = self.edge.dispatcher.hub.settings["server.max_body_bytes"]
        await connection.say(json.dumps({"version": __version__, "max_bytes": most, "leaving": leaves}))
        if leaves:
            log.info("another hub takes over", extra={"version": hello["crewhall"]})
            self._leave()
        return not leaves and not hello.get("replaces")

    def _makes_way(self, hello: dict[str, Any]) -> bool:
        """Whether a hub that a person starts may have this one's place, or the port that this one has."""
        return bool(hello.get("replaces")) and self.is_for_bridges and hello.get("port") in (None, self.port)

    async def close(self, seconds: float) -> None:
        """Take no more bridges, let those there are have their answers, and end what is left after `seconds`."""
        self._is_leaving = True
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                if self.hub_socket.is_bound():  # it may be another hub's by now
                    self.hub_socket.socket.unlink()
        for connection in self._bridges.values():
            connection.leave()
        end = time.monotonic() + seconds
        while self._bridges and (left := end - time.monotonic()) > 0:  # one that was being greeted comes in meanwhile
            await asyncio.wait(self._bridges, timeout=left)
        for task in list(self._bridges):
            task.cancel()
        if self._bridges:
            await asyncio.wait(self._bridges)

    def release(self) -> None:
        """Let another hub have the place."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _unknown_calls(hello: dict[str, Any]) -> int:
    """How many calls the bridge had with a hub when that died."""
    count = hello.get("unknown")
    return min(count, MOST_AT_ONCE) if isinstance(count, int) and count > 0 else 0


class BridgeConnection:
    """The connection to one bridge: its hello, then its lines."""

    def __init__(
        self, edge: McpEdge, worktree_edge: McpEdge, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._edge, self._worktree_edge = edge, worktree_edge
        self._reader, self._writer = reader, writer
        self._hello: dict[str, Any] = {}
        peer = peer_pids(writer.get_extra_info("socket"))
        self._sender = Sender(lambda: peer)
        self.process = next((name_of(pid) for pid in peer), None)  # that of the bridge, by its name on this machine
        self.bridge = new_id("br")  # what it is called, unless it has a name of its own that outlives this hub

    async def read_hello(self) -> dict[str, Any]:
        """What the bridge says of itself. Raises Failure when it is no bridge of ours."""
        if not is_own(self._writer.get_extra_info("socket")):
            raise Forbidden("this socket is for the hub's own user", hint="Use HTTP, with a token.")
        try:
            hello = _hello(await self._reader.readline())
        except (ValueError, RecursionError):
            raise InvalidInput("this is no bridge's hello", hint="Connect with `crewhall mcp`.") from None
        self._hello = hello
        if hello.get("profile") == "worktree":  # one worktree's tools, and nothing of the hall
            self._edge = self._worktree_edge
        self._edge = self._edge.seen_by(families_in(str(hello.get("families") or "")))
        if BRIDGE_NAME.fullmatch(str(hello.get("bridge"))):
            self.bridge = hello["bridge"]
        return self._hello

    async def run(self) -> None:
        """Carry lines until the bridge is gone, or has said that no more come and has its answers."""
        self._talk = Conversation(self._edge, self._caller, self.say)
        talking = asyncio.create_task(self._talk.run())
        talking.add_done_callback(lambda _: self._writer.close())
        try:
            while (line := await self._read_line()) is not None and line != BYE:
                await self._talk.receive(line)
            if line == BYE:
                await self._talk.wait_until_settled()
        finally:
            self._talk.end()
            talking.cancel()
            with suppress(asyncio.CancelledError):
                await talking

    async def _read_line(self) -> bytes | None:
        """The next line, or None at the end. One that is too long for a bridge's ends the connection."""
        try:
            return (await self._reader.readuntil(b"\n"))[:-1]
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            return None

    async def say(self, line: str) -> None:
        self._writer.write(line.encode() + b"\n")
        await self._writer.drain()

    def leave(self) -> None:
        """Tell the bridge that this hub stops."""
        self._writer.write(LEAVING + b"\n")

    async def _caller(self, calls_tool: bool) -> Caller:
        """Who speaks through this bridge: the instance that started it, the agent whose token it has, or the operator.

        Raises Failure.
        """
        hello, hub = self._hello, self._edge.dispatcher.hub
        token = hello.get("token")
        is_local = token is None and hub.settings["auth.local_without_token"]
        brought = Credentials(token=None if token is None else str(token), is_local=is_local, sender=self._sender)
        dispatcher = self._edge.dispatcher
        actor = await (dispatcher.caller if calls_tool else dispatcher.actor)(brought)
        variables = hello.get("variables") or {}
        given = {name: str(variables[name]) for name in CLIENT_VARIABLES if name in variables}
        origin = Origin(client_directory(hello.get("directory")), self.bridge, self.process, given)
        return caller(
            self._edge.registry,
            actor,
            hello.get("families") or "",
            hello.get("profile"),
            edge="bridge",
            origin=origin,
            credentials=brought,
        )


def _hello(line: bytes) -> dict[str, Any]:
    """A bridge's hello. Raises ValueError when it is none."""
    hello = json.loads(line) if len(line) <= HELLO_BYTES else None
    if not isinstance(hello, dict) or not all(isinstance(hello.get(name), kind) for name, kind in HELLO.items()):
        raise ValueError("no hello")
    if len(hello["crewhall"]) > VERSION_LETTERS:
        raise ValueError("no version")
    return hello
