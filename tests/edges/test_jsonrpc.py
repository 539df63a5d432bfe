"""The wire form of a tool's result, which the bridge and the hub share."""

import json

import pytest

from crewhall.edges.bridge.jsonrpc import refusal, tool_result
from crewhall.errors import Unavailable


@pytest.mark.parametrize("name", ["ada", "Zoë", "\ud800", "Zoë \udc00"])
def test_the_text_of_a_result_is_its_body_and_utf_8_can_hold_it(name: str) -> None:
    body = {"name": name}
    result = tool_result(body, is_error=False)
    (content,) = result["content"]
    assert content["text"].encode() and json.loads(content["text"]) == body == result["structuredContent"]


def test_text_that_utf_8_can_hold_is_not_escaped() -> None:
    (content,) = tool_result({"name": "Zoë"}, is_error=False)["content"]
    assert content["text"] == '{"name": "Zoë"}'


def test_a_refused_call_has_the_form_of_a_failed_one() -> None:
    failure = Unavailable("no hub for Zoë", hint="Wait.")
    assert refusal(7, "tools/call", failure, "agent_list") == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": tool_result(failure.body("agent_list"), is_error=True),
    }
    assert refusal(7, "tools/list", failure)["error"]["data"] == failure.body()
