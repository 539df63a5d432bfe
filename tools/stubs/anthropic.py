"""Anthropic's Messages API, from a script: a model that plays what the script says, turn by turn."""

import itertools
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from tools.stubs.loopback import Refused, model

Json = dict[str, Any]
USAGE = {"input_tokens": 1, "output_tokens": 1}
ANSWERS = itertools.count(1)  # a client counts the tokens of an id once


@dataclass(frozen=True)
class Use:
    """The model calls a tool, by the name that the client gives it."""

    tool: str
    arguments: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """The API answers with an error, and no model is asked."""

    status: int
    kind: str = "api_error"


Turn = Use | Problem | str
# From what the person asked: the model's turns, each a tool to use, or at last what it says. A turn gets what the tool
# before it gave: an object where that is JSON, else the text.
Play = Generator[Turn, Any, None]
Script = Callable[[str], Play]


def plays(script: Script, requests: list[Json] | None = None, usage: Json = USAGE) -> AbstractContextManager[str]:
    """Serve a model that plays the script for each thing asked of it; what a client takes for ANTHROPIC_BASE_URL.

    It has no memory of its own: the script begins anew with every request and is given the results in it, up to the
    turn that is next. `requests` keeps all that the model was sent; each answer takes the tokens of `usage`.
    """

    def answer(request: Json) -> Iterable[Json]:
        if requests is not None:
            requests.append(request)
        turn = next_turn(script, request) if request.get("tools") else "done"
        if isinstance(turn, Problem):
            raise Refused(turn.status, {"type": "error", "error": {"type": turn.kind, "message": turn.kind}})
        number = sum(len(_blocks(message, "tool_use")) for message in request["messages"])
        block = _call(turn, number + 1) if isinstance(turn, Use) else _text(turn)
        return _stream(str(request["model"]), usage, *block)

    return model("/v1/messages", answer)


def calls_once(tool: str, arguments: Json) -> AbstractContextManager[str]:
    """Serve a model that calls one tool, and once it has the result says it is done."""

    def script(_: str) -> Play:
        yield Use(tool, arguments)

    return plays(script)


def next_turn(script: Script, request: Json) -> Turn:
    """What the script has the model do after all that the request tells."""
    return turn_after(script, *told(request))


def turn_after(script: Script, asked: str, given: list[Any]) -> Turn:
    """What the script has the model do that was asked this, and then was given these results."""
    play = script(asked)
    try:
        turn = next(play)
        for result in given:
            turn = play.send(result)
    except StopIteration:
        return "done"
    except Exception as error:  # with no answer the client would ask again and again
        return f"the script failed: {error!r}"
    return turn


def told(request: Json) -> tuple[str, list[Any]]:
    """The last thing that the person asked, and what the tools gave since."""
    asked = ""
    given: list[Any] = []
    for message in request["messages"]:
        results = _blocks(message, "tool_result")
        if message["role"] == "user" and not results:
            asked, given = "\n".join(block["text"] for block in _blocks(message, "text")), []
        given += [parsed(_plain(result["content"])) for result in results]
    return asked, given


def _blocks(message: Json, kind: str) -> list[Json]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [block for block in blocks if block["type"] == kind]


def _plain(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def parsed(text: str) -> Any:
    """An object, without what the client tells its model after it; what is none stays text."""
    try:
        return json.JSONDecoder().raw_decode(text)[0] if text.startswith("{") else text
    except ValueError:
        return text


def _call(use: Use, number: int) -> tuple[Json, Json, str]:
    block = {"type": "tool_use", "id": f"toolu_{number}", "name": use.tool, "input": {}}
    return block, {"type": "input_json_delta", "partial_json": json.dumps(use.arguments)}, "tool_use"


def _text(text: str) -> tuple[Json, Json, str]:
    return {"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn"


def _stream(name: str, usage: Json, block: Json, delta: Json, reason: str) -> Iterator[Json]:
    """The events of an answer with one block of content."""
    message = {
        "id": f"msg_{next(ANSWERS)}",
        "type": "message",
        "role": "assistant",
        "model": name,
        "content": [],
        "usage": usage,
    }
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}
