"""Asking for a worktree's context in tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from crewhall.app import Hub, Origin
from crewhall.identity import OPERATOR
from crewhall.stop import Stop

Context = Callable[..., dict[str, Any]]


def context_caller(hub: Hub) -> Context:
    """The tool through the door, as the worktree's own server calls it."""

    def ask(root: Path, *, stop: Stop | None = None, **arguments: Any) -> dict[str, Any]:
        origin = Origin(worktree=str(root))
        return hub.call("get_project_context", arguments, OPERATOR, origin=origin, stop=stop)

    return ask


def lines(body: dict[str, Any], name: str) -> list[str]:
    """The lines of a section; the test fails when it is missing."""
    text_lines: list[str] = next(one["text"] for one in body["sections"] if one["name"] == name).split("\n")
    return text_lines


def reason(body: dict[str, Any], name: str) -> str:
    """Why a section is missing; the test fails when it is not."""
    return str(next(one["reason"] for one in body["missing"] if one["name"] == name))
