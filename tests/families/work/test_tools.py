"""Agents, repositories and events through the door, on both databases."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Conflict, Failure, Forbidden, InvalidInput, LimitExceeded, NotFound, Unauthorized
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Clock, eventually

Ask = Callable[..., dict[str, Any]]


def register(operator: Ask, name: str = "ada", **more: Any) -> str:
    found: str = operator("agent_register", name=name, runtime="claude_code", **more)["id"]
    return found


def plan_task(operator: Ask) -> str:
    """A task that is there, to be at."""
    workflow = operator("workflow_create", name="w", source_type="prompt", source_content="do it")["id"]
    tasks = [{"name": "a", "description": "do a", "sequence": 1}]
    operator("workflow_set_plan", id=workflow, plan={"summary": "s", "approach": "a", "tasks": tasks})
    found: str = operator("task_list", workflow_id=workflow)["tasks"][0]["id"]
    return found


def events(operator: Ask, **more: Any) -> list[tuple[str, str | None, str | None]]:
    found = operator("event_list", **more)["events"]
    return [(event["what"], event["before_status"], event["after_status"]) for event in found]


def test_an_agent_registers_with_the_seeds_fields(operator: Ask, clock: Clock) -> None:
    made = operator("agent_register", name="ada", runtime="codex", capabilities=["python"], metadata={"a": [1, "é"]})
    assert made["name"] == "ada" and made["status"] == "online"
    agent = operator("agent_get", id=made["id"])
    assert agent == {
        "id": made["id"],
        "name": "ada",
        "runtime": "codex",
        "role": "worker",
        "type": None,
        "status": "online",
        "capabilities": ["python"],
        "workspace_path": None,
        "current_task_id": None,
        "metadata": {"a": [1, "é"]},
        "last_heartbeat_at": None,
        "lease_expires_at": clock.now + 1_800_000,
        "connection": None,
        "disconnected_since": None,
        "archived_at": None,
        "created_at": clock.now,
        "updated_at": clock.now,
        "left_out": None,
    }


def test_a_heartbeat_says_when_the_next_is_due_and_keeps_the_time(operator: Ask, clock: Clock) -> None:
    agent = register(operator)
    clock.advance(7)
    assert operator("agent_heartbeat", agent_id=agent) == {"success": True, "next_heartbeat_ms": 30_000}
    assert operator("agent_get", id=agent)["last_heartbeat_at"] == clock.now


def test_a_heartbeat_writes_an_event_only_when_the_status_changes(operator: Ask) -> None:
    agent, task = register(operator), plan_task(operator)
    operator("agent_heartbeat", agent_id=agent)
    operator("agent_heartbeat", agent_id=agent, status="busy", current_task_id=task)
    operator("agent_heartbeat", agent_id=agent)
    assert operator("agent_get", id=agent)["status"] == "busy"
    assert operator("agent_get", id=agent)["current_task_id"] == task
    assert events(operator, subject=agent, after=1) == [("agent.updated", "online", "busy")]


def test_an_offline_agent_comes_back_by_a_heartbeat(operator: Ask) -> None:
    agent = register(operator)
    assert operator("agent_unregister", id=agent) == {"success": True}
    assert operator("agent_get", id=agent)["status"] == "offline"
    operator("agent_heartbeat", agent_id=agent)
    assert operator("agent_get", id=agent)["status"] == "online"


def test_unregistering_twice_is_one_event(operator: Ask) -> None:
    agent = register(operator)
    operator("agent_unregister", id=agent)
    operator("agent_unregister", id=agent)
    assert [what for what, _, _ in events(operator)] == ["agent.registered", "agent.unregistered"]


def test_an_update_keeps_what_is_left_out_and_null_clears_the_task(operator: Ask) -> None:
    agent, task = register(operator, workspace_path="/w", metadata={"k": 1}), plan_task(operator)
    operator("agent_update", id=agent, current_task_id=task, status="busy")
    operator("agent_update", id=agent, metadata={"k": 2})
    kept = operator("agent_get", id=agent)
    assert (kept["current_task_id"], kept["status"], kept["workspace_path"]) == (task, "busy", "/w")
    assert kept["metadata"] == {"k": 2}
    operator("agent_update", id=agent, current_task_id=None)
    assert operator("agent_get", id=agent)["current_task_id"] is None


@pytest.mark.parametrize(("tool", "who"), [("agent_heartbeat", "agent_id"), ("agent_update", "id")])
def test_an_agent_cannot_be_at_a_task_that_is_not_there(operator: Ask, tool: str, who: str) -> None:
    agent = register(operator)
    before = operator("agent_get", id=agent)
    with pytest.raises(NotFound, match="there is no task 'tk_9'"):
        operator(tool, **{who: agent}, current_task_id="tk_9", status="busy")
    assert operator("agent_get", id=agent) == before


def test_agents_are_listed_by_status_role_and_runtime(operator: Ask, clock: Clock) -> None:
    names = {}
    for number, (role, runtime) in enumerate([("worker", "codex"), ("coordinator", "codex"), ("worker", "gemini")]):
        clock.advance(1)
        names[number] = operator("agent_register", name=f"a{number}", runtime=runtime, role=role)["id"]
    operator("agent_unregister", id=names[2])

    def agent_names(**more: Any) -> list[str]:
        return [agent["name"] for agent in operator("agent_list", **more)["agents"]]

    assert agent_names() == ["a0", "a1", "a2"]
    assert agent_names(status=["offline"]) == ["a2"]
    assert agent_names(status=["online", "busy"]) == ["a0", "a1"]
    assert agent_names(role="worker") == ["a0", "a2"]
    assert agent_names(runtime="codex", role="coordinator") == ["a1"]
    assert agent_names(status=[]) == ["a0", "a1", "a2"]


def test_a_list_is_paged_with_a_total(operator: Ask, clock: Clock) -> None:
    for number in range(5):
        clock.advance(1)
        register(operator, f"a{number}")
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = operator("agent_list", limit=2, offset=offset)
        assert page["total"] == 5
        seen += [agent["name"] for agent in page["agents"]]
        offset = page["next_offset"]
    assert seen == ["a0", "a1", "a2", "a3", "a4"]


def test_a_list_never_passes_its_bytes_and_still_reaches_the_end(operator: Ask, clock: Clock) -> None:
    for number in range(8):
        clock.advance(1)
        register(operator, f"a{number}", metadata={"text": "x" * 9000})
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = operator("agent_list", offset=offset)
        assert len(json.dumps(page)) < 22_000
        seen += [agent["name"] for agent in page["agents"]]
        offset = page["next_offset"]
    assert seen == [f"a{number}" for number in range(8)]


def test_the_hall_refuses_agents_past_its_limit(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(agent__max=2)
    first = hub.call("agent_register", {"name": "a", "runtime": "codex"}, OPERATOR)["id"]
    hub.call("agent_register", {"name": "b", "runtime": "codex"}, OPERATOR)
    with pytest.raises(LimitExceeded, match=r"agent\.max is 2"):
        hub.call("agent_register", {"name": "c", "runtime": "codex"}, OPERATOR)
    hub.call("agent_unregister", {"id": first}, OPERATOR)
    hub.call("agent_register", {"name": "c", "runtime": "codex"}, OPERATOR)


def test_large_metadata_is_refused_with_its_size(operator: Ask) -> None:
    with pytest.raises(InvalidInput, match="16000 are allowed"):
        register(operator, metadata={"text": "x" * 16_000})


@pytest.mark.parametrize("tool", ["agent_get", "agent_update", "agent_unregister"])
def test_an_unknown_agent_is_not_found(operator: Ask, tool: str) -> None:
    with pytest.raises(NotFound, match="there is no agent 'ag_nobody'"):
        operator(tool, id="ag_nobody")


def test_a_token_makes_its_holder_that_agent_and_no_other(hub: Hub, operator: Ask) -> None:
    ada, bob = Agent(hub, "ada"), Agent(hub, "bob")
    assert ada.call("agent_heartbeat")["success"]
    assert ada.call("agent_heartbeat", agent_id=ada.id)["success"]
    for tool, argument in (("agent_heartbeat", "agent_id"), ("agent_update", "id"), ("agent_unregister", "id")):
        with pytest.raises(Forbidden, match=f"your token is that of {ada.id}"):
            ada.call(tool, **{argument: bob.id})
    assert ada.call("agent_get", id=bob.id)["name"] == "bob"
    assert operator("agent_get", id=bob.id)["status"] == "offline"


def test_registering_with_a_token_updates_that_agent_and_never_its_name_or_role(hub: Hub, operator: Ask) -> None:
    ada = Agent(hub, "ada")
    for name in ("Boss", "operator", "ag_000000000000"):
        made = ada.call("agent_register", name=name, runtime="gemini", role="coordinator")
        assert made == {"id": ada.id, "name": "ada", "status": "online", "role": "worker"}
    (agent,) = operator("agent_list")["agents"]
    assert (agent["name"], agent["role"], agent["runtime"]) == ("ada", "worker", "gemini")


def test_no_agent_is_made_with_a_name_of_the_halls_own(operator: Ask) -> None:
    for name in ("operator", "Hall", "\u043eperator", "ag_000000000000"):
        for tool, more in (("agent_register", {"runtime": "codex"}), ("agent_token_create", {})):
            with pytest.raises(InvalidInput, match="reads like") as refused:
                operator(tool, name=name, **more)
            assert "Choose another name" in refused.value.hint
    assert operator("agent_list")["total"] == 0


def test_an_agent_cannot_make_or_revoke_tokens(hub: Hub) -> None:
    ada = Agent(hub)
    with pytest.raises(Forbidden, match="agent_token_create is for operator"):
        ada.call("agent_token_create", name="eve")
    with pytest.raises(Forbidden):
        ada.call("agent_token_revoke", agent_id=ada.id)


def test_a_revoked_token_is_worthless_at_once(hub: Hub, operator: Ask) -> None:
    ada = Agent(hub)
    assert operator("agent_token_revoke", agent_id=ada.id) == {"agent_id": ada.id, "revoked": 1}
    with pytest.raises(Unauthorized, match="wrong, expired or revoked"):
        ada.call("agent_list")


def test_a_token_needs_an_agent_or_a_name_not_both(operator: Ask) -> None:
    for arguments in ({}, {"agent_id": "ag_1", "name": "x"}):
        with pytest.raises(InvalidInput, match="either agent_id or name"):
            operator("agent_token_create", **arguments)


def test_no_token_is_in_the_database_or_the_events(hub: Hub, operator: Ask) -> None:
    ada = Agent(hub)
    ada.call("agent_heartbeat")
    hub.calls.close()
    hub.store.texts |= {"everything": "SELECT * FROM token", "every call": "SELECT * FROM call_log"}
    with hub.store.read() as tx:
        kept = json.dumps([tx.all("everything"), tx.all("every call")])
    assert ada.token not in kept + json.dumps(operator("event_list"))
    assert len(ada.token) > 40


def test_a_repository_has_one_id_however_its_path_is_spelled(operator: Ask) -> None:
    first = operator("repository_register", path="/srv/app/")
    assert operator("repository_register", path="/srv/x/../app") == first
    assert operator("repository_get", path="/srv//app")["name"] == "app"
    operator("repository_register", path="/srv/app", name="The app")
    assert operator("repository_get", path="/srv/app")["name"] == "The app"
    operator("repository_register", path="/srv/app")
    assert operator("repository_get", path="/srv/app")["name"] == "The app"
    assert [what for what, _, _ in events(operator)] == ["repository.registered", "repository.renamed"]


def test_a_repository_that_is_not_known_is_null(operator: Ask) -> None:
    assert operator("repository_get", path="/nowhere") == {"result": None}


def test_a_relative_repository_path_is_refused(operator: Ask) -> None:
    with pytest.raises(InvalidInput, match="not absolute"):
        operator("repository_register", path="srv/app")


def test_repositories_are_listed_with_limit_and_offset(operator: Ask, clock: Clock) -> None:
    for name in "abc":
        clock.advance(1)
        operator("repository_register", path=f"/{name}")
    page = operator("repository_list", limit=2, offset=1)
    assert [one["path"] for one in page["repositories"]] == ["/b", "/c"]
    assert (page["total"], page["next_offset"]) == (3, None)


def test_events_are_read_from_a_cursor_and_by_topic(hub: Hub, operator: Ask) -> None:
    ada = Agent(hub)
    ada.call("agent_heartbeat")
    operator("repository_register", path="/r")
    first = operator("event_list", limit=1)
    assert first["events"][0]["what"] == "agent.token_made" and first["newest"] == 3
    rest = operator("event_list", after=first["cursor"])
    assert [event["what"] for event in rest["events"]] == ["agent.updated", "repository.registered"]
    assert rest["events"][0]["actor"] == ada.id and rest["events"][0]["tool"] == "agent_heartbeat"
    assert operator("event_list", after=rest["cursor"]) == {
        "events": [],
        "total": 0,
        "cursor": rest["cursor"],
        "newest": 3,
    }
    assert [event["seq"] for event in operator("event_list", topic="agent")["events"]] == [1, 2]
    assert [event["seq"] for event in operator("event_list", topic="agent.updated")["events"]] == [2]
    assert operator("event_list", topic="age")["events"] == []
    assert [event["seq"] for event in operator("event_list", actor="operator")["events"]] == [1, 3]


def test_a_refused_call_changes_nothing_and_writes_no_event(operator: Ask) -> None:
    agent = register(operator)
    before = operator("agent_get", id=agent)
    with pytest.raises(Failure):
        operator("agent_update", id=agent, status="asleep")
    assert operator("agent_get", id=agent) == before
    assert operator("event_list")["newest"] == 1


def test_calls_are_listed_newest_first_by_tool_actor_and_outcome(hub: Hub, operator: Ask, clock: Clock) -> None:
    ada = Agent(hub)
    for _ in range(2):
        clock.advance(1)
        ada.call("agent_heartbeat")
    clock.advance(1)
    with pytest.raises(NotFound):
        operator("agent_update", id="ag_nobody")

    def logged_calls(**more: Any) -> list[tuple[str, str, bool, str | None]]:
        listed = operator("call_list", **({"limit": 500} | more))["calls"]
        return [
            (one["tool"], one["actor"], one["success"], one["error"]) for one in listed if one["tool"] != "call_list"
        ]

    failed = ("agent_update", "operator", False, "NOT_FOUND")
    hub.calls.close()  # it writes now what it would write in half a second
    assert logged_calls(success=False) == [failed]
    beat = ("agent_heartbeat", ada.id, True, None)
    assert logged_calls() == [failed, beat, beat, ("agent_token_create", "operator", True, None)]
    assert logged_calls(tool="agent_heartbeat") == logged_calls(actor=ada.id) == [beat, beat]
    assert logged_calls(success=True, limit=1, actor=ada.id) == [beat]


def test_a_name_that_is_taken_gets_no_second_agent_by_a_token(operator: Ask) -> None:
    agent = register(operator, "ada")
    with pytest.raises(Conflict, match=agent) as refused:
        operator("agent_token_create", name="ada")
    assert refused.value.hint.startswith(f"agent_id {agent} makes a token for it")
    assert operator("agent_token_create", agent_id=agent)["agent_id"] == agent
    assert operator("agent_list")["total"] == 1


def test_a_token_for_an_agent_that_is_there_changes_nothing_about_it(operator: Ask) -> None:
    agent = register(operator)
    for more in ({"role": "coordinator"}, {"type": "review"}, {"runtime": "codex"}):
        with pytest.raises(InvalidInput, match="are for a new agent"):
            operator("agent_token_create", agent_id=agent, **more)
    made = operator("agent_token_create", name="eve", role="coordinator", type="planning", runtime="gemini")
    eve = operator("agent_get", id=made["agent_id"])
    assert (eve["role"], eve["type"], eve["runtime"]) == ("coordinator", "planning", "gemini")


def test_calls_are_told_page_by_page(hub: Hub, operator: Ask, clock: Clock) -> None:
    for number in range(23):
        operator("repository_register", path=f"/{number}")
        clock.advance(number % 2)  # some in the same moment
    eventually(lambda: operator("call_list", tool="repository_register")["total"] == 23)
    seen: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while not seen or page["next_cursor"]:
        more = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
        page = operator("call_list", tool="repository_register", limit=5, **more)
        seen += [one["id"] for one in page["calls"]]
    assert len(seen) == len(set(seen)) == 23
    with pytest.raises(InvalidInput, match="is no cursor"):
        operator("call_list", cursor="x:y")
