"""OpenAI's Responses API, from a script: a model that calls one tool, and once it has the result says it is done."""

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tools.stubs.loopback import model

Json = dict[str, Any]
USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}


def calls_once(namespace: str, tool: str, arguments: Json) -> AbstractContextManager[str]:
    """Serve such a model; a provider's base_url is this with /v1. Codex keeps a server's tools in a namespace."""

    def answer(request: Json) -> Iterable[Json]:
        has_result = any(item.get("type") == "function_call_output" for item in request["input"])
        return _stream(_text("done") if has_result else _call(namespace, tool, arguments))

    return model("/v1/responses", answer)


def _call(namespace: str, tool: str, arguments: Json) -> Json:
    names = {"namespace": namespace, "name": tool, "call_id": "call_1"}
    return {"type": "function_call", "id": "fc_1", "arguments": json.dumps(arguments)} | names


def _text(text: str) -> Json:
    content = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [content]}


def _stream(item: Json) -> Iterator[Json]:
    """The events of an answer with one item."""
    response = {"id": "resp_1", "object": "response", "output": []}
    yield {"type": "response.created", "response": response | {"status": "in_progress"}}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": response | {"status": "completed", "usage": USAGE}}
