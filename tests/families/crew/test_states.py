"""What an instance is doing is named right, with evidence, while a real program runs or ends in a real tmux."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.families.crew.observation import Observation, by_state_file
from crewhall.families.crew.run_directory import RunDirectory
from crewhall.identity import Actor
from tests.conftest import eventually
from tests.families.crew.conftest import Site
from tests.families.work.claims import pass_time
from tests.families.work.workflows import plan_workflow, task

pytestmark = pytest.mark.slow

SECONDS = 5.0


def wait_for_state(site: Site, instance_id: str, name: str) -> dict[str, Any]:
    eventually(lambda: site.state(instance_id)["name"] == name, SECONDS)
    return site.state(instance_id)


@pytest.mark.parametrize(
    ("word", "name"),
    [("starting", "starting"), ("working", "working"), ("tool", "in a tool"), ("waiting", "waiting"), ("idle", "idle")],
)
def test_a_programs_own_word_is_its_state(site: Site, word: str, name: str) -> None:
    wrote = json.dumps({"state": word, "detail": "pytest", "at": site.clock.now - 240_000})
    name_of = site.start(f"state {wrote}")
    eventually(lambda: site.state(name_of)["source"] == "state file", SECONDS)
    state = site.state(name_of)
    assert state["name"] == name and state["evidence"] == f"the program wrote '{word}: pytest' 4 min ago"


@pytest.mark.parametrize("at", [-1, True, 10**30, "soon"], ids=str)
def test_a_time_that_is_none_is_left_out(tmp_path: Path, at: Any) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"state": "idle", "at": at}))
    state = by_state_file(RunDirectory(tmp_path))
    assert state == Observation("idle", "the program wrote 'idle'", "state file", None)


@pytest.mark.parametrize("wrote", ["", "no json", "[]", '{"state": "dancing"}', '{"state": ["idle"]}', "[" * 90_000])
def test_a_program_that_says_nothing_is_alive(site: Site, wrote: str) -> None:
    state = wait_for_state(site, site.start(f"state {wrote}"), "alive")
    assert state["source"] == "terminal" and "its terminal last changed" in state["evidence"]


def test_a_terminal_tells_when_it_last_changed(make_site: Callable[..., Site], tmp_path: Path) -> None:
    words = f"while [ ! -e {tmp_path}/speak ]; do sleep 0.05; done; echo hello; exec sleep 600"
    site = make_site(crew__runtimes={"custom": {"command": ["sh", "-c", words]}})
    name = site.start()
    before = wait_for_state(site, name, "alive")["since"]
    eventually(lambda: time.time() * 1000 > before + 1_000)  # tmux counts in seconds
    assert site.state(name)["since"] == before
    (tmp_path / "speak").touch()
    eventually(lambda: site.state(name)["since"] > before)


@pytest.mark.parametrize(
    ("prompt", "evidence"), [("end 0", "exit 0"), ("end 1", "exit 1"), ("kill", "killed by signal 9")]
)
def test_an_end_is_named_by_how_it_came(site: Site, prompt: str, evidence: str) -> None:
    name = site.start(prompt)
    state = wait_for_state(site, name, "ended")
    assert evidence in state["evidence"] and state["source"] == "launcher"
    site.hub.chores.run_one("instances")
    assert site.call("instance_get", id=name)["ended_how"] == evidence


def test_an_end_that_no_hub_saw_is_as_old_as_it_is(site: Site) -> None:
    name = site.start("end 3")
    ended = eventually(lambda: site.place(name).read("ended.json"), SECONDS)
    site.clock.now = ended["at"] + 3_600_000
    site.hub.chores.run_one("instances")
    assert site.state(name)["evidence"] == "gone: exit 3, 60 min ago"
    assert site.call("instance_get", id=name)["ended_at"] == ended["at"]


def kill_server(site: Site) -> None:
    words = ["tmux", "-L", site.tmux.name, "display-message", "-p", "#{pid}"]
    os.kill(int(subprocess.run(words, capture_output=True, check=True, timeout=20).stdout), signal.SIGKILL)


def hold_task(site: Site, instance_id: str) -> tuple[str, str]:
    """A task that the instance's agent has claimed; the ids of task and agent."""
    agent = site.call("instance_get", id=instance_id)["agent_id"]
    _, tasks = plan_workflow(site.call, task("a"))
    holder = Actor("agent", agent, proof="token")
    site.hub.call("task_claim", {"task_id": tasks["a"], "agent_id": agent}, holder)
    return tasks["a"], agent


def test_a_killed_terminal_server_ends_all_and_their_tasks_wait_for_the_grace(site: Site) -> None:
    name = site.start()
    held, agent = hold_task(site, name)
    wait_for_state(site, name, "alive")
    kill_server(site)
    wait_for_state(site, name, "ended")
    site.hub.chores.run_due()
    gone = site.call("agent_get", id=agent)
    assert gone["status"] == "offline" and gone["disconnected_since"] == site.clock.now
    pass_time(site.clock, 119, site.hub)
    assert site.call("task_get", id=held)["claimed_by"] == agent
    pass_time(site.clock, 2, site.hub)
    assert site.call("task_get", id=held)["claimed_by"] is None
    kinds = [one["type"] for one in site.call("checkpoint_list", task_id=held)["checkpoints"]]
    assert "recovery" in kinds


def test_a_restart_within_the_grace_keeps_the_task(site: Site) -> None:
    name = site.start()
    held, agent = hold_task(site, name)
    site.call("instance_stop", id=name)
    site.clock.advance(60)
    site.call("instance_restart", id=name)
    for _ in range(10):
        site.clock.advance(20)
        site.hub.chores.run_one("instances")
        site.hub.chores.run_due()
    assert site.call("task_get", id=held)["claimed_by"] == agent
    assert site.call("agent_get", id=agent)["status"] == "busy"


def test_a_living_process_keeps_its_task_for_hours(site: Site) -> None:
    name = site.start()
    held, agent = hold_task(site, name)
    wait_for_state(site, name, "alive")
    for _ in range(30):
        site.clock.advance(600)
        for chore in ("instances", "presence", "leases"):
            site.hub.chores.run_one(chore)
    assert site.call("task_get", id=held)["claimed_by"] == agent


def test_a_slow_setup_is_starting(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.hub.journal.at = lambda point: _stop_at(point, "program begins")
    with pytest.raises(KeyboardInterrupt):
        site.start()
    state = site.state("work-trial-a1")
    assert state["name"] == "starting" and state["source"] == "launcher"


def _stop_at(point: str, wanted: str) -> None:
    if point == wanted:
        raise KeyboardInterrupt
