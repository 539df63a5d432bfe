"""
Agents that work workflows down: look, claim, begin, note, complete, send a message, and again.

    Lane: workflows that are worked down one after the other ◀── Planner plans the next before one is done
      ▲ one for each agent ("many"), or one for all ("one")
"""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.edges.fleet import layered_plan
from tests.faults.caller import Caller

TASKS, WIDTH = {"many": 60, "one": 600}, {"many": 12, "one": 150}
AHEAD = 0.5  # of a workflow is left when the next is planned
IDLE_SECONDS = 0.2


@dataclass
class Lane:
    """The workflow that is worked at now, the next one, and how much of this one is left."""

    tasks: int
    width: int
    workflows: list[str] = field(default_factory=list)
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def wants_more(self) -> bool:
        return not self.workflows or (len(self.workflows) == 1 and self.done > self.tasks * AHEAD)

    def count_one(self) -> None:
        with self.lock:
            self.done += 1

    def move_on(self, workflow: str) -> None:
        """This workflow has nothing for us any more."""
        with self.lock:
            if len(self.workflows) > 1 and self.workflows[0] == workflow:
                self.workflows.pop(0)
                self.done = 0


class Planner:
    """Plans workflows for all lanes, ahead of the agents."""

    def __init__(self, caller: Caller, lanes: list[Lane], over: threading.Event) -> None:
        self._caller, self._lanes, self._over = caller, lanes, over

    def run(self) -> None:
        while not self._over.is_set():
            for lane in self._lanes:
                if lane.wants_more and not self._over.is_set():
                    self._plan(lane)
            self._over.wait(IDLE_SECONDS)

    def _plan(self, lane: Lane) -> None:
        source: dict[str, Any] = {"source_type": "prompt", "source_content": "a test", "max_parallel_tasks": 1000}
        made = self._caller.create("workflow_create", "name", **source).answer
        if "id" not in made:
            return
        key = self._caller.new_key()
        plan = layered_plan(lane.tasks, lane.width)
        planned = self._caller.call("workflow_set_plan", id=made["id"], plan=plan, idempotency_key=key)
        if planned.outcome == "ok":
            lane.workflows.append(made["id"])


class Agent:
    """One agent, in a thread of its own. `share` of its tasks are of other lanes."""

    def __init__(
        self, caller: Caller, lanes: list[Lane], peers: list[str], over: threading.Event, share: float, pause: float
    ) -> None:
        self._caller, self._lanes, self._peers = caller, lanes, peers
        self._over, self._share, self._pause = over, share, pause
        self._chance = random.Random(caller.agent)

    def run(self) -> None:
        while not self._over.is_set():
            lane = self._lanes[0]
            if len(self._lanes) > 1 and self._chance.random() < self._share:
                lane = self._chance.choice(self._lanes)
            idle = not (lane.workflows and self._work(lane, lane.workflows[0]))
            self._over.wait(IDLE_SECONDS if idle else self._pause * self._chance.uniform(0.5, 1.5))
        self._caller.close()

    def _work(self, lane: Lane, workflow: str) -> bool:
        """Whether there was a task to be done."""
        found = self._caller.look("task_get_available", workflow_id=workflow, limit=20)
        tasks = [task["id"] for task in found.get("tasks", [])]
        if "tasks" in found and not tasks:
            lane.move_on(workflow)
        for task in self._chance.sample(tasks, min(2, len(tasks))):
            if self._caller.call("task_claim", task_id=task).outcome == "ok":
                self._do(task)
                lane.count_one()
                break
        return bool(tasks)

    def _do(self, task: str) -> None:
        """To its end, if the hall lets us: someone else may have it by now."""
        if self._moved(task, "in_progress"):
            if self._chance.random() < 0.5:
                self._caller.create("checkpoint_add", "summary", task_id=task, type="progress")
            self._moved(task, "completed", outcome=self._caller.agent)
        to = self._chance.choice(self._peers)
        self._caller.create("message_send", "body", recipient_id=to, message_type="notification")

    def _moved(self, task: str, status: str, **more: Any) -> bool:
        """Whether the task has this status by us. If it's refused, an attempt without an answer may have done it."""
        if self._over.is_set():
            return False
        if self._caller.call("task_update_status", id=task, status=status, **more).outcome == "ok":
            return True
        return status == "in_progress" and self._caller.look("task_get", id=task).get("status") == status
