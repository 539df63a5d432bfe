"""An agent whose last bridge has ended is gone at once, and what it held is free after the grace."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from crewhall.app import Hub, Origin
from crewhall.outside.processes import boot_id, name_of
from tests.conftest import Agent, Clock
from tests.families.work.claims import (
    agent_of,
    ask,
    assert_claims_agree,
    events_about,
    job,
    pass_time,
    recoveries,
    register_agent,
    task_of,
)

GRACE, LEASE, TICK = 120, 1800, 10
MakeHub = Callable[..., Hub]


@dataclass
class Process:
    """A process that could be a bridge."""

    running: subprocess.Popen[bytes]
    origin: Origin

    def kill(self) -> None:
        self.running.kill()
        self.running.wait()


@pytest.fixture
def bridge() -> Iterator[Callable[[str], Process]]:
    """Bridges by their names, each with a process of its own."""
    made: list[Process] = []

    def start(name: str) -> Process:
        running = subprocess.Popen(["sleep", "60"])
        made.append(Process(running, Origin(bridge=name, process=name_of(running.pid))))
        return made[-1]

    yield start
    for one in made:
        one.kill()


@pytest.fixture
def awake(hub: Hub, clock: Clock) -> Hub:
    """A hub that has been awake for longer than the grace."""
    pass_time(clock, GRACE + TICK, hub, ticks=2)
    return hub


def hold(hub: Hub, process: Process, name: str = "ada") -> tuple[str, str]:
    """An agent that came by this bridge and holds a task; both ids."""
    work, agent = job(hub), register_agent(hub, name, process.origin)
    ask(hub, "task_claim", origin=process.origin, task_id=work.task)
    ask(hub, "task_update_status", origin=process.origin, id=work.task, status="in_progress")
    return agent, work.task


def test_who_is_killed_is_gone_at_the_next_look_and_its_task_is_free_after_the_grace(
    awake: Hub, clock: Clock, bridge: Callable[[str], Process], database: str
) -> None:
    process = bridge("br_1")
    ada, task = hold(awake, process)
    process.kill()
    awake.chores.run_one("bridges")
    assert agent_of(awake, ada, "status", "connection", "disconnected_since") == ("offline", "disconnected", clock.now)
    assert events_about(awake, ada)[-1] == ("agent.disconnected", "hall", "busy", "offline")
    pass_time(clock, GRACE - 1, awake)
    assert task_of(awake, task, "claimed_by", "status") == (ada, "in_progress")
    pass_time(clock, 2 + TICK, awake)
    assert task_of(awake, task, "claimed_by", "status") == (None, "pending")
    (kept,) = recoveries(awake, task)
    assert "ended while it held this task" in kept["summary"]
    assert_claims_agree(database)


def test_who_comes_back_within_the_grace_goes_on(awake: Hub, clock: Clock, bridge: Callable[[str], Process]) -> None:
    process, again = bridge("br_1"), bridge("br_2")
    ada, task = hold(awake, process)
    process.kill()
    awake.chores.run_one("bridges")
    clock.advance(TICK)
    ask(awake, "checkpoint_list", origin=again.origin, task_id=task)  # reads, and names nobody
    ask(awake, "message_list", origin=again.origin, agent_id=ada)
    pass_time(clock, 3 * GRACE, awake)
    assert task_of(awake, task, "claimed_by", "claim_epoch") == (ada, 1)
    assert agent_of(awake, ada, "status", "connection", "disconnected_since") == ("busy", None, None)


def test_a_call_from_before_the_end_brings_nobody_back(
    awake: Hub, clock: Clock, bridge: Callable[[str], Process]
) -> None:
    process = bridge("br_1")
    ada, _ = hold(awake, process)
    awake.chores.run_one("bridges")
    process.kill()
    awake.chores.run_one("bridges")
    awake.presence.note_call(ada, "br_1", clock.now - 1)  # a hub that had it in hand, and wrote it down too late
    awake.chores.run_one("presence")
    assert agent_of(awake, ada, "connection") == "disconnected"


def test_another_process_under_a_dead_bridges_name_keeps_nobody_here(
    awake: Hub, bridge: Callable[[str], Process]
) -> None:
    process, other = bridge("br_1"), bridge("br_1")
    ada, _ = hold(awake, process)
    process.kill()
    with awake.presence.connection("br_1", other.origin.process):
        awake.chores.run_one("bridges")
    assert agent_of(awake, ada, "connection") == "disconnected"


def test_a_bridge_that_is_between_two_hubs_has_not_ended(
    awake: Hub, clock: Clock, bridge: Callable[[str], Process], make_hub: MakeHub
) -> None:
    process = bridge("br_1")
    ada, task = hold(awake, process)
    pass_time(clock, LEASE / 2, awake, ticks=2)
    assert agent_of(awake, ada, "connection") is None, "its process lives, whoever it is connected to"
    assert task_of(awake, task, "claimed_by") == ada
    other = make_hub(clock=clock)
    process.kill()
    other.chores.run_one("bridges")
    assert agent_of(other, ada, "connection") == "disconnected", "any hub of the machine sees that it is dead"


def test_the_grace_begins_again_when_the_hub_starts(
    awake: Hub, clock: Clock, bridge: Callable[[str], Process], make_hub: MakeHub
) -> None:
    process = bridge("br_1")
    ada, task = hold(awake, process)
    process.kill()
    awake.chores.run_one("bridges")
    clock.advance(10 * GRACE)  # no hub ran: whoever came back could not say so
    other = make_hub(clock=clock)
    other.chores.run_due()
    pass_time(clock, GRACE - TICK, other)
    assert task_of(other, task, "claimed_by") == ada
    pass_time(clock, 3 * TICK, other)
    assert task_of(other, task, "claimed_by") is None


def test_one_of_two_bridges_is_enough(awake: Hub, clock: Clock, bridge: Callable[[str], Process]) -> None:
    first, second, ada = bridge("br_1"), bridge("br_2"), Agent(awake, "ada")
    for process in (first, second):
        bridged = process.origin.bridge or ""
        with awake.presence.connection(bridged, process.origin.process):
            awake.call("agent_register", {"name": "ada", "runtime": "codex"}, ada.actor, origin=process.origin)
            pass_time(clock, TICK, awake)
    first.kill()
    awake.chores.run_one("bridges")
    assert agent_of(awake, ada.id, "status", "connection") == ("online", None)
    second.kill()
    awake.chores.run_one("bridges")
    assert agent_of(awake, ada.id, "status", "connection") == ("offline", "disconnected")


def test_a_bridge_of_another_machine_is_nobodys_to_judge(
    awake: Hub, bridge: Callable[[str], Process], make_hub: MakeHub, clock: Clock
) -> None:
    process = bridge("br_1")
    elsewhere = make_hub(clock=clock, node__name="elsewhere")
    ada, _ = hold(elsewhere, process)
    process.kill()
    awake.chores.run_one("bridges")
    assert agent_of(awake, ada, "connection") is None
    elsewhere.chores.run_one("bridges")
    assert agent_of(awake, ada, "connection") == "disconnected"


def test_a_node_that_was_started_again_has_none_of_its_old_processes(
    awake: Hub, bridge: Callable[[str], Process], clock: Clock
) -> None:
    """A process with the same pid and start may live after a reboot. One in a container cannot be seen from here."""
    agents = {}
    for name, boot in (("before", "another-boot"), ("contained", boot_id())):
        agents[name], _ = hold(awake, bridge(f"br_{name}"), name)
        with awake.own_work() as tx:
            tx.run("bridge_forget", bridge=f"br_{name}")
            where = {"machine": f"{awake.settings.node}/{boot}/pid:[1]", "process": "1 1", "now": clock.now}
            tx.run("bridge_agent_put", bridge=f"br_{name}", agent_id=agents[name], **where)
    awake.chores.run_one("bridges")
    found = {name: agent_of(awake, agent, "connection") for name, agent in agents.items()}
    is_alone = awake.store.is_local  # otherwise it may be a second machine that has the same name
    assert found == {"before": "disconnected" if is_alone else None, "contained": None}


def test_a_silent_agent_is_never_missed_later_than_one_that_ended(
    make_hub: MakeHub, clock: Clock, bridge: Callable[[str], Process]
) -> None:
    hub = make_hub(clock=clock, agent__lease=30, agent__grace=3600)
    pass_time(clock, 100, hub)
    process = bridge("br_1")
    _, task = hold(hub, process)
    process.kill()
    hub.chores.run_one("bridges")
    pass_time(clock, 60, hub)
    assert task_of(hub, task, "claimed_by") is None


def test_a_claim_that_commits_after_its_bridges_end_is_seen_to(
    awake: Hub, bridge: Callable[[str], Process], make_hub: MakeHub, clock: Clock
) -> None:
    """Another hub has ended the bridge already, and nothing else would tell that the agent is gone."""
    process, work, other = bridge("br_1"), job(awake), make_hub(clock=clock)
    ada = register_agent(awake, "ada", process.origin)
    ask(awake, "message_count_unread", origin=process.origin)
    process.kill()
    other.chores.run_one("bridges")
    assert ask(awake, "task_claim", origin=process.origin, task_id=work.task)["success"]
    awake.chores.run_one("bridges")
    assert agent_of(awake, ada, "connection") == "disconnected"
