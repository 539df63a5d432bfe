"""
The envelope of a message that came by POST: what is none is refused here, in words, for both eras alike.

    body ─▶ JSON? ── no ──▶ the SDK says so, as -32700
              └─ yes ─▶ a request, a notification or a response? ── no ──▶ -32600 and a sentence
                          └─ yes ─▶ the SDK, which reads the same body again
"""

import json
from typing import Any

from mcp_types import INVALID_REQUEST, jsonrpc_message_adapter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope

from crewhall.edges.bridge.jsonrpc import is_id

MOST_FIELDS = 1000  # of an object that the SDK reads field by field; it takes its time, and nothing else runs then


async def read_body(scope: Scope, receive: Receive) -> tuple[bytes, Receive]:
    """A request's body, and a `receive` that gives it again. Raises ClientDisconnect."""
    body = await Request(scope, receive).body()
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return body, receive_again


def read_envelope(body: bytes) -> tuple[str | None, JSONResponse | None]:
    """The method of a message, and the answer to a body that is JSON and no message; neither for what is no JSON."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None, None
    problem = _problem_of(message)
    if problem is None:
        return message.get("method"), None
    name = message.get("id") if isinstance(message, dict) else None
    error = {"code": INVALID_REQUEST, "message": f"{problem}. Send one JSON-RPC 2.0 message by each POST."}
    return None, JSONResponse({"jsonrpc": "2.0", "id": name if is_id(name) else None, "error": error}, 400)


def _problem_of(message: Any) -> str | None:
    """Why this is not one JSON-RPC message, or None when it is."""
    if not isinstance(message, dict):
        return "The body is a batch" if isinstance(message, list) else "The body is no JSON object"
    if message.get("jsonrpc") != "2.0":
        return 'The message lacks "jsonrpc": "2.0"'
    if crowded := problem_of_size(message):
        return crowded
    if "method" in message:
        return _problem_of_call(message, message["method"])
    return None if _is_response(message) else 'The message has no "method", "result" or "error" that can be read'


def problem_of_size(message: dict[str, Any]) -> str | None:
    """Why the SDK should not read this: an object with too many fields. What is in a tool's arguments is the tool's."""
    level: list[tuple[str, Any]] = [("message", message)]
    for _ in range(4):
        for name, one in level:
            if len(one) > MOST_FIELDS:
                return f'"{name}" has {len(one)} fields, and at most {MOST_FIELDS} are read'
        parts = (one.items() for name, one in level if name != "arguments")
        level = [(name, value) for part in parts for name, value in part if isinstance(value, dict)]
    return None


def _problem_of_call(message: dict[str, Any], method: Any) -> str | None:
    """The same for a request or a notification; what is neither by its name is a request that lacks its id."""
    if not isinstance(method, str):
        return '"method" is no text'
    if "id" not in message and not method.startswith("notifications/"):
        return 'The request lacks an "id"'
    if "id" in message and not is_id(message["id"]):
        return '"id" is neither a text nor a whole number'
    return None if isinstance(message.get("params"), dict | None) else '"params" is no object'


def _is_response(message: dict[str, Any]) -> bool:
    try:
        jsonrpc_message_adapter.validate_python(message, by_name=False)
    except (ValidationError, RecursionError):
        return False
    return True
