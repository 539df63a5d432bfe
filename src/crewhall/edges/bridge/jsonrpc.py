"""JSON-RPC messages that the bridge and the hub build themselves. Standard library only."""

import json
from typing import Any

from crewhall.errors import Failure

INTERNAL_ERROR = -32603


def is_id(name: Any) -> bool:
    """Whether a request may be known by this: MCP has text and whole numbers."""
    return isinstance(name, str | int) and not isinstance(name, bool)


def tool_result(body: dict[str, Any], *, is_error: bool) -> dict[str, Any]:
    """A body as the result of tools/call: the text is the structured content as JSON."""
    return {
        "content": [{"type": "text", "text": _json_text(body)}],
        "structuredContent": body,
        "isError": is_error,
        "resultType": "complete",
    }


def _json_text(body: dict[str, Any]) -> str:
    """The body as JSON that UTF-8 can hold: only half of a surrogate pair makes it escape characters."""
    text = json.dumps(body, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(body)
    return text


def refusal(id: Any, method: str, failure: Failure, tool_name: str | None = None) -> dict[str, Any]:
    """A failure as the response to a request, in the form that its method requires."""
    body = failure.body(tool_name)
    answer = {"jsonrpc": "2.0", "id": id}
    if method == "tools/call":
        return answer | {"result": tool_result(body, is_error=True)}
    words = f"{failure.code}: {failure.message}. {failure.hint}"
    return answer | {"error": {"code": INTERNAL_ERROR, "message": words, "data": body}}
