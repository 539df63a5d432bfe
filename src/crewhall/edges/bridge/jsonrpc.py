"""JSON-RPC messages that the bridge and the hub build themselves. Standard library only."""

import json
from typing import Any

from crewhall.errors import Failure

INTERNAL_ERROR = -32603


def is_id(name: Any) -> bool:
    """Whether a request may be known by this: MCP has text and whole numbers."""
    return isinstance(name, str | int) and not isinstance(name, bool)


def refusal(id: Any, method: str, failure: Failure, tool_name: str | None = None) -> dict[str, Any]:
    """A failure as the answer to a request, in the form that its method has."""
    body = failure.body(tool_name)
    answer = {"jsonrpc": "2.0", "id": id}
    if method == "tools/call":
        text = [{"type": "text", "text": json.dumps(body)}]
        return answer | {
            "result": {"content": text, "structuredContent": body, "isError": True, "resultType": "complete"}
        }
    words = f"{failure.code}: {failure.message}. {failure.hint}"
    return answer | {"error": {"code": INTERNAL_ERROR, "message": words, "data": body}}
