"""The same call gives the same body through every way in, on both databases."""

from typing import Any

import pytest

from crewhall.identity import OPERATOR
from tests.conftest import Agent, Live
from tests.edges.ways import WAYS, by_get, mcp

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("agent_list", {}),
    ("agent_list", {"status": ["online", "busy"], "role": "worker", "limit": 1}),
    ("agent_get", {"id": "$ada"}),
    ("agent_heartbeat", {"agent_id": "$ada"}),
    ("agent_heartbeat", {"agent_id": "$ada", "status": "busy", "current_task_id": "tk_ü"}),
    ("agent_update", {"id": "$ada", "current_task_id": None, "metadata": {"deep": [{"x": None, "y": 1.5}]}}),
    ("repository_register", {"path": "/srv/app"}),
    ("repository_list", {"limit": 5, "offset": 0}),
    ("repository_get", {"path": "/srv/app"}),
    ("repository_get", {"path": "/nowhere"}),
    ("event_list", {"after": 1, "limit": 1}),
    ("agent_unregister", {"id": "$ada"}),
]

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("agent_get", {}, "INVALID_INPUT"),
    ("agent_get", {"id": "ag_nobody"}, "NOT_FOUND"),
    ("agent_get", {"ids": "x"}, "INVALID_INPUT"),
    ("agent_get", {"id": 7}, "INVALID_INPUT"),
    ("agent_list", {"limit": 0}, "INVALID_INPUT"),
    ("agent_list", {"limit": "5"}, "INVALID_INPUT"),
    ("agent_list", {"status": ["asleep"]}, "INVALID_INPUT"),
    ("agent_list", {"limit": 10**30}, "INVALID_INPUT"),
    ("agent_heartbeat", {}, "INVALID_INPUT"),
    ("agent_register", {"name": "x", "runtime": "emacs"}, "INVALID_INPUT"),
    ("agent_register", {"name": "a\0b", "runtime": "codex"}, "INVALID_INPUT"),
    ("agent_register", {"name": "x", "runtime": "codex", "metadata": {"k": "v" * 17_000}}, "INVALID_INPUT"),
    ("repository_register", {"path": "relative"}, "INVALID_INPUT"),
]


@pytest.fixture
def ada(live: Live) -> str:
    found: str = live.hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)["id"]
    live.hub.call("repository_register", {"path": "/srv/app"}, OPERATOR)
    return found


def steady(value: Any) -> Any:
    """The body without what the clock writes."""
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if not key.endswith("_at")}
    return [steady(item) for item in value] if isinstance(value, list) else value


def test_good_calls_give_the_same_bodies(live: Live, ada: str) -> None:
    for tool, template in GOOD:
        arguments = {key: ada if value == "$ada" else value for key, value in template.items()}
        bodies = {name: steady(way(live, tool, arguments, live.token)) for name, way in WAYS.items()}
        assert len({repr(body) for body in bodies.values()}) == 1, (tool, bodies)
        assert "code" not in bodies["rest"], bodies["rest"]
        if not live.hub.registry.find(tool).changes:
            assert steady(by_get(live, tool, arguments, live.token)) == bodies["rest"]


def test_bad_calls_give_the_same_bodies_and_change_nothing(live: Live, ada: str) -> None:
    before = live.hub.call("event_list", {}, OPERATOR)["newest"]
    for tool, arguments, code in BAD:
        bodies = {name: way(live, tool, arguments, live.token) for name, way in WAYS.items()}
        assert len({repr(body) for body in bodies.values()}) == 1, (tool, bodies)
        body = bodies["rest"]
        assert (body["code"], body["error"], body["tool_name"]) == (code, code, tool)
        assert body["message"] and body["hint"] and isinstance(body["recoverable"], bool)
    assert live.hub.call("event_list", {}, OPERATOR)["newest"] == before


def test_an_agent_is_held_to_itself_through_every_way(live: Live, ada: str) -> None:
    bob = Agent(live.hub, "bob")
    for name, way in WAYS.items():
        assert way(live, "agent_heartbeat", {}, bob.token)["success"], name
        for tool, arguments in (
            ("agent_heartbeat", {"agent_id": ada}),
            ("agent_update", {"id": ada, "status": "offline"}),
            ("agent_token_create", {"name": "mallory"}),
        ):
            assert way(live, tool, arguments, bob.token)["code"] == "FORBIDDEN", (name, tool)
    assert live.hub.call("agent_get", {"id": ada}, OPERATOR)["status"] == "online"


def test_half_a_surrogate_pair_is_refused_by_every_way(live: Live) -> None:
    """The SDK's 2025-era parser refuses it before the door sees it; the other ways give the door's own body."""
    arguments = {"name": "\ud800", "runtime": "codex"}
    bodies = [WAYS[name](live, "agent_register", arguments, live.token) for name in ("mcp-2026", "rest", "cli")]
    assert bodies[0] == bodies[1] == bodies[2] and bodies[0]["code"] == "INVALID_INPUT"
    for version in ("2025-11-25", "2025-06-18"):
        answer = mcp(live, version, "tools/call", {"name": "agent_register", "arguments": arguments})
        assert answer["error"]["code"] == -32700
