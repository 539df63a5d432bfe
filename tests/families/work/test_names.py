"""Names of agents: no two who are here have the same one, whoever comes, goes and comes back."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Conflict
from crewhall.families.work.agent.rules_name import must_yield, names_like
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Clock
from tests.families.work.workflows import Ask, let_lapse, plan_workflow, register, sql, task

MakeHub = Callable[..., Hub]
HERE, THERE = Origin(bridge="br_1"), Origin(bridge="br_2")
LETTER = {"recipient_id": "operator", "message_type": "query", "body": "which?"}


def join(hub: Hub, name: str = "ada", origin: Origin = HERE) -> dict[str, Any]:
    """Register through a bridge, as an MCP client does; the answer with its notices."""
    return hub.call("agent_register", {"name": name, "runtime": "codex"}, OPERATOR, origin=origin, told=[])


def name_of(ask: Ask, agent: str) -> str:
    found: str = ask("agent_get", id=agent)["name"]
    return found


def renamings(ask: Ask) -> list[tuple[str, dict[str, str]]]:
    found = ask("event_list", limit=500)["events"]
    return [(event["subject"], event["data"]) for event in found if event["what"] == "agent.renamed"]


def leave(ask: Ask, *agents: str) -> None:
    for agent in agents:
        ask("agent_unregister", id=agent)


def test_a_taken_name_gets_a_number_and_its_client_is_told(hub: Hub, operator: Ask) -> None:
    first, second, third = (join(hub, "ada", Origin(bridge=f"br_{number}")) for number in range(3))
    assert [one["name"] for one in (first, second, third)] == ["ada", "ada-2", "ada-3"]
    assert "notices" not in first
    (told,) = second["notices"]
    assert "'ada-2'" in told and "'ada'" in told and second["id"] in told
    assert register(operator, "bob") and name_of(operator, third["id"]) == "ada-3"


def test_a_client_of_another_edge_sees_the_name_alone(operator: Ask) -> None:
    register(operator)
    made = operator("agent_register", name="ada", runtime="codex")
    assert made["name"] == "ada-2" and set(made) == {"id", "name", "status", "role"}


def test_who_left_gives_its_name_free(operator: Ask) -> None:
    leave(operator, register(operator))
    assert name_of(operator, register(operator)) == "ada"


def test_names_are_compared_as_they_are_written(operator: Ask) -> None:
    assert [name_of(operator, register(operator, name)) for name in ("ada", "Ada", "ada ")] == ["ada", "Ada", "ada "]


def test_many_of_one_name_are_numbered_without_end(operator: Ask) -> None:
    names = [name_of(operator, register(operator)) for _ in range(45)]
    assert names == ["ada", *(f"ada-{number}" for number in range(2, 46))]


def test_a_name_that_is_as_long_as_it_may_be_is_cut(operator: Ask) -> None:
    register(operator, "a" * 200)
    assert name_of(operator, register(operator, "a" * 200)) == "a" * 198 + "-2"


def test_no_number_makes_a_name_of_the_halls_own() -> None:
    assert "ha-11" not in names_like("ha", 0, 20)  # which reads like hall
    assert names_like("ha", 0, 4) == ["ha", "ha-2", "ha-3", "ha-4"]
    assert names_like("ha", 0, 40) == [*names_like("ha", 0, 8), *names_like("ha", 8, 32)]
    assert names_like("hall", 0, 3) == ["hall", "hall-2", "hall-3"]  # of an older hall


def test_a_token_reserves_its_agents_name_until_it_is_revoked(hub: Hub, operator: Ask) -> None:
    ada = Agent(hub)
    assert name_of(operator, register(operator)) == "ada-2"
    operator("agent_token_revoke", agent_id=ada.id)
    assert name_of(operator, register(operator)) == "ada"


def test_a_client_that_is_started_again_has_its_name_again(hub: Hub, operator: Ask, clock: Clock) -> None:
    """And the old one, if it comes back within its grace after all, is not here under the same name."""
    ada = register(operator)
    with hub.own_work() as tx:
        tx.run("agent_disconnected", id=ada, until=clock.now + 120_000, now=clock.now)
    again = register(operator)
    assert name_of(operator, again) == "ada"
    operator("agent_heartbeat", agent_id=ada)
    assert [name_of(operator, one) for one in (again, ada)] == ["ada", "ada-2"]


def test_a_token_by_name_is_refused_while_an_agent_in_the_hall_has_it(operator: Ask) -> None:
    ada = register(operator)
    leave(operator, ada)
    with pytest.raises(Conflict) as refused:
        operator("agent_token_create", name="ada")
    assert ada in refused.value.hint
    operator("agent_archive", id=ada)
    assert operator("agent_token_create", name="ada")["agent_id"] != ada


# The same client again


def test_a_client_that_registers_again_is_told_how_to_go_on_as_who_it_was(hub: Hub, operator: Ask) -> None:
    """Its memory may have been cleared, or it leads several; two that took one task for theirs would be worse."""
    first, again = join(hub), join(hub)
    assert again["id"] != first["id"] and again["name"] == "ada-2"
    (told,) = again["notices"]
    assert f'agent_unregister(id="{again["id"]}")' in told and f"go on as {first['id']}" in told
    hub.call("agent_unregister", {"id": again["id"]}, OPERATOR, origin=HERE)
    sent = hub.call("message_send", LETTER, OPERATOR, origin=HERE)
    assert operator("message_get", id=sent["id"])["sender_id"] == first["id"]


def test_who_joins_by_another_connection_is_told_of_the_name_alone(hub: Hub) -> None:
    join(hub)
    (told,) = join(hub, "ada", THERE)["notices"]
    assert "agent_unregister" not in told


# Coming back


def away(operator: Ask, hub: Hub, clock: Clock) -> tuple[str, str]:
    """An agent that went quiet, and another that has its name by now."""
    gone = register(operator)
    let_lapse(hub, clock)
    other = register(operator)
    assert name_of(operator, other) == "ada"
    return gone, other


COMING_BACK: dict[str, Callable[[Ask, str, str], Any]] = {
    "heartbeat": lambda ask, agent, task: ask("agent_heartbeat", agent_id=agent),
    "update": lambda ask, agent, task: ask("agent_update", id=agent, status="online"),
    "claim": lambda ask, agent, task: ask("task_claim", task_id=task, agent_id=agent),
    "reserve": lambda ask, agent, task: ask("file_reserve", agent_id=agent, paths=["a"], repository_path="/r"),
}


@pytest.mark.parametrize("way", COMING_BACK)
def test_who_comes_back_after_its_name_was_given_away_gets_another(
    hub: Hub, operator: Ask, clock: Clock, way: str
) -> None:
    gone, other = away(operator, hub, clock)
    _, tasks = plan_workflow(operator, task("one"))
    COMING_BACK[way](operator, gone, tasks["one"])
    assert (name_of(operator, gone), name_of(operator, other)) == ("ada-2", "ada")
    (renaming,) = renamings(operator)
    assert renaming == (gone, {"old": "ada", "new": "ada-2"})
    (notice,) = sql(hub, "SELECT agent_id, kind, text FROM notice")
    assert (notice["agent_id"], notice["kind"]) == (gone, "renamed") and "'ada-2'" in notice["text"]
    COMING_BACK[way](operator, gone, tasks["one"])
    assert len(renamings(operator)) == 1


def test_so_does_one_whose_call_alone_brings_it_back(hub: Hub, operator: Ask, clock: Clock) -> None:
    gone, other = away(operator, hub, clock)
    operator("message_list", agent_id=gone)
    hub.chores.run_one("presence")
    assert operator("agent_get", id=gone)["status"] == "online"
    assert (name_of(operator, gone), name_of(operator, other)) == ("ada-2", "ada")


def test_so_does_one_whose_token_was_revoked_and_made_again(hub: Hub, operator: Ask) -> None:
    ada = Agent(hub)
    operator("agent_token_revoke", agent_id=ada.id)
    other = Agent(hub, "bob")
    assert name_of(operator, register(operator)) == "ada"
    assert name_of(operator, ada.id) == "ada"  # it is offline
    operator("agent_heartbeat", agent_id=ada.id)
    assert name_of(operator, ada.id) == "ada-2" and name_of(operator, other.id) == "bob"


def test_who_comes_back_to_a_free_name_keeps_it(hub: Hub, operator: Ask, clock: Clock) -> None:
    gone, other = away(operator, hub, clock)
    leave(operator, other)
    operator("agent_heartbeat", agent_id=gone)
    assert name_of(operator, gone) == "ada" and renamings(operator) == []


def test_registering_by_token_never_changes_the_name(hub: Hub, operator: Ask, clock: Clock) -> None:
    ada = Agent(hub)
    ada.call("agent_register", name="ada", runtime="codex")
    let_lapse(hub, clock)
    assert name_of(operator, register(operator)) == "ada-2"
    assert ada.call("agent_register", name="x", runtime="codex")["name"] == "ada"


# Two at once


def at_once(*steps: Callable[[], Any]) -> list[Any]:
    together = threading.Barrier(len(steps))

    def run(step: Callable[[], Any]) -> Any:
        together.wait(20)
        return step()

    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(run, steps, timeout=40))


def test_many_who_register_at_once_get_different_names(make_hub: MakeHub, clock: Clock) -> None:
    hubs = [make_hub(clock=clock) for _ in range(2)]
    steps = [partial(join, hubs[number % 2], "ada", Origin(bridge=f"br_{number}")) for number in range(8)]
    names = [answer["name"] for answer in at_once(*steps)]
    assert sorted(names) == ["ada", *(f"ada-{number}" for number in range(2, 9))]


def test_whoever_comes_back_while_another_registers_is_renamed_by_the_chore_at_the_latest(
    make_hub: MakeHub, clock: Clock
) -> None:
    hubs = [make_hub(clock=clock) for _ in range(2)]

    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hubs[0].call(tool, arguments, OPERATOR)

    for number in range(6):
        name = f"agent {number}"
        gone = register(ask, name)
        leave(ask, gone)
        back = partial(ask, "agent_heartbeat", agent_id=gone)
        _, other = at_once(back, partial(join, hubs[1], name, Origin(bridge=name)))
        hubs[0].chores.run_one("names")
        assert sorted([name_of(ask, gone), name_of(ask, other["id"])]) == [name, f"{name}-2"]


def test_the_chore_renames_the_newer_of_two_and_never_the_one_with_a_token(
    hub: Hub, operator: Ask, clock: Clock
) -> None:
    old = register(operator)
    clock.advance(1)
    new, reserved = register(operator, "bob"), Agent(hub, "eve")
    with hub.own_work() as tx:
        tx.run("agent_rename", id=new, name="ada", now=clock.now)
        tx.run("agent_rename", id=reserved.id, name="ada", now=clock.now)
    hub.chores.run_one("names")
    assert hub.chores.records["names"].error is None
    assert (name_of(operator, old), name_of(operator, new), name_of(operator, reserved.id)) == ("ada-3", "ada-2", "ada")
    seen = len(renamings(operator))
    hub.chores.run_one("names")
    assert len(renamings(operator)) == seen == 2


def test_a_name_goes_to_the_token_and_of_two_with_tokens_to_the_older() -> None:
    def row(name: str, at: int, is_reserved: int) -> Any:
        return {"id": name, "name": "ada", "created_at": at, "is_reserved": is_reserved}

    plain, old, new = row("plain", 1, 0), row("old", 2, 1), row("new", 3, 1)
    assert not must_yield("plain", [plain]) and not must_yield("gone", [])
    assert must_yield("plain", [plain, new]) and must_yield("gone", [plain])
    assert must_yield("new", [plain, old, new]) and not must_yield("old", [plain, old, new])
