"""Agents that claim a task through the first hub and say nothing more, and how long the hall leaves it to them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tests.conftest import eventually
from tests.edges.fleet import COMMANDS, planned_workflow, rows
from tests.edges.program import Up, ask
from tests.faults.lab import LEASE_SECONDS, Lab
from tests.faults.record import Record

PATIENCE = 200.0
PLAN = {"summary": "s", "approach": "a", "tasks": [{"name": "t", "description": "d", "sequence": 1}]}


@dataclass(frozen=True)
class Silent:
    """An agent that has fallen silent: the task that it holds, and when it was last heard."""

    task: str
    heard: float


def fall_silent(lab: Lab, count: int) -> list[Silent]:
    """So many agents, each with a task that it claims through the first hub."""
    return [_silent(lab, lab.hubs[0].up, f"silent {number}") for number in range(count)]


def _silent(lab: Lab, hub: Up, name: str) -> Silent:
    agent = ask(hub, "agent/register", name=name, runtime="custom")["id"]
    workflow = planned_workflow(partial(_ask, hub), PLAN, name)
    ((task,),) = rows(lab.database, f"SELECT id FROM task WHERE workflow_id = '{workflow}'")
    assert ask(hub, "task/claim", task_id=task, agent_id=agent)["success"]
    return Silent(task, time.monotonic())


def _ask(hub: Up, tool: str, /, **arguments: object) -> dict[str, object]:
    body: dict[str, object] = ask(hub, COMMANDS[tool], **arguments)
    return body


def longest_claim(lab: Lab, silent: Sequence[Silent]) -> float:
    """Wait until the hall has taken all of the tasks back: how long one was left to an agent that was not heard."""
    ended: dict[str, float] = {}

    def all_ended() -> bool:
        expired = rows(lab.database, "SELECT task_id FROM claim WHERE ended_how = 'expired'")
        for one in silent:
            if (one.task,) in expired:
                ended.setdefault(one.task, time.monotonic() - one.heard)
        return len(ended) == len(silent)

    eventually(all_ended, PATIENCE)
    return max(ended.values())


def hasty(database: str, records: Sequence[Record], least: float) -> list[str]:
    """Agents that were called gone though another hub than the first had answered them within their lease.

    A hub notes whom it heard at its next tick, so an answer of the last `least` seconds is not counted.
    """
    offset = time.time() - time.monotonic()
    found = []
    for agent, at in rows(database, "SELECT subject, at FROM event WHERE what = 'agent.expired'"):
        moment = at / 1000 - offset
        heard = (one.ended for one in records if one.agent == agent and one.hub and one.outcome == "ok")
        last = max((one for one in heard if one < moment - least), default=0.0)
        if moment - last < LEASE_SECONDS - 1:
            found.append(f"{agent} expired {moment - last:.1f} s after an answer")
    return found
