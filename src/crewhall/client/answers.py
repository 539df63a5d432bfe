"""What a tool's answer is to the caller: a value, or a failure that is raised."""

import json
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from crewhall.errors import Failure, every_failure

MOST_TEXT = 2000  # letters of a server's own words in a message
READ_IT = "The message is the server's own: put right what it names."
BODY = {"error", "code", "message", "hint", "recoverable"}

Clean = Callable[[str], str]  # takes out what is secret


class ToolFailed(Failure):
    """A tool, or its server, answered that it failed, in words of its own."""

    code, status, exit_code = "TOOL_FAILED", 502, 1


def value_of(result: types.CallToolResult) -> Any:
    """The structured content if there is some, else the text; a list of content objects when not all is text."""
    if result.structured_content is not None:
        return result.structured_content
    if all(isinstance(block, types.TextContent) for block in result.content):
        return _text(result)
    return [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in result.content]


def _text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def failure_of(result: types.CallToolResult, who: str, clean: Clean) -> Failure:
    """The failure that an answer with isError tells of: Crewhall's own kinds by their code, else ToolFailed."""
    text = clean(_text(result))
    body = result.structured_content
    known = _from_body(_parse_json(text if body is None else clean(json.dumps(body, ensure_ascii=False))))
    return known or ToolFailed(f"{who} failed: {text[:MOST_TEXT] or 'it said no more'}", hint=READ_IT)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _from_body(body: Any) -> Failure | None:
    """The failure in a body of Crewhall's shape, or nothing."""
    if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in ("code", "message")):
        return None
    kinds = {kind.code: kind for kind in reversed(every_failure())}
    kind = kinds.get(body["code"], ToolFailed)
    fields = {name: value for name, value in body.items() if name not in BODY}
    if kind is ToolFailed:
        fields |= {"error": body["code"], "code": body["code"]}
    failure = kind.__new__(kind)  # a kind may take other arguments than what came over the wire
    Failure.__init__(failure, body["message"], str(body.get("hint") or READ_IT), **fields)
    return failure


def refusal_of(error: MCPError, who: str, clean: Clean) -> Failure:
    """The failure that a protocol error tells of."""
    known = _from_body(_parse_json(clean(json.dumps(error.error.data, ensure_ascii=False))))
    message = clean(error.message)[:MOST_TEXT]
    return known or ToolFailed(f"{who} was refused: {message}", hint=READ_IT, rpc_code=error.code)
