"""What comes back from a call, over a real wire: values, and failures that say what to do next."""

from collections.abc import Iterator
from typing import Any

import pytest

from crewhall.client import Client, ToolFailed
from crewhall.errors import Failure, Forbidden, InvalidInput, NotFound, PathOutsideRoot
from tests.client.clients import stdio_command

IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def text(*words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": word} for word in words]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    entry = {"command": stdio_command()[0], "args": stdio_command()[1:], "env": {"SECRET_WORD": "open sesame"}}
    with Client({"one": entry}) as made:
        yield made


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"content": text("x"), "structuredContent": {"a": [1]}}, {"a": [1]}),
        ({"content": [], "structuredContent": {}}, {}),
        ({"content": text("one", "two")}, "one\ntwo"),
        ({"content": text('{"a": 1}')}, '{"a": 1}'),  # a text stays a text, whatever it looks like
        ({"content": []}, ""),
        ({"content": [*text("see"), IMAGE]}, [*text("see"), IMAGE]),
    ],
)
def test_a_result_is_its_structure_or_else_its_text(client: Client, result: dict[str, Any], value: Any) -> None:
    assert client.call_tool("answer", {"result": result}) == value


BODY = {"code": "NOT_FOUND", "error": "NOT_FOUND", "message": "no task t", "hint": "task_list", "recoverable": True}
OUTSIDE = {"code": "PATH_OUTSIDE_ROOT", "message": "Path outside project root", "hint": "Stay.", "path": "/etc"}


@pytest.mark.parametrize(
    ("result", "kind", "message", "hint"),
    [
        ({"content": [], "structuredContent": BODY}, NotFound, "no task t", "task_list"),
        ({"content": text('{"code": "NOT_FOUND", "message": "m", "hint": "h"}')}, NotFound, "m", "h"),
        ({"content": [], "structuredContent": BODY | {"code": "FORBIDDEN"}}, Forbidden, "no task t", "task_list"),
        ({"content": [], "structuredContent": OUTSIDE}, PathOutsideRoot, "Path outside project root", "Stay."),
        ({"content": [], "structuredContent": {"code": "NEW_ONE", "message": "m"}}, ToolFailed, "m", "put right"),
        ({"content": text("Error: no model")}, ToolFailed, "answer of one failed: Error: no model", "put right"),
        ({"content": text("the word is open sesame")}, ToolFailed, "the word is [hidden]", "put right"),
        ({"content": []}, ToolFailed, "it said no more", "put right"),
    ],
)
def test_a_failed_tool_raises_what_it_tells(
    client: Client, result: dict[str, Any], kind: type[Failure], message: str, hint: str
) -> None:
    with pytest.raises(Failure) as raised:
        client.call_tool("answer", {"result": result | {"isError": True}})
    assert type(raised.value) is kind
    assert message in str(raised.value) and hint in raised.value.hint


def test_a_failure_keeps_its_further_fields_and_a_strange_code(client: Client) -> None:
    with pytest.raises(PathOutsideRoot) as known:
        client.call_tool("answer", {"result": {"content": [], "structuredContent": OUTSIDE, "isError": True}})
    assert known.value.fields == {"path": "/etc"}
    strange = {"code": "NEW_ONE", "message": "m", "seat": 3}
    with pytest.raises(ToolFailed) as unknown:
        client.call_tool("answer", {"result": {"content": [], "structuredContent": strange, "isError": True}})
    assert unknown.value.body()["code"] == "NEW_ONE" and unknown.value.fields["seat"] == 3


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"code": -32602, "message": "bad words"}, ToolFailed, "refuse of one was refused: bad words"),
        ({"code": -32000, "message": "too busy"}, ToolFailed, "refuse of one was refused: too busy"),
        ({"code": -32603, "message": "x", "data": BODY}, NotFound, "no task t"),
    ],
)
def test_a_protocol_error_is_a_failure_too(
    client: Client, error: dict[str, Any], kind: type[Failure], message: str
) -> None:
    pid = client.call_tool("pid")["pid"]
    with pytest.raises(kind) as raised:
        client.call_tool("refuse", {"error": error})
    assert raised.value.message == message
    assert client.call_tool("pid")["pid"] == pid


def test_an_answer_that_is_none_says_so(client: Client) -> None:
    with pytest.raises(ToolFailed, match="gave an answer that is none"):
        client.call_tool("answer", {"result": {"content": [{"type": "smell"}]}})
    assert client.call_tool("pid")["name"] == "pid"


@pytest.mark.parametrize("arguments", [{"a": object()}, {"a": float("nan")}, {"a": "\ud800"}, [1], "text"])
def test_arguments_that_are_no_json_object_are_refused_here(client: Client, arguments: Any) -> None:
    with pytest.raises(InvalidInput, match="the arguments"):
        client.call_tool("pid", arguments)
