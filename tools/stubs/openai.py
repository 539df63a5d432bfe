"""OpenAI's Responses API, from a script: a model that plays what the script says, turn by turn."""

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tools.stubs.anthropic import Play, Script, Use, parsed, turn_after
from tools.stubs.loopback import model

Json = dict[str, Any]
USAGE = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}


def plays(script: Script, requests: list[Json] | None = None) -> AbstractContextManager[str]:
    """Serve a model that plays the script; a provider's base_url is this with /v1.

    As that of Anthropic's API it has no memory, and `requests` keeps all that it was sent. It knows no problems.
    """

    def answer(request: Json) -> Iterable[Json]:
        if requests is not None:
            requests.append(request)
        asked, given = told(request)
        turn = turn_after(script, asked, given)
        return _stream(_call(turn, len(given) + 1) if isinstance(turn, Use) else _text(str(turn)))

    return model("/v1/responses", answer)


def calls_once(namespace: str, tool: str, arguments: Json) -> AbstractContextManager[str]:
    """Serve a model that calls one tool, and once it has the result says it is done."""

    def script(_: str) -> Play:
        yield Use(f"{namespace}__{tool}", arguments)

    return plays(script)


def told(request: Json) -> tuple[str, list[Any]]:
    """The last thing that the person asked, and what the tools gave."""
    asked = ""
    given: list[Any] = []
    for item in request["input"]:
        if item.get("type") == "message" and item["role"] == "user":
            asked = "\n".join(part.get("text", "") for part in item["content"])
        elif item.get("type") == "function_call_output":
            given.append(parsed(_result(item["output"])))
    return asked, given


def _result(output: str | list[Json]) -> str:
    """What a tool gave, without what Codex says before it."""
    text = output if isinstance(output, str) else "".join(part.get("text", "") for part in output)
    return text.partition("\nOutput:\n")[2] or text


def _call(use: Use, number: int) -> Json:
    """Codex keeps a server's tools in a namespace, which is the name without its last part."""
    namespace, _, tool = use.tool.rpartition("__")
    names = {"namespace": namespace, "name": tool, "call_id": f"call_{number}"}
    return {"type": "function_call", "id": f"fc_{number}", "arguments": json.dumps(use.arguments)} | names


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
