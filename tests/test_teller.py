"""Notices: in an agent's next answer, once, on any hub; told again when a hub died with the answer in its hand."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.app.teller import ANSWER_BYTES, MOST, TELLING_MS
from crewhall.errors import Failure
from crewhall.identity import OPERATOR
from crewhall.notices import LETTERS, Kind, notify, withdraw
from tests.conftest import Agent, Clock

MakeHub = Callable[..., Hub]


def tell(hub: Hub, agent: str, *texts: str, kind: Kind = "message", **more: Any) -> None:
    with hub.own_work() as tx:
        for text in texts:
            notify(tx, [agent], kind, text, text, hub.clock(), **more)


def ask(hub: Hub, agent: Agent, tool: str = "agent_list", *, is_sent: bool = True, **given: Any) -> list[str]:
    """The notices in the answer to a call."""
    told: list[str] = []
    body = hub.call(tool, given, agent.actor, told=told)
    if is_sent:
        hub.teller.note_sent(told)
    found: list[str] = body.get("notices", [])
    return found


def test_the_next_answer_tells_and_the_ones_after_it_do_not(hub: Hub) -> None:
    ada, eve = Agent(hub, "ada"), Agent(hub, "eve")
    tell(hub, ada.id, "one", "two")
    assert ask(hub, eve) == []
    assert sorted(ask(hub, ada)) == ["one", "two"]
    assert ask(hub, ada) == []
    tell(hub, ada.id, "three")
    assert ask(hub, ada, "agent_heartbeat") == ["three"]


def test_a_failure_tells_too(hub: Hub) -> None:
    ada, told = Agent(hub, "ada"), list[str]()
    tell(hub, ada.id, "one")
    with pytest.raises(Failure) as refused:
        hub.call("task_get", {"id": "tk_none"}, ada.actor, told=told)
    assert refused.value.body()["notices"] == ["one"] and len(told) == 1


def test_an_edge_that_tells_nothing_takes_nothing_away(hub: Hub) -> None:
    ada = Agent(hub, "ada")
    tell(hub, ada.id, "one")
    assert "notices" not in ada.call("agent_list")
    assert ask(hub, ada) == ["one"]


def test_whoever_merely_names_an_agent_is_not_told(hub: Hub) -> None:
    ada = hub.call("agent_register", {"name": "ada", "runtime": "codex"}, OPERATOR)["id"]
    tell(hub, ada, "one")
    assert "notices" not in hub.call("message_list", {"agent_id": ada}, OPERATOR, told=[])
    bridge = Origin(bridge="br_1")
    hub.call("agent_heartbeat", {"agent_id": ada}, OPERATOR, origin=bridge, told=[])
    assert hub.call("agent_list", {}, OPERATOR, origin=bridge, told=[])["notices"] == ["one"]


def test_of_two_behind_one_bridge_the_one_that_a_call_names_is_told(hub: Hub) -> None:
    bridge = Origin(bridge="br_1")
    ada, eve = (
        hub.call("agent_register", {"name": name, "runtime": "codex"}, OPERATOR, origin=bridge)["id"]
        for name in ("ada", "eve")
    )
    for agent in (ada, eve):
        tell(hub, agent, f"to {agent}")
    assert "notices" not in hub.call("agent_list", {}, OPERATOR, origin=bridge, told=[])
    for agent in (eve, ada):
        told = hub.call("message_list", {"agent_id": agent}, OPERATOR, origin=bridge, told=[])["notices"]
        assert told == [f"to {agent}"]


def test_on_another_hub_it_is_told_once_as_well(hub: Hub, make_hub: MakeHub, clock: Clock) -> None:
    ada, other = Agent(hub, "ada"), make_hub(clock=clock)
    tell(hub, ada.id, "one")
    assert ask(hub, ada, is_sent=False) == ["one"]
    assert ask(other, ada) == ask(hub, ada) == [], "it is on its way"
    tell(hub, ada.id, "two")
    assert ask(other, ada) == ["two"]
    assert ask(hub, ada) == []


def test_an_answer_that_was_never_sent_is_told_again(hub: Hub, clock: Clock) -> None:
    ada = Agent(hub, "ada")
    tell(hub, ada.id, "one")
    assert ask(hub, ada, is_sent=False) == ["one"]
    clock.advance(TELLING_MS / 1000 + 1)
    assert ask(hub, ada) == ["one"]
    assert ask(hub, ada) == []


def test_what_a_dead_hub_had_in_hand_the_next_one_tells_at_once(hub: Hub, make_hub: MakeHub, clock: Clock) -> None:
    ada, other = Agent(hub, "ada"), make_hub(clock=clock)
    tell(hub, ada.id, "one")
    pid = 2**22 + 1  # more than any process can have
    hub.process.__dict__["name"] = " ".join((*hub.process.name.split(" ")[:2], f"{pid} 1"))
    assert ask(hub, ada, is_sent=False) == ["one"]
    assert ask(other, ada) == ["one"]
    assert ask(other, ada) == []


def test_two_calls_at_once_tell_it_once(hub: Hub, make_hub: MakeHub, clock: Clock) -> None:
    ada, hubs = Agent(hub, "ada"), [hub, make_hub(clock=clock)]
    tell(hub, ada.id, *map(str, range(MOST)))
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: ask(hubs[number % 2], ada), range(8)))
    assert sorted(text for answer in answers for text in answer) == sorted(map(str, range(MOST)))


def test_many_come_a_few_at_a_time_in_their_order(hub: Hub, clock: Clock) -> None:
    ada = Agent(hub, "ada")
    for number in range(2 * MOST + 1):
        tell(hub, ada.id, f"{number:02}")
        clock.advance(1)
    seen = [ask(hub, ada) for _ in range(4)]
    assert [len(some) for some in seen] == [MOST, MOST, 1, 0]
    assert [text for some in seen for text in some] == [f"{number:02}" for number in range(2 * MOST + 1)]


def test_what_is_no_longer_so_is_not_told(hub: Hub, clock: Clock) -> None:
    ada = Agent(hub, "ada")
    tell(hub, ada.id, "gone", "stays")
    tell(hub, ada.id, "late", expires_at=hub.clock() + 1000)
    with hub.own_work() as tx:
        withdraw(tx, "message", ["gone"])
        withdraw(tx, "paused", ["stays"])
    clock.advance(2)
    assert ask(hub, ada) == ["stays"]


def test_a_text_is_one_short_line(hub: Hub) -> None:
    ada = Agent(hub, "ada")
    tell(hub, ada.id, "a\n\n  b\t" + "c" * 1000)
    (text,) = ask(hub, ada)
    assert text.startswith("a b ccc") and len(text) == LETTERS and text.endswith("…")


def test_every_output_schema_has_notices(hub: Hub) -> None:
    for tool in hub.registry.tools:
        assert tool.output_schema["properties"]["notices"]["items"] == {"type": "string"}
        assert "notices" not in tool.output_schema.get("required", [])


@pytest.mark.parametrize("kind", ["message", "named"])
def test_what_others_can_make_many_of_holds_no_pause_up(hub: Hub, clock: Clock, kind: Kind) -> None:
    """Whoever has much mail is told of a pause in the next answer all the same."""
    ada = Agent(hub, "ada")
    tell(hub, ada.id, *map(str, range(2 * MOST)), kind=kind)
    clock.advance(1)
    tell(hub, ada.id, "paused", kind="paused")
    assert "paused" in ask(hub, ada)


def test_a_large_answer_tells_fewer_at_once(hub: Hub) -> None:
    ada = Agent(hub, "ada")
    for number in range(60):
        hub.call("agent_register", {"name": f"eve{number}", "runtime": "codex", "metadata": {"a": "x" * 900}}, OPERATOR)
    tell(hub, ada.id, *(f"{number} {'x' * LETTERS}" for number in range(MOST)))
    told: list[str] = []
    body = hub.call("agent_list", {}, ada.actor, told=told)
    hub.teller.note_sent(told)
    assert body["agents"][-1]["metadata"] and len(json.dumps(body, ensure_ascii=False).encode()) <= ANSWER_BYTES
    assert len(body["notices"]) == 1 and len(ask(hub, ada, "agent_heartbeat")) == MOST - 1
