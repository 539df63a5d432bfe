"""Fleets of agents that work a hall down: plans with many tasks, the loop of one agent, and what the database says."""

import http.client
import json
import random
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pysqlite3.dbapi2 as sqlite3

from crewhall.families.all import registry

Ask = Callable[..., dict[str, Any]]  # a tool and its arguments to the body that comes back
COMMANDS = {tool.name: "/".join(tool.command) for tool in registry().tools}
# What an agent may hear that was slower than another: the task is done, or not to be had any more.
TOO_LATE = ("INVALID_STATE", "TASK_BLOCKED")


class Connection:
    """An agent's connection to a hub's REST, kept open."""

    def __init__(self, url: str, token: str | None = None) -> None:
        place = urllib.parse.urlsplit(url)
        assert place.hostname is not None
        self._connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The body of a tool's result, or of its refusal."""
        self._connection.request("POST", f"/api/v1/{COMMANDS[tool]}", json.dumps(arguments), self._headers)
        body: dict[str, Any] = json.loads(self._connection.getresponse().read())
        return body

    def close(self) -> None:
        self._connection.close()


def layered_plan(tasks: int, width: int) -> dict[str, Any]:
    """A plan in layers: every task of a layer waits for one to three of the layer before, whichever."""
    chance = random.Random(tasks)
    planned = []
    for number in range(tasks):
        layer = number // width
        before = range((layer - 1) * width, layer * width)
        wanted = chance.sample(before, chance.randint(1, 3)) if layer else []
        planned.append(
            {
                "name": f"task {number}",
                "description": f"number {number} of {tasks}",
                "sequence": layer,
                "depends_on": [f"task {one}" for one in wanted],
            }
        )
    return {"summary": f"{tasks} tasks", "approach": "in layers", "tasks": planned}


def planned_workflow(ask: Ask, plan: dict[str, Any], name: str = "the work") -> str:
    """A workflow with this plan, ready to be worked at."""
    source: dict[str, Any] = {"source_type": "prompt", "source_content": "a test", "max_parallel_tasks": 1000}
    made = ask("workflow_create", name=name, **source)
    workflow: str = made["id"]
    assert ask("workflow_set_plan", id=workflow, plan=plan)["tasks_created"] == len(plan["tasks"])
    return workflow


@dataclass
class Drainer:
    """One agent that works a workflow down, with others: look, take one, do it, note it, say that it is done."""

    ask: Ask
    workflow: str
    seed: int
    until: float
    looks_at: int  # of what is available, so many
    completed: list[str] = field(default_factory=list)
    beaten: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0

    def drain(self, woken: threading.Condition) -> None:
        """Work until all is complete; it ends early when something is wrong, or when time is up."""
        chance = random.Random(self.seed)
        total = 0
        while not self.wrong and time.monotonic() < self.until:
            # Anywhere among what is available: all would meet at its beginning, and never come near what still waits.
            place = {"limit": self.looks_at, "offset": chance.randint(0, max(0, total - self.looks_at))}
            available = self._call("task_get_available", workflow_id=self.workflow, **place)
            total = available.get("total", 0)
            tasks = [task["id"] for task in available.get("tasks", [])]
            if total and not tasks:
                continue  # there is less than there was
            if tasks:
                self._do_one(chance.sample(tasks, min(2, len(tasks))), woken)  # an old list is of no use
            elif self._call("workflow_next_tasks", workflow_id=self.workflow, limit=1).get("all_complete"):
                return
            else:
                with woken:
                    woken.wait(0.2)  # until another has finished something, at this hub or any

    def _do_one(self, tasks: list[str], woken: threading.Condition) -> None:
        """Do the first of them that is still to be had."""
        for task in tasks:
            claim = self._call("task_claim", task_id=task)
            if claim.get("success"):
                self._do(task)
                with woken:
                    woken.notify_all()
                return
            self.beaten[claim.get("code", "taken")] += 1

    def _do(self, task: str) -> None:
        self._call("task_update_status", id=task, status="in_progress")
        self._call("checkpoint_add", task_id=task, type="progress", summary="half of it")
        if self._call("task_update_status", id=task, status="completed", outcome="done").get("success"):
            self.completed.append(task)

    def _call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        self.calls += 1
        body = self.ask(tool, **arguments)
        if "code" in body and not (tool == "task_claim" and body["code"] in TOO_LATE):
            self.wrong.append(body)
        return body


def drain_together(drainers: list[Drainer]) -> None:
    """All of them at once, until the last is done."""
    woken = threading.Condition()
    threads = [threading.Thread(target=drainer.drain, args=(woken,)) for drainer in drainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(1.0, max(one.until for one in drainers) - time.monotonic() + 70))
    assert not any(thread.is_alive() for thread in threads), "a call hangs"


def rows(database: str, query: str) -> list[tuple[Any, ...]]:
    """What the database itself says, past everything of ours."""
    if "://" in database:
        with psycopg.connect(database) as connection:
            return connection.execute(query.encode()).fetchall()
    opened = sqlite3.connect(database)
    try:
        found: list[tuple[Any, ...]] = opened.execute(query).fetchall()
        return found
    finally:
        opened.close()


def assert_drained(database: str, drainers: dict[str, Drainer], tasks: int, least: int) -> None:
    """Each task was done once, by the agent that says so, after all that it waited for; and none starved."""
    assert {agent: one.wrong for agent, one in drainers.items() if one.wrong} == {}
    did = {task: agent for agent, one in drainers.items() for task in one.completed}
    assert sum(len(one.completed) for one in drainers.values()) == len(did) == tasks
    assert rows(database, "SELECT status, count(*) FROM task GROUP BY status") == [("completed", tasks)]
    claims = rows(database, "SELECT task_id, agent_id, ended_how FROM claim ORDER BY task_id")
    assert claims == [(task, did[task], "completed") for task in sorted(did)], "one claim each, and no other"
    noted = rows(database, "SELECT task_id, agent_id FROM checkpoint ORDER BY task_id")
    assert noted == [(task, did[task]) for task in sorted(did)]
    finished = rows(
        database,
        "SELECT subject, actor FROM event WHERE what = 'task.updated' AND after_status = 'completed' ORDER BY 1",
    )
    assert finished == [(task, did[task]) for task in sorted(did)]
    too_early = rows(
        database,
        "SELECT count(*) FROM task_dependency"
        " JOIN task ON task.id = task_dependency.task_id"
        " JOIN task AS wanted ON wanted.id = task_dependency.depends_on_id"
        " WHERE wanted.finished_at IS NULL OR task.started_at IS NULL OR wanted.finished_at > task.started_at",
    )
    assert too_early == [(0,)]
    assert rows(database, "SELECT task_count, finished_count, completed_count FROM workflow") == [(tasks,) * 3]
    assert rows(database, "SELECT count(*) FROM agent WHERE status = 'busy' OR current_task_id IS NOT NULL") == [(0,)]
    assert min(len(one.completed) for one in drainers.values()) >= least, "nobody starves"
