"""
One client's conversation with the MCP server, a message a line, whatever carries the lines.

    line ─▶ JSON ─▶ who asks? ─▶ SDK ─▶ door          a bridge's socket and an SSE stream are carriers
    line ◀──────────────────────◀─┘

Who asks is found out for each request anew: a token that was revoked a moment ago opens nothing.
"""

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from crewhall.edges.bridge.jsonrpc import is_id, refusal
from crewhall.edges.mcp.caller import Caller
from crewhall.edges.mcp.envelope import problem_of_size
from crewhall.edges.mcp.server import McpEdge
from crewhall.errors import Failure, LimitExceeded

log = logging.getLogger(__name__)
MOST_AT_ONCE = 1024
MOST_BYTES_AT_ONCE = 64 * 1024 * 1024
NO_MESSAGE = "this is not a JSON-RPC message"
Send = Callable[[str], Awaitable[None]]


class Conversation:
    """`receive` takes the client's lines, `send` is given ours, `run` lasts until `end`."""

    def __init__(
        self,
        edge: McpEdge,
        caller: Callable[[bool], Awaitable[Caller]],  # another one each time; of a tool call perhaps a guess
        send: Send,
        most_bytes: int = MOST_BYTES_AT_ONCE,
    ) -> None:
        self._edge = edge
        self._caller = caller
        self._send = send
        self._most_bytes = most_bytes
        self._to_sdk, self._from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._to_client, self._from_sdk = anyio.create_memory_object_stream[SessionMessage](0)
        self._running: dict[str, tuple[str, int, list[str]]] = {}  # request id → its method, its size, what it is told
        self._bytes = 0
        self._settled = anyio.Event()

    async def run(self) -> None:
        """Serve until the conversation is ended; what runs then is cancelled."""
        server = self._edge.server
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                await server.run(self._from_client, self._to_client, server.create_initialization_options())
                tasks.cancel_scope.cancel()
        except* (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            log.debug("a conversation ended in the middle of a message")

    def end(self) -> None:
        """Say no more, and end `run`. The SDK would answer what is open with an error; that is for the carrier."""
        self._from_sdk.close()
        self._to_sdk.close()

    async def wait_until_settled(self) -> None:
        """Wait until every request except the standing ones has its response."""
        while self._is_busy():
            self._settled = anyio.Event()
            await self._settled.wait()

    def _is_busy(self) -> bool:
        return any(method != "subscriptions/listen" for method, _, _ in self._running.values())

    async def receive(self, line: bytes) -> None:
        """Take one message of the client. What cannot be a message is answered as JSON-RPC has it."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            await self._refuse(None, PARSE_ERROR, "this line is not JSON")
            return
        if not isinstance(message, dict) or ("id" in message and not is_id(message["id"])):
            await self._refuse(None, INVALID_REQUEST, NO_MESSAGE)
        elif problem := problem_of_size(message):
            await self._refuse(message.get("id"), INVALID_REQUEST, problem)
        elif "id" in message and isinstance(message.get("method"), str):
            await self._request(message, len(line))
        else:
            await self._pass_on(message, None)

    async def _request(self, message: dict[str, Any], size: int) -> None:
        try:
            who = await self._caller(message["method"] == "tools/call")
            if len(self._running) >= MOST_AT_ONCE or self._bytes + size > self._most_bytes:
                raise LimitExceeded(
                    f"{len(self._running)} requests of {self._bytes} bytes wait on this connection already",
                    hint="Nothing of this one was done. Wait for answers before sending more.",
                )
        except Failure as failure:
            await self._write_line(refusal(message["id"], message["method"], failure, _tool_named(message)))
            return
        key = json.dumps(message["id"])
        self._settle(key)  # a client that gives an id twice gets both answers, and we count one
        self._running[key] = (message["method"], size, who.told)
        self._bytes += size

        async def settle_unanswered() -> None:
            self._settle(key)

        metadata = ServerMessageMetadata(request_context=who, on_request_unanswered=settle_unanswered)
        await self._pass_on(message, metadata)

    async def _pass_on(self, message: dict[str, Any], metadata: ServerMessageMetadata | None) -> None:
        try:
            parsed: JSONRPCMessage = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except (ValidationError, RecursionError):
            self._settle(json.dumps(message.get("id")))
            await self._refuse(message.get("id"), INVALID_REQUEST, NO_MESSAGE)
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # it has ended
            await self._to_sdk.send(SessionMessage(parsed, metadata))

    async def _write(self) -> None:
        with suppress(anyio.ClosedResourceError):
            async for session_message in self._from_sdk:
                message = session_message.message
                await self._send(_line(message))
                name = getattr(message, "id", None)
                if name is not None and not hasattr(message, "method"):
                    self._edge.dispatcher.note_told_soon(self._settle(json.dumps(name)))

    async def _refuse(self, name: str | int | None, code: int, text: str) -> None:
        await self._write_line({"jsonrpc": "2.0", "id": name, "error": {"code": code, "message": text}})

    async def _write_line(self, message: dict[str, Any]) -> None:
        await self._send(json.dumps(message))

    def _settle(self, key: str) -> list[str]:
        """The request has its answer, or gets none; what that told its sender."""
        _, size, told = self._running.pop(key, ("", 0, []))
        self._bytes -= size
        if not self._is_busy():
            self._settled.set()
        return told


def _line(message: JSONRPCMessage) -> str:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:  # it repeats half a surrogate pair, which JSON can hold and UTF-8 cannot
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True))


def _tool_named(message: dict[str, Any]) -> str | None:
    """The tool that a call is of, as far as its sender says so."""
    params = message.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    return name if isinstance(name, str) else None
