"""All servers of a client, on one event loop: which has a tool, and a call of it."""

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from crewhall.client.link import Heard, Link, ServerStatus
from crewhall.client.servers import Server
from crewhall.client.tools import ServerTool, ambiguous_tool, matching_tools, split_name, unknown_tool
from crewhall.errors import Failure, InvalidInput, NotFound, Unavailable

PATIENCE = 3.0  # seconds from the start that a name waits for servers which might have it as well
CLOSING = 10.0

T = TypeVar("T")


class Fleet:
    def __init__(self, servers: Mapping[str, Server], limit: float) -> None:
        self._links = {name: Link(name, server, limit) for name, server in servers.items()}
        self._keepers = [asyncio.ensure_future(link.keep()) for link in self._links.values()]
        self._calls: set[asyncio.Task[Any]] = set()
        self._patient_until = asyncio.get_running_loop().time() + PATIENCE

    async def close(self) -> None:
        """Cancel the calls that go on, at their servers too; then end every connection and every process."""
        await _cancel(self._calls)
        await _cancel(self._keepers)

    async def track(self, work: Awaitable[T]) -> T:
        """Await the work; `close` cancels it."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work
        finally:
            self._calls.discard(task)

    async def statuses(self) -> dict[str, ServerStatus]:
        """How each server stands, once each was tried or a moment has passed."""
        await _wait_until_tried(self._links.values(), self._patience())
        return {name: link.status() for name, link in self._links.items()}

    async def list_tools(self) -> list[ServerTool]:
        """The tools of all servers that are connected, asked for anew."""
        await _wait_until_tried(self._links.values(), None)
        await asyncio.gather(*(self._refresh_tools(link) for link in self._links.values()))
        if not any(link.is_connected for link in self._links.values()):
            raise Unavailable(f"no server is connected: {_down(self._links.values())}", hint="Put that right.")
        return [tool for link in self._links.values() if link.is_connected for tool in link.tools.values()]

    async def call(self, name: str, arguments: Any, server: str | None, silence: float | None, heard: Heard) -> Any:
        """Call the one tool that the name means."""
        arguments = {} if arguments is None else arguments  # some servers take it for granted
        _refuse_what_is_no_json(arguments)
        tool = await self._find_tool(name, server)
        return await self._links[tool.server].call(tool.name, arguments, silence, heard)

    async def _find_tool(self, name: str, server: str | None) -> ServerTool:
        """Find the tool that a name means. Raises InvalidInput when it may mean two, NotFound, Unavailable."""
        parts = split_name(name, self._links) if server is None else None
        if parts is not None:  # who names a server wants no other, though that may have a tool of that very name
            server, name = parts
        links = list(self._links.values()) if server is None else [self._link(server)]
        await _wait_until_tried(links, self._patience())
        found = matching_tools(_known_tools(links), name)
        if not found:  # it may be new, or of a server that is slow to start
            await _wait_until_tried(links, None)
            await asyncio.gather(*(self._refresh_tools(link) for link in links))
            found = matching_tools(_known_tools(links), name)
        if len(found) == 1:
            return found[0]
        raise ambiguous_tool(name, found) if found else _missing(name, links)

    def _patience(self) -> float:
        """The seconds left in which servers may still be connecting for the first time."""
        return max(0.0, self._patient_until - asyncio.get_running_loop().time())

    def _link(self, server: str) -> Link:
        if server not in self._links:
            raise NotFound(f"there is no server {server!r}", hint=f"The servers are {', '.join(self._links)}.")
        return self._links[server]

    async def _refresh_tools(self, link: Link) -> None:
        """Refresh the tools of a server; for one that is down, try for PATIENCE seconds."""
        with suppress(Failure, TimeoutError):
            async with asyncio.timeout(None if link.is_connected else PATIENCE):
                await link.refresh_tools()


async def _wait_until_tried(links: Iterable[Link], seconds: float | None) -> None:
    """Wait until each link has tried to connect once, or `seconds` have passed."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for link in links:
                await link.was_tried.wait()


def _known_tools(links: list[Link]) -> list[ServerTool]:
    return [tool for link in links for tool in link.tools.values()]


def _missing(name: str, links: list[Link]) -> Failure:
    failure = unknown_tool(name, _known_tools(links), [link.name for link in links])
    down = _down(links)
    return Unavailable(f"{failure.message}, as far as is known; {down}", failure.hint) if down else failure


def _down(links: Iterable[Link]) -> str:
    return "; ".join(f"{link.name} is not connected: {link.status().why}" for link in links if not link.is_connected)


def _refuse_what_is_no_json(arguments: Any) -> None:
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the arguments cannot be sent as JSON: {error}", hint="Give plain values.") from None
    if not isinstance(arguments, dict):
        raise InvalidInput("the arguments are no object", hint='Give them by name: {"path": "…"}.')


async def _cancel(tasks: Any) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSING)
