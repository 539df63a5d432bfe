"""The same call gives the same body through every way in, on both databases."""

from collections.abc import Iterator
from typing import Any

import pytest

from crewhall.identity import OPERATOR
from tests.conftest import BOTH, Live
from tests.edges.conftest import SharedHubs, newcomer
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import INTERFACES, Interface, by_get, mcp
from tests.edges.sse import Sse
from tests.edges.stdio import hall_of

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("agent_list", {}),
    ("agent_list", {"status": ["online", "busy"], "role": "worker", "limit": 1}),
    ("agent_get", {"id": "$ada"}),
    ("agent_heartbeat", {"agent_id": "$ada"}),
    ("agent_heartbeat", {"agent_id": "$ada", "status": "busy"}),
    ("agent_update", {"id": "$ada", "current_task_id": None, "metadata": {"deep": [{"x": None, "y": 1.5}]}}),
    ("repository_register", {"path": "/srv/app"}),
    ("repository_list", {"limit": 5, "offset": 0}),
    ("repository_get", {"path": "/srv/app"}),
    ("repository_get", {"path": "/nowhere"}),
    ("event_list", {"after": 1, "limit": 1}),
    ("agent_unregister", {"id": "$ada"}),
    ("agent_archive", {"id": "$ada"}),
    ("agent_archive", {"id": "$ada", "restore": True}),
]

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("agent_get", {}, "INVALID_INPUT"),
    ("agent_archive", {"id": "ag_nobody"}, "NOT_FOUND"),
    ("agent_get", {"id": "ag_nobody"}, "NOT_FOUND"),
    ("agent_get", {"ids": "x"}, "INVALID_INPUT"),
    ("agent_get", {"id": 7}, "INVALID_INPUT"),
    ("agent_list", {"limit": 0}, "INVALID_INPUT"),
    ("agent_list", {"limit": "5"}, "INVALID_INPUT"),
    ("agent_list", {"status": ["asleep"]}, "INVALID_INPUT"),
    ("agent_list", {"limit": 10**30}, "INVALID_INPUT"),
    ("agent_heartbeat", {}, "INVALID_INPUT"),
    ("agent_heartbeat", {"agent_id": "ag_nobody", "current_task_id": "tk_ü"}, "NOT_FOUND"),
    ("agent_register", {"name": "x", "runtime": "emacs"}, "INVALID_INPUT"),
    ("agent_register", {"name": "a\0b", "runtime": "codex"}, "INVALID_INPUT"),
    ("agent_register", {"name": "x", "runtime": "codex", "metadata": {"k": "v" * 17_000}}, "INVALID_INPUT"),
    ("repository_register", {"path": "relative"}, "INVALID_INPUT"),
]


class Connected:
    """The ways in that last: a bridge in each era, one that serves alone, an SSE stream; one for each hub and token."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str], ForkedBridge | Sse] = {}

    def interface(self, kind: str) -> Interface:
        def ask(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
            if (kind, live.url, token) not in self._open:
                self._open[kind, live.url, token] = self._connect(kind, live, token)
            return self._open[kind, live.url, token].call(tool, **arguments)

        return ask

    def _connect(self, kind: str, live: Live, token: str) -> ForkedBridge | Sse:
        if kind == "sse":
            return Sse(live, token)
        words = ["--standalone"] if kind == "standalone" else []
        client = ForkedBridge(live.hub.settings.home, *words, **hall_of(live), CREWHALL_TOKEN=token)
        if kind == "bridge-2025":
            client.initialize()
        return client

    def close(self) -> None:
        for client in self._open.values():
            client.close()


LASTING = ("bridge-2026", "bridge-2025", "standalone", "sse")


@pytest.fixture(params=BOTH)
def live(request: pytest.FixtureRequest, shared_hubs: SharedHubs) -> Live:
    """The module's hub on each database, with the connections of the module's ways."""
    return shared_hubs.find("hall", request.param)


@pytest.fixture(scope="module")
def interfaces(shared_hubs: SharedHubs) -> Iterator[dict[str, Interface]]:
    connected = Connected()
    yield INTERFACES | {kind: connected.interface(kind) for kind in LASTING}
    connected.close()


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


def test_good_calls_give_the_same_bodies(live: Live, ada: str, interfaces: dict[str, Interface]) -> None:
    for tool, template in GOOD:
        arguments = {key: ada if value == "$ada" else value for key, value in template.items()}
        bodies = {name: steady(interface(live, tool, arguments, live.token)) for name, interface in interfaces.items()}
        assert len({repr(body) for body in bodies.values()}) == 1, (tool, bodies)
        assert "code" not in bodies["rest"], bodies["rest"]
        if not live.hub.registry.find(tool).changes:
            assert steady(by_get(live, tool, arguments, live.token)) == bodies["rest"]


def test_bad_calls_give_the_same_bodies_and_change_nothing(
    live: Live, ada: str, interfaces: dict[str, Interface]
) -> None:
    before = live.hub.call("event_list", {}, OPERATOR)["newest"]
    for tool, arguments, code in BAD:
        bodies = {name: interface(live, tool, arguments, live.token) for name, interface in interfaces.items()}
        assert len({repr(body) for body in bodies.values()}) == 1, (tool, bodies)
        body = bodies["rest"]
        assert (body["code"], body["error"], body["tool_name"]) == (code, code, tool)
        assert body["message"] and body["hint"] and isinstance(body["recoverable"], bool)
    assert live.hub.call("event_list", {}, OPERATOR)["newest"] == before


def test_an_agent_is_held_to_itself_through_every_way(live: Live, ada: str, interfaces: dict[str, Interface]) -> None:
    bob = newcomer(live)
    for name, interface in interfaces.items():
        assert interface(live, "agent_heartbeat", {}, bob.token)["success"], name
        for tool, arguments in (
            ("agent_heartbeat", {"agent_id": ada}),
            ("agent_update", {"id": ada, "status": "offline"}),
            ("agent_token_create", {"name": "mallory"}),
        ):
            assert interface(live, tool, arguments, bob.token)["code"] == "FORBIDDEN", (name, tool)
    assert live.hub.call("agent_get", {"id": ada}, OPERATOR)["status"] == "online"


def test_half_a_surrogate_pair_is_refused_by_every_way(live: Live, interfaces: dict[str, Interface]) -> None:
    """The SDK's 2025-era parser of HTTP refuses it before the door sees it; all others give the door's own body."""
    arguments = {"name": "\ud800", "runtime": "codex"}
    bodies = [
        interfaces[name](live, "agent_register", arguments, live.token)
        for name in ("mcp-2026", "rest", "cli", *LASTING)
    ]
    assert all(body == bodies[0] for body in bodies) and bodies[0]["code"] == "INVALID_INPUT"
    for version in ("2025-11-25", "2025-06-18"):
        answer = mcp(live, version, "tools/call", {"name": "agent_register", "arguments": arguments})
        assert answer["error"]["code"] == -32700
