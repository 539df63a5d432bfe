"""Anthropic's Messages API, from a script: a model that calls one tool, and once it has the result says it is done."""

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tools.stubs.loopback import model

Json = dict[str, Any]
USAGE = {"input_tokens": 1, "output_tokens": 1}


def calls_once(tool: str, arguments: Json) -> AbstractContextManager[str]:
    """Serve such a model; what a client takes for ANTHROPIC_BASE_URL."""

    def answer(request: Json) -> Iterable[Json]:
        is_first = bool(request.get("tools")) and not _has_result(request)
        return _stream(str(request["model"]), *(_call(tool, arguments) if is_first else _text("done")))

    return model("/v1/messages", answer)


def _has_result(request: Json) -> bool:
    contents = [message["content"] for message in request["messages"] if isinstance(message["content"], list)]
    return any(block["type"] == "tool_result" for content in contents for block in content)


def _call(tool: str, arguments: Json) -> tuple[Json, Json, str]:
    block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
    return block, {"type": "input_json_delta", "partial_json": json.dumps(arguments)}, "tool_use"


def _text(text: str) -> tuple[Json, Json, str]:
    return {"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn"


def _stream(name: str, block: Json, delta: Json, reason: str) -> Iterator[Json]:
    """The events of an answer with one block of content."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": name, "content": [], "usage": USAGE}
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": USAGE}
    yield {"type": "message_stop"}
