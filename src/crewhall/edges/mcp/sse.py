"""
HTTP+SSE for clients of 2024-11-05: GET `/sse` opens a stream, and POST to the address it names first brings messages.

The stream belongs to this hub alone: it cannot move to another one. Newer clients use `/mcp`.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Protocol

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crewhall.edges.http.reply import event, event_stream
from crewhall.edges.mcp.caller import Caller, profile_in_query
from crewhall.edges.mcp.line_transport import Conversation
from crewhall.edges.mcp.server import McpEdge
from crewhall.errors import NotFound

KEEP_ALIVE_SECONDS = 15.0
QUEUE = 256
MOST_BYTES = 8 * 1024 * 1024  # of requests that wait for their answers; a client may have many streams


class Audience(Protocol):
    """Who counts the clients of streams, each by its stream's name."""

    def note(self, client: object) -> None:
        """A client has asked something."""

    def forget(self, client: object) -> None:
        """Its stream has ended."""


class SseEdge:
    """Streams that are opened at one path; the server of a worktree has its own, at `/mcp`."""

    def __init__(self, edge: McpEdge, path: str = "/sse", audience: Audience | None = None) -> None:
        self._edge = edge
        self._path = path
        self._audience = audience
        self._streams: dict[str, Stream] = {}

    def routes(self) -> list[Route]:
        return [
            Route(self._path, self.open, methods=["GET"]),
            Route(f"{self._path}/{{stream}}", self.post, methods=["POST"]),
        ]

    @property
    def connections(self) -> int:
        return len(self._streams)

    async def _caller(self, request: Request) -> Caller:
        return await self._edge.caller({**request.scope, "path_params": {}}, edge="sse")

    async def open(self, request: Request) -> Response:
        who = await self._caller(request)
        is_newer = "mcp-protocol-version" in request.headers  # from 2025 on the stream brings no answers
        suffix = f"?profile={who.profile}" if profile_in_query(request.scope) else ""  # each message is read anew
        with self._edge.dispatcher.stream(who.actor, who.origin):  # while it can be refused with an answer
            return event_stream(self._events(who, is_newer, suffix))

    async def _events(self, who: Caller, is_newer: bool, suffix: str) -> AsyncIterator[str]:
        name, stream, held = secrets.token_urlsafe(24), Stream(self._edge, who), ExitStack()
        self._streams[name] = stream
        try:
            held.enter_context(self._edge.dispatcher.stream(who.actor, who.origin))
            yield ": here\n\n" if is_newer else event("endpoint", f"{self._path}/{name}{suffix}")
            async for line in stream.lines():
                yield event("message", line) if line else ": still here\n\n"
        finally:
            held.close()
            del self._streams[name]
            if self._audience:
                self._audience.forget(name)
            with anyio.CancelScope(shield=True):
                await stream.end()

    async def post(self, request: Request) -> Response:
        stream = self._streams.get(request.path_params["stream"])
        who = await self._caller(request)
        # A stream answers to whoever opened it; for anyone else it is not there.
        if stream is None or stream.caller.actor.id != who.actor.id:
            raise NotFound(
                "there is no such stream", hint=f"Open one with GET {self._path}; it ends with its connection."
            )
        body = await request.body()
        if self._audience and not stream.has_ended:
            self._audience.note(request.path_params["stream"])
        stream.caller = who
        # A message is one line: JSON has no line ends but between its words.
        await stream.talk.receive(body.replace(b"\n", b" "))
        return Response(status_code=202)

    def close(self) -> None:
        """End every stream."""
        for stream in self._streams.values():
            stream.stop()


class Stream:
    """One client's stream, and the conversation on it."""

    def __init__(self, edge: McpEdge, caller: Caller) -> None:
        self.caller = caller
        self.has_ended = False
        self.talk = Conversation(edge, self._who, self._say, MOST_BYTES)
        self._out: asyncio.Queue[str | None] = asyncio.Queue(QUEUE)
        self._running = asyncio.create_task(self.talk.run())
        self._running.add_done_callback(lambda _: self.stop())

    async def _who(self, _: bool) -> Caller:
        return replace(self.caller, told=[])

    async def _say(self, line: str) -> None:
        await self._out.put(line)

    async def lines(self) -> AsyncIterator[str]:
        """What is said to the client, and an empty line now and then so that nobody thinks we are gone."""
        while True:
            try:
                line = await asyncio.wait_for(self._out.get(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                line = ""
            if line is None:
                return
            yield line

    def stop(self) -> None:
        with suppress(asyncio.QueueFull):
            self._out.put_nowait(None)

    async def end(self) -> None:
        self.has_ended = True
        self.talk.end()
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
