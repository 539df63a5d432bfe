"""Which tool a name means."""

import pytest
from mcp_types import Tool as McpTool

from crewhall.client.tools import ServerTool, ambiguous_tool, matching_tools, split_name, unknown_tool

TOOLS = [
    ServerTool("hall", "task_list"),
    ServerTool("hall", "claude_judge_review", aliases=("claude_review", "judge")),
    ServerTool("ollama", "ollama_list"),
    ServerTool("ollama", "task_list"),
    ServerTool("odd", "judge"),
]
MEANT = [
    ("ollama_list", [("ollama", "ollama_list")]),
    ("task_list", [("hall", "task_list"), ("ollama", "task_list")]),
    ("claude_review", [("hall", "claude_judge_review")]),
    ("judge", [("hall", "claude_judge_review"), ("odd", "judge")]),  # nobody takes another's alias by its own name
    ("task", []),
    ("", []),
]
PARTED = [
    ("hall.task_list", ("hall", "task_list")),
    ("ollama.two.show", ("ollama.two", "show")),
    ("ollama.three", ("ollama", "three")),
    ("hall.", ("hall", "")),
    ("halls.x", None),
    ("x", None),
]


@pytest.mark.parametrize(("name", "found"), MEANT)
def test_a_name_means_these_tools(name: str, found: list[tuple[str, str]]) -> None:
    assert [(tool.server, tool.name) for tool in matching_tools(TOOLS, name)] == found


@pytest.mark.parametrize(("name", "parts"), PARTED)
def test_a_server_may_stand_before_the_tool(name: str, parts: tuple[str, str] | None) -> None:
    assert split_name(name, ["hall", "ollama", "ollama.two"]) == parts


def test_refusals_name_what_could_be_meant() -> None:
    both = ambiguous_tool("task_list", matching_tools(TOOLS, "task_list"))
    assert both.message == "'task_list' is a tool of hall and of ollama"
    assert both.hint == "Say which: 'hall.task_list' or 'ollama.task_list', or server='hall'."
    missing = unknown_tool("ollama.olama_list", TOOLS, ["hall", "ollama"])
    assert missing.message == "there is no tool 'ollama.olama_list' in hall, ollama"
    assert missing.hint.startswith("Did you mean ollama_list")
    assert "list_tools()" in unknown_tool("zzz", TOOLS, ["hall"]).hint


@pytest.mark.parametrize(
    ("said", "aliases"), [(["a", "b"], ("a", "b")), (["a", 1], ("a",)), ("ab", ()), (None, ()), ({"a": 1}, ())]
)
def test_aliases_are_what_the_server_says_if_it_says_a_list(said: object, aliases: tuple[str, ...]) -> None:
    listed = McpTool(name="t", input_schema={"type": "object"}, _meta={"crewhall/aliases": said})
    assert ServerTool.from_mcp("s", listed).aliases == aliases
