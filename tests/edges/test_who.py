"""Two real Claude Codes and a real Codex with README's first config: the hall knows who does what, and who is gone."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import eventually
from tests.edges.led import Json, LedClient, Site, site_on
from tests.edges.stdio import end, start_hub, the_hub
from tests.families.work.workflows import plan_workflow, task

GRACE = 3.0  # seconds
BOUND = ("task_claim", "task_update_status", "checkpoint_add")
TASKS = [task("colours"), task("switch"), task("pages"), task("shots")]


@pytest.fixture
def site(database: str, tmp_path: Path) -> Iterator[Site]:
    with site_on(database, tmp_path, f"[agent]\ngrace = {GRACE}\n") as site:
        yield site


@dataclass
class Agent:
    """A client that has joined the hall: its agent's id and name."""

    client: LedClient
    id: str
    name: str

    def call(self, tool: str, /, **arguments: Any) -> Json:
        return self.client.call(tool, **arguments)


@dataclass
class Fleet:
    """Two Claude Codes and a Codex at a plan."""

    site: Site
    tasks: dict[str, str]
    ada: Agent
    bob: Agent
    cora: Agent

    def claim(self, agent: Agent, name: str) -> Json:
        found = agent.call("task_claim", task_id=self.tasks[name])
        assert found.get("success"), found
        return found

    def events(self, **which: Any) -> list[Json]:
        found: list[Json] = self.site.ask("event_list", after=0, limit=500, **which)["events"]
        return found


@pytest.fixture
def fleet(site: Site) -> Iterator[Fleet]:
    _, tasks = plan_workflow(site.ask, *TASKS, max_parallel_tasks=4)
    with ExitStack() as stack:
        clients = [stack.enter_context(start()) for start in (site.claude, site.claude, site.codex)]
        agents = [join(client, name) for client, name in zip(clients, ("ada", "bob", "cora"), strict=True)]
        yield Fleet(site, tasks, *agents)


def join(client: LedClient, name: str) -> Agent:
    made = client.call("agent_register", name=name, runtime="custom")
    return Agent(client, made["id"], made["name"])


@pytest.mark.timeout(90)
def test_events_and_calls_name_each_client(fleet: Fleet) -> None:
    """Each says once who it is; from then on the hall knows it without an agent_id."""
    for agent, name in ((fleet.ada, "colours"), (fleet.bob, "switch"), (fleet.cora, "pages")):
        fleet.claim(agent, name)
        agent.call("task_update_status", id=fleet.tasks[name], status="in_progress")
        agent.call("checkpoint_add", task_id=fleet.tasks[name], type="progress", summary=f"half of {name}")
        assert {event["actor"] for event in fleet.events(subject=fleet.tasks[name])[1:]} == {agent.id}
    done = fleet.cora.call("task_update_status", id=fleet.tasks["pages"], status="completed", outcome="all pages")
    assert "code" not in done, done
    told = {call["actor"] for call in fleet.site.ask("call_list", limit=500)["calls"] if call["tool"] in BOUND}
    assert told == {fleet.ada.id, fleet.bob.id, fleet.cora.id}
    assert fleet.site.ask("task_get", id=fleet.tasks["pages"])["status"] == "completed"


@pytest.mark.timeout(90)
def test_a_late_write_is_stale_once_the_task_is_anothers(fleet: Fleet) -> None:
    """Neither a token nor an epoch is needed for that, and the hub that knew may have been killed since."""
    late = fleet.tasks["colours"]
    fleet.claim(fleet.ada, "colours")
    fleet.site.ask("task_release", task_id=late, agent_id=fleet.ada.id)
    fleet.claim(fleet.bob, "colours")
    assert fleet.ada.call("task_update_status", id=late, status="in_progress")["code"] == "STALE_CLAIM"
    assert "code" not in fleet.bob.call("task_update_status", id=late, status="in_progress")
    fleet.site.kill_hub()
    note = {"task_id": late, "type": "progress", "summary": "whose is it?"}
    assert fleet.ada.call("checkpoint_add", **note)["code"] == "STALE_CLAIM"
    assert "code" not in fleet.bob.call("checkpoint_add", **note)
    (told,) = fleet.site.ask("checkpoint_list", task_id=late)["checkpoints"]
    assert told["agent_id"] == fleet.bob.id == fleet.events(subject=late)[-1]["actor"]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("hub_dies", ["never", "before", "after"])
def test_a_killed_client_is_seen_and_what_it_held_goes_to_another(fleet: Fleet, hub_dies: str) -> None:
    """kill -9 of a Claude Code and a Codex, whether or not the hub is killed just before or just after them."""
    gone = {"colours": fleet.ada, "pages": fleet.cora}
    for name, agent in gone.items():
        fleet.claim(agent, name)
        agent.call("checkpoint_add", task_id=fleet.tasks[name], type="progress", summary=f"half of {name}")
    if hub_dies == "before":
        end(the_hub(fleet.site.home), signal.SIGKILL)
    for agent in gone.values():
        agent.client.kill()
    if hub_dies == "before":
        start_hub(fleet.site.home)
    since = [eventually(partial(disconnected, fleet, agent), 5) for agent in gone.values()]
    if hub_dies == "after":
        fleet.site.kill_hub()
        assert [disconnected(fleet, agent) for agent in gone.values()] == since
    for name, agent in gone.items():
        eventually(partial(is_free, fleet, name), 20)
        kept = fleet.site.ask("checkpoint_list", task_id=fleet.tasks[name])["checkpoints"]
        assert [(one["type"], one["agent_id"]) for one in kept] == [("progress", agent.id), ("recovery", None)]
        fleet.claim(fleet.bob, name)
    assert not disconnected(fleet, fleet.bob)


def disconnected(fleet: Fleet, agent: Agent) -> int:
    """Since when it is gone; 0 while the hall does not know."""
    found = fleet.site.ask("agent_get", id=agent.id)
    if found["connection"] != "disconnected":
        return 0
    assert found["status"] == "offline"
    since: int = found["disconnected_since"]
    assert found["lease_expires_at"] == since + GRACE * 1000
    return since


def is_free(fleet: Fleet, name: str) -> bool:
    found = fleet.site.ask("task_get", id=fleet.tasks[name])
    return (found["status"], found["claimed_by"]) == ("pending", None)


@pytest.mark.timeout(90)
def test_a_client_that_speaks_for_anothers_agent_is_told_of(fleet: Fleet) -> None:
    """It may, since it is the person's as the other is; but the log says who it was, and the other is told."""
    fleet.claim(fleet.bob, "switch")
    taken = fleet.bob.call("task_claim", task_id=fleet.tasks["colours"], agent_id=fleet.ada.id)
    assert taken.get("success"), taken
    (event,) = (event for event in fleet.events(subject=fleet.ada.id) if event["what"] == "agent.spoken_for")
    assert event["data"] == {"by": fleet.bob.id, "tool": "task_claim"}
    (notice,) = fleet.ada.call("agent_list")["notices"]
    assert fleet.bob.id in notice and "task_claim" in notice
    assert "notices" not in fleet.ada.call("agent_list")
