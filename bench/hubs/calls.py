"""What agents do: the calls of each workload, in order."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WORKLOADS = ("drain-many", "drain-one", "claims", "messages")


@dataclass(frozen=True)
class Told:
    """A call: the tool and its arguments; whether it writes."""

    tool: str
    arguments: dict[str, Any]
    writes: bool = True


def message(agent: str, peer: str) -> Told:
    body = {"message_type": "query", "body": "how far are you? " * 6}
    return Told("message_send", {"sender_id": agent, "recipient_id": peer, **body})


def claim(agent: str, task: str) -> Told:
    return Told("task_claim", {"task_id": task, "agent_id": agent})


def task(agent: str, peer: str, workflow: str, taken: str) -> Iterator[Told]:
    """A task from the look to its end, in five calls."""
    yield Told("task_get_available", {"agent_id": agent, "workflow_id": workflow, "limit": 1}, writes=False)
    yield claim(agent, taken)
    yield Told("task_update_status", {"id": taken, "status": "in_progress"})
    yield Told("task_update_status", {"id": taken, "status": "completed", "outcome": "done"})
    yield message(agent, peer)


def calls(workload: str, agent: str, peer: str, tasks: list[tuple[str, str]]) -> Iterator[Told]:
    """What one agent calls until its tasks are done; messages have no end. It takes them off the list's end."""
    if workload == "messages":
        while True:
            yield message(agent, peer)
    while tasks:
        workflow, taken = tasks.pop()
        if workload == "claims":
            yield claim(agent, taken)
        else:
            yield from task(agent, peer, workflow, taken)


def path_of(command: str) -> str:
    """A command's place in REST: `task_get_available` is `task/get-available`."""
    noun, _, verb = command.partition("_")
    return f"{noun}/{verb.replace('_', '-')}"
