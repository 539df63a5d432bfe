"""For whom a client without a token speaks: the agent that its bridge has registered or claimed for."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from crewhall.app import Hub, Origin
from crewhall.bindings import Bindings
from crewhall.errors import Conflict, Failure, InvalidInput, StaleClaim
from crewhall.identity import OPERATOR
from crewhall.store.transaction import QueuedStatement, Rows, Store
from tests.conftest import Agent, Clock, eventually
from tests.families.work.claims import agent_of, ask, events_about, job, refusal, register_agent, task_of

MakeHub = Callable[..., Hub]
ADAS, BOBS, NEW = Origin(bridge="br_ada"), Origin(bridge="br_bob"), Origin(bridge="br_new")


def actors(hub: Hub, subject: str) -> set[str]:
    """Who did something about a subject, by the event log."""
    return {actor for _, actor, _, _ in events_about(hub, subject)}


def callers(hub: Hub, tool: str) -> list[str]:
    """Who called a tool, by the call log, which a thread of its own writes."""
    eventually(lambda: ask(hub, "call_list", tool=tool)["calls"])
    return [call["actor"] for call in ask(hub, "call_list", tool=tool)["calls"]]


def test_what_a_bound_client_does_has_its_agents_name_and_no_agent_id(hub: Hub) -> None:
    work, ada = job(hub), register_agent(hub, "ada", ADAS)
    assert ask(hub, "task_claim", origin=ADAS, task_id=work.task)["success"]
    ask(hub, "task_update_status", origin=ADAS, id=work.task, status="in_progress")
    ask(hub, "checkpoint_add", origin=ADAS, task_id=work.task, type="progress", summary="half of it")
    ask(hub, "task_load_context", origin=ADAS)
    sent = ask(hub, "message_send", origin=ADAS, recipient_id="operator", message_type="query", body="which?")
    ask(hub, "task_update_status", origin=ADAS, id=work.task, status="completed", outcome="done")
    assert actors(hub, work.task) == {ada}
    assert events_about(hub, ada)[0] == ("agent.registered", ada, None, "online")
    assert ask(hub, "message_get", id=sent["id"])["sender_id"] == ada
    for tool in ("agent_register", "task_claim", "checkpoint_add", "task_load_context", "message_send"):
        assert callers(hub, tool) == [ada]


def test_any_hub_knows_for_whom_a_bridge_speaks(hub: Hub, make_hub: MakeHub, clock: Clock) -> None:
    work, ada = job(hub), register_agent(hub, "ada", ADAS)
    other = make_hub(clock=clock)
    assert ask(other, "task_claim", origin=ADAS, task_id=work.task)["success"]
    assert task_of(hub, work.task, "claimed_by") == ada
    hub.bindings.forget("br_ada")  # as when the bridge comes back to it
    assert ask(hub, "task_claim", origin=ADAS, task_id=work.task)["claim_epoch"] == 1


def test_a_claim_binds_the_bridge_of_a_client_that_did_not_register(hub: Hub) -> None:
    ada, work = register_agent(hub, "ada"), job(hub, "one", "two")
    with pytest.raises(InvalidInput, match="agent_id"):
        ask(hub, "task_claim", origin=NEW, task_id=work.task)
    ask(hub, "task_claim", origin=NEW, task_id=work.tasks["one"], agent_id=ada)
    ask(hub, "task_claim", origin=NEW, task_id=work.tasks["two"])
    assert task_of(hub, work.tasks["two"], "claimed_by") == ada


def test_a_refused_claim_binds_nothing(hub: Hub) -> None:
    ada, work = register_agent(hub, "ada"), job(hub)
    ask(hub, "workflow_update_status", id=work.id, status="abandoned")
    assert refusal(hub, "task_claim", task_id=work.task, agent_id=ada) == "INVALID_STATE"
    with pytest.raises(InvalidInput, match="agent_id"):
        ask(hub, "message_count_unread", origin=NEW)


def test_two_agents_behind_one_bridge_say_who_they_are(hub: Hub) -> None:
    work = job(hub, "one", "two")
    ada, eve = register_agent(hub, "ada", ADAS), register_agent(hub, "eve", ADAS)
    with pytest.raises(InvalidInput, match="agent_id"):
        ask(hub, "task_claim", origin=ADAS, task_id=work.task)
    for agent, task in zip((ada, eve), work.tasks.values(), strict=True):
        ask(hub, "task_claim", origin=ADAS, task_id=task, agent_id=agent)
        assert events_about(hub, task, "task.claimed")[0][1] == agent
    ask(hub, "agent_unregister", origin=ADAS, id=eve)
    assert ask(hub, "message_count_unread", origin=ADAS)["count"] == 0, "one is left, and it speaks for that"


def test_a_late_write_of_a_bound_client_is_stale(hub: Hub) -> None:
    work = job(hub)
    ada, bob = register_agent(hub, "ada", ADAS), register_agent(hub, "bob", BOBS)
    ask(hub, "task_claim", origin=ADAS, task_id=work.task)
    ask(hub, "task_release", origin=ADAS, task_id=work.task)
    ask(hub, "task_claim", origin=BOBS, task_id=work.task)
    for tool, given in (
        ("checkpoint_add", {"task_id": work.task, "type": "progress", "summary": "late"}),
        ("task_update_status", {"id": work.task, "status": "in_progress"}),
        ("task_set_plan", {"id": work.task, "plan": {"approach": "late", "steps": ["one"]}}),
    ):
        with pytest.raises(StaleClaim) as stale:
            ask(hub, tool, origin=ADAS, **given)
        assert stale.value.fields["claimed_by"] == bob
    ask(hub, "task_update_status", origin=BOBS, id=work.task, status="in_progress")
    assert agent_of(hub, ada, "status") == "online"


def test_a_key_is_the_same_before_and_after_the_bridge_is_bound(hub: Hub) -> None:
    given: dict[str, Any] = {"name": "ada", "runtime": "codex", "idempotency_key": "join"}
    first = ask(hub, "agent_register", origin=ADAS, **given)
    assert ask(hub, "agent_register", origin=ADAS, **given) == first
    with pytest.raises(Conflict):
        ask(hub, "agent_register", origin=ADAS, **given | {"runtime": "gemini"})


def test_a_token_binds_no_bridge_and_the_operators_neither(hub: Hub) -> None:
    work, ada, person = job(hub), Agent(hub, "ada"), Agent(hub, "person")
    hub.call("task_claim", {"task_id": work.task}, ada.actor, origin=NEW)
    with pytest.raises(InvalidInput, match="agent_id"):
        ask(hub, "message_count_unread", origin=NEW)
    assert person.call("message_count_unread")["count"] == 0


def test_a_call_that_names_another_agent_is_that_agents_and_is_noticed(hub: Hub) -> None:
    ada, bob = register_agent(hub, "ada", ADAS), register_agent(hub, "bob", BOBS)
    eve = Agent(hub, "eve")
    for victim in (bob, eve.id):
        ask(hub, "agent_update", origin=ADAS, id=victim, metadata={"note": "not by me"})
        assert events_about(hub, victim, "agent.updated")[-1][1] == victim
        (event,) = ask(hub, "event_list", subject=victim, topic="agent.spoken_for")["events"]
        assert event["data"] == {"by": ada, "tool": "agent_update"}
    told: list[str] = []
    seen = hub.call("agent_get", {"id": bob}, OPERATOR, origin=BOBS, told=told)["notices"]
    assert len(seen) == 1 and ada in seen[0] and "agent_update" in seen[0]
    assert not ask(hub, "event_list", subject=ada, topic="agent.spoken_for")["events"]


def test_whoever_takes_a_bridges_name_in_another_process_is_not_that_bridge(hub: Hub) -> None:
    bridge, thief = (Origin(bridge="br_1", process=f"{pid} 1") for pid in (1, 2))
    ada, work = register_agent(hub, "ada", bridge), job(hub)
    ask(hub, "task_claim", origin=bridge, task_id=work.task)
    with pytest.raises(InvalidInput, match="agent_id"):
        ask(hub, "message_count_unread", origin=thief)
    ask(hub, "agent_update", origin=thief, id=ada, metadata={"note": "not by me"})
    (event,) = ask(hub, "event_list", subject=ada, topic="agent.spoken_for")["events"]
    assert event["data"]["tool"] == "agent_update"
    assert ask(hub, "message_count_unread", origin=bridge)["count"] == 0, "and the bridge speaks for her as before"


def test_whoever_names_an_agent_that_nobody_else_is_does_nothing_remarkable(hub: Hub) -> None:
    """As a lead does for workers that have no connection of their own."""
    lead, hand = register_agent(hub, "lead", ADAS), register_agent(hub, "hand")
    ask(hub, "agent_update", origin=ADAS, id=hand, metadata={"room": 4})
    assert not ask(hub, "event_list", subject=hand, topic="agent.spoken_for")["events"]
    assert agent_of(hub, lead, "status") == "online"


def test_a_bound_agent_reads_its_own_mail_and_marks_no_others(hub: Hub) -> None:
    ada, bob = register_agent(hub, "ada", ADAS), register_agent(hub, "bob", BOBS)
    sent = {
        to: ask(hub, "message_send", sender_id="operator", recipient_id=to, message_type="query", body="hm?")["id"]
        for to in (ada, bob, "operator")
    }
    for message in sent.values():
        ask(hub, "message_get", origin=ADAS, id=message)
    found = {to: ask(hub, "message_get", id=message, mark_read=False)["status"] for to, message in sent.items()}
    assert found == {ada: "read", bob: "unread", "operator": "unread"}
    assert refusal_by(hub, ADAS, "message_archive", message_ids=[sent[bob]]) == "FORBIDDEN"


def refusal_by(hub: Hub, origin: Origin, tool: str, **given: Any) -> str:
    with pytest.raises(Failure) as refused:
        ask(hub, tool, origin=origin, **given)
    return refused.value.code


def test_registering_at_once_binds_the_bridge_to_all(hub: Hub) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = set(threads.map(lambda _: register_agent(hub, "ada", ADAS), range(4)))
    assert set(hub.bindings.agents(hub.store, "br_ada", "")) == made and len(made) == 4


def test_what_was_read_before_a_change_is_not_remembered(hub: Hub) -> None:
    """A call beside the one that registers has read the rows before that, and is done after it."""
    bindings, changed = Bindings(), list[str]()

    class Late:
        """The hall's answers, each with a change of the rows on its heels."""

        def ask(self, queries: Sequence[QueuedStatement]) -> list[Rows]:
            found = hub.store.ask(queries)
            changed.append(register_agent(hub, f"ada{len(changed)}", ADAS))
            bindings.forget("br_ada")
            return found

    bindings.agents(cast(Store, Late()), "br_ada", "")
    assert list(bindings.agents(hub.store, "br_ada", "")) == changed


def test_who_claims_after_another_let_it_leave_is_bound_still(hub: Hub, make_hub: MakeHub, clock: Clock) -> None:
    work, ada = job(hub), register_agent(hub, "ada", ADAS)
    ask(hub, "message_count_unread", origin=ADAS)
    ask(hub, "agent_unregister", id=ada)
    assert ask(hub, "task_claim", origin=ADAS, task_id=work.task)["success"]
    assert ask(make_hub(clock=clock), "message_count_unread", origin=ADAS)["count"] == 0
