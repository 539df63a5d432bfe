"""Agents are told of unread messages in their next answer, once, on both databases."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Clock

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ada(hub: Hub) -> Agent:
    return Agent(hub, "ada")


@pytest.fixture
def bob(hub: Hub) -> Agent:
    return Agent(hub, "bob")


def notices(hub: Hub, agent: Agent, tool: str = "event_list", **arguments: Any) -> list[str]:
    """What the agent is told with the answer to its next call."""
    told: list[str] = []
    found: list[str] = hub.call(tool, arguments, agent.actor, told=told).get("notices", [])
    hub.teller.note_sent(told)
    return found


def send(agent: Agent, recipient: str, **more: Any) -> str:
    fields = {"message_type": "query", "body": "Which blue?", "recipient_id": recipient}
    sent: str = agent.call("message_send", **fields | more)["id"]
    return sent


def test_an_unread_message_is_told_once_with_the_next_answer(hub: Hub, ada: Agent, bob: Agent) -> None:
    sent = send(ada, bob.id, priority="high")
    assert notices(hub, bob) == [
        f'Unread message {sent} from ada ({ada.id}), high: "Which blue?" Read it with message_get(id="{sent}").'
    ]
    assert notices(hub, bob) == [] == notices(hub, ada)
    assert bob.call("message_list")["unread_count"] == 1, "that it was told reads nothing"


def test_any_hub_tells_what_another_took_in(make_hub: Callable[..., Hub], clock: Clock) -> None:
    one, other = make_hub(clock=clock), make_hub(clock=clock)
    ada, bob = Agent(one, "ada"), Agent(one, "bob")
    sent = send(ada, bob.id, subject="Colours")
    (text,) = notices(other, bob)
    assert sent in text and '"Colours"' in text
    assert notices(one, bob) == []


@pytest.mark.parametrize("end", ["message_get", "message_mark_read", "message_archive"])
def test_what_was_read_or_put_away_is_told_no_more(hub: Hub, ada: Agent, bob: Agent, end: str) -> None:
    sent, other = send(ada, bob.id), send(ada, bob.id)
    hub.call(end, {"id": sent} if end == "message_get" else {"message_ids": [sent]}, bob.actor)
    (text,) = notices(hub, bob)
    assert other in text


def test_reading_a_message_tells_of_the_others_and_not_of_that_one(hub: Hub, ada: Agent, bob: Agent) -> None:
    sent, other = send(ada, bob.id), send(ada, bob.id)
    (text,) = notices(hub, bob, "message_get", id=sent)
    assert other in text


def test_a_look_at_a_message_that_marks_nothing_withdraws_nothing(hub: Hub, ada: Agent, bob: Agent) -> None:
    sent = send(ada, bob.id)
    ada.call("message_get", id=sent)
    bob.call("message_get", id=sent, mark_read=False)
    assert len(notices(hub, bob)) == 1


def test_an_expired_message_is_told_no_more(hub: Hub, clock: Clock, ada: Agent, bob: Agent) -> None:
    send(ada, bob.id, expires_in=60)
    clock.advance(61)
    assert notices(hub, bob) == []
    hub.chores.run_due()
    assert rows(hub) == []


def rows(hub: Hub) -> list[dict[str, Any]]:
    hub.store.texts["test"] = "SELECT * FROM notice"
    with hub.store.read() as tx:
        return tx.all("test")


def test_a_broadcast_is_told_to_each_with_its_own_message(hub: Hub, operator: Ask, bob: Agent) -> None:
    lead = Agent(hub, "lead", "coordinator")
    for agent in (lead, bob):
        agent.call("agent_register", name="x", runtime="codex")
    sent = lead.call("message_broadcast", message_type="notification", body="Freeze at noon")
    assert sent["sent_count"] == 1
    (text,) = notices(hub, bob)
    assert sent["message_ids"][0] in text and "from lead" in text and '"Freeze at noon"' in text
    assert notices(hub, lead) == []


def test_the_operators_inbox_has_no_notices(hub: Hub, ada: Agent) -> None:
    send(ada, "operator")
    assert rows(hub) == []


def test_the_operator_is_named_as_the_operator(hub: Hub, operator: Ask, bob: Agent) -> None:
    operator("message_send", sender_id="operator", recipient_id=bob.id, message_type="query", body={"do": "this"})
    (text,) = notices(hub, bob)
    assert "from the operator, normal: \"{'do':" in text


def test_a_returned_message_is_told_to_its_sender(hub: Hub, clock: Clock, ada: Agent, bob: Agent) -> None:
    sent = send(ada, bob.id)
    hub.store.texts["test"] = hub.store.dialect.query("UPDATE agent SET status='offline', lease_until=1 WHERE id = :id")
    with hub.own_work() as tx:
        tx.run("test", id=bob.id)
    hub.chores.run_one("undeliverable")
    (text,) = notices(hub, ada)
    assert "from the hall, high" in text and "Undelivered: your query" in text and sent not in text


def test_who_reads_while_it_is_told_never_waits_for_the_other_for_ever(hub: Hub, ada: Agent, bob: Agent) -> None:
    """Both lock the same notices, one by message and one by notice."""
    for _ in range(5):
        sent = [send(ada, bob.id) for _ in range(8)]
        with ThreadPoolExecutor(4) as pool:
            reading = pool.submit(hub.call, "message_mark_read", {"message_ids": sent[::-1]}, OPERATOR)
            told = [pool.submit(notices, hub, bob) for _ in range(3)]
            reading.result(30)
            assert all(len(one.result(30)) <= 8 for one in told)
        assert notices(hub, bob) == []
