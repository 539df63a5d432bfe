"""Hostile arguments of every declared tool: each is refused with a reason, by every way in, and changes nothing."""

import json
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.edges.hub import dispatch
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from tests.conftest import Live
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import MODERN, Interface, by_input, by_mcp, by_rest, mcp
from tests.edges.raw_http import assert_alive
from tests.edges.sample_arguments import Case, bad_calls, furnish, needed, sample
from tests.edges.stdio import hall_of
from tests.sizes import size

TOOLS = registry().tools
OFF_THE_PATH = {"call_log", "chore"}  # what is written beside the calls themselves


def content(hub: Hub) -> dict[str, str]:
    """All rows of the hall, by table."""
    tables = [name for name in hub.store.tables() if name not in OFF_THE_PATH]
    hub.store.texts |= {f"all of {table}": f"SELECT * FROM {table}" for table in tables}
    with hub.store.read() as tx:
        return {table: repr(sorted(map(repr, tx.all(f"all of {table}")))) for table in tables}


def assert_refused(body: dict[str, Any], case: Case, tool: str) -> None:
    """An answer that a caller can act on, and that tells nothing of our inside."""
    about = (tool, case.kind, case.place, str(body)[:500])
    assert body.get("code") == body.get("error") == "INVALID_INPUT", about
    assert body["message"] and body["hint"] and body["recoverable"] is True and body["tool_name"] == tool, about
    assert len(json.dumps(body)) < 6_000 and "Traceback" not in str(body), about
    assert "instance of" not in body["message"] and "dictionary" not in body["message"], about


def test_every_bad_argument_of_every_tool_is_refused_and_nothing_has_changed(hub: Hub) -> None:
    ids = furnish(hub)
    before = content(hub)
    kinds: Counter[str] = Counter()
    for tool in TOOLS:
        for case in bad_calls(tool, ids):
            answer = dispatch.call(hub, tool.name, case.arguments, OPERATOR, edge="test")
            assert_refused(answer.body, case, tool.name)
            kinds[case.kind] += 1
        assert content(hub) == before, tool.name
    assert len(kinds) == 10 and all(number >= 20 for number in kinds.values()), kinds


def test_a_bad_call_differs_from_a_good_one_in_that_alone(hub: Hub) -> None:
    """What the bad ones are made from is taken: else they could be refused for another reason."""
    ids = furnish(hub)
    for tool in TOOLS:
        for name in tool.input_schema["properties"]:
            tool.parse(needed(tool, ids) | {name: sample(tool, name, ids)})


def test_a_misspelt_name_inside_an_object_is_told_with_the_right_one(hub: Hub) -> None:
    for tool, arguments, message in (
        ("task_replan", {"id": "x", "reason": "r", "new_plan": {"approach": "", "steps": [], "step": []}}, "'steps'"),
        ("workflow_add_tasks", {"id": "x", "tasks": [{"nmae": "a"}]}, "'tasks.0.nmae', did you mean 'name'"),
        ("message_broadcast", {"recipient_filter": {"rol": "worker"}}, "'recipient_filter.rol', did you mean 'role'"),
        ("message_broadcast", {"recipient_filter": {"zzzzz": 1}}, "unknown argument 'recipient_filter.zzzzz';"),
    ):
        body = dispatch.call(hub, tool, arguments | {"message_type": 1, "body": 1}, OPERATOR, edge="test").body
        assert message in body["message"] + ";", body


@pytest.fixture
def bridge(live: Live) -> Iterator[Interface]:
    with closing(ForkedBridge(live.hub.settings.home, **hall_of(live))) as client:
        yield lambda _, tool, arguments, token: client.call(tool, **arguments)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_bad_arguments_are_refused_by_every_way_in(live: Live, bridge: Interface) -> None:
    """A few calls of each tool, each of another kind and by another way, so that every kind meets every way."""
    ids = furnish(live.hub)
    ways = {"mcp": by_mcp(MODERN), "rest": by_rest, "bridge": bridge, "cli": by_input}
    before = content(live.hub)
    met: set[tuple[str, str]] = set()
    for turn, tool in enumerate(TOOLS):
        cases = deque(first_of_each_kind(tool, ids).items())
        cases.rotate(turn)
        tried: list[str] = []
        for kind, case in cases:
            way = list(ways)[(turn // 10 + len(tried)) % len(ways)]
            if len(tried) == size(len(ways), full=100) or (kind == "huge text" and (kind, way) in met):
                continue  # 3 MiB once by each way
            assert_refused(ways[way](live, tool.name, case.arguments, live.token), case, tool.name)
            met.add((kind, way))
            tried.append(way)
        assert set(tried) == set(ways) or len(cases) < len(ways), f"every way was tried with {tool.name}"
    assert content(live.hub) == before
    assert_alive(live)
    assert {(kind, way) for kind, _ in met for way in ways} <= met and len({kind for kind, _ in met}) == 10


def first_of_each_kind(tool: Any, ids: dict[str, str]) -> dict[str, Case]:
    found: dict[str, Case] = {}
    for case in bad_calls(tool, ids):
        found.setdefault(case.kind, case)
    return found


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_half_a_surrogate_in_a_2025_era_message_is_a_parse_error(live: Live) -> None:
    """The SDK reads those messages, and takes no such text from anyone: see test_same_bodies."""
    ids = furnish(live.hub)
    before = content(live.hub)
    for name in ("workflow_create", "checkpoint_add", "message_send"):
        case = first_of_each_kind(live.hub.registry.find(name), ids)["surrogate"]
        answer = mcp(live, "2025-06-18", "tools/call", {"name": name, "arguments": case.arguments})
        assert answer["error"]["code"] == -32700
    assert content(live.hub) == before
    assert_alive(live)
