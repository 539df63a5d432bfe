"""Runtimes: places are filled once, and settings that can't be are refused with their name."""

from pathlib import Path
from typing import Any

import pytest

from crewhall.errors import InvalidInput
from crewhall.families.crew.runtimes import PLACES, Runtime, runtime_named
from tests.conftest import settings_for

FILLED = {name: f"<{name}>" for name in PLACES}


def named(tmp_path: Path, name: str, **runtimes: Any) -> Runtime:
    return runtime_named(settings_for(str(tmp_path / "hall.db"), tmp_path, crew__runtimes=runtimes), name)


def test_each_place_is_filled_and_a_prompt_stays_as_it_is() -> None:
    words = ("agent", *(f"{{{name}}}" for name in PLACES), "--at={worktree}/x", "{unknown}")
    places = FILLED | {"prompt": "look at {worktree} and {prompt_file}"}
    expected = ["agent", *places.values(), "--at=<worktree>/x", "{unknown}"]
    assert Runtime(command=words).words(places) == expected


def test_a_value_that_looks_like_a_place_is_not_filled_again() -> None:
    places = FILLED | {"mcp_config": "/tmp/{worktree}/mcp.json"}
    assert Runtime(command=("a", "--mcp={mcp_config}")).words(places) == ["a", "--mcp=/tmp/{worktree}/mcp.json"]


@pytest.mark.parametrize(("permission", "expected"), [("skip", ["a", "--yes", "b"]), ("ask", ["a", "b"])])
def test_the_words_of_a_permission_take_their_place(permission: Any, expected: list[str]) -> None:
    runtime = Runtime(command=("a", "{permission}", "b"), skip=("--yes",), permission=permission)
    assert runtime.words(FILLED) == expected


def test_a_resumed_program_has_its_own_words_if_it_has_any() -> None:
    assert Runtime(command=("a",), resume=("a", "-r")).words(FILLED, resumes=True) == ["a", "-r"]
    assert Runtime(command=("a",)).words(FILLED, resumes=True) == ["a"]


def test_an_unknown_runtime_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no runtime 'nope'.*claude_code.*mine") as caught:
        named(tmp_path, "nope", mine={"command": ["x"]})
    assert "[crew.runtimes.nope]" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "named_part"),
    [
        ({}, "command"),
        ({"command": []}, "command"),
        ({"command": "claude"}, "command"),
        ({"command": ["a"], "typo": 1}, "typo"),
        ({"command": ["sh", "-c", "a '{prompt}'"]}, r"command\.2: .*{prompt} must be a word of its own"),
        ({"command": ["a"], "permission": "maybe"}, "permission"),
        ({"command": ["a"], "environment": {"A": 1}}, "environment.A"),
    ],
)
def test_malformed_settings_are_refused_by_name(tmp_path: Path, given: dict[str, Any], named_part: str) -> None:
    with pytest.raises(InvalidInput, match=f"the runtime mine: {named_part}") as caught:
        named(tmp_path, "mine", mine=given)
    assert "[crew.runtimes.mine]" in caught.value.hint


def test_parts_of_a_built_in_runtime_can_be_changed(tmp_path: Path) -> None:
    changed = named(tmp_path, "claude_code", claude_code={"permission": "ask"})
    assert changed.permission == "ask" and changed.command == named(tmp_path, "claude_code").command
