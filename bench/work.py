"""
What workflows, tasks and messages cost as a hall grows: halls of three sizes are open at once, and take turns.

The probes work in the largest workflow and the fullest inbox of their hall.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from crewhall import config
from crewhall.app import Hub
from crewhall.errors import InvalidInput
from crewhall.families.all import registry
from crewhall.identity import OPERATOR

Found = dict[str, list[list[tuple[float, float]]]]  # what each call took, for each side
SIZES = (100, 10_000, 100_000)
WORKFLOW = 10_000  # tasks in one, at the most
ROUNDS = 60
PLAN = {"summary": "s", "approach": "a"}


def planned(number: int, **more: Any) -> dict[str, Any]:
    return {"name": f"task {number}", "description": "what is to be done " * 10, "sequence": 1, **more}


def plan_of(tasks: int, ready: int) -> dict[str, Any]:
    """A plan whose first tasks are ready; each of the others waits for three that come before it."""
    made = [planned(number, files_likely_affected=[f"src/{number}.py"]) for number in range(min(ready, tasks))]
    for number in range(len(made), tasks):
        earlier = sorted({number - 1, number - 7, number - 50})
        wanted = [f"task {one}" for one in earlier if one >= 0]
        made.append(planned(number, depends_on=wanted, parallel_group=f"g{number % 20}", sequence=2 + number // 100))
    return {**PLAN, "tasks": made}


class Hall:
    """A hall with so many tasks and messages, and two agents."""

    def __init__(self, size: int) -> None:
        self.size = size
        flags = {"home": tempfile.mkdtemp(), "agent.max": 10_000, "tool.timeout": 3600.0}
        self.hub = Hub(config.load({}, flags), registry())
        self.ada, self.bob = (self.ask("agent_register", name=name, runtime="codex")["id"] for name in ("ada", "bob"))
        made = [self.workflow(min(WORKFLOW, size - begun), ROUNDS + 20) for begun in range(0, size, WORKFLOW)]
        self.first = made[0]
        self.ready = self.ready_tasks()
        self.fill_inbox(size)
        self.probed = self.ready[-1]

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.hub.call(tool, arguments, OPERATOR)

    def ready_tasks(self) -> list[str]:
        found: list[str] = []
        page: dict[str, Any] = {"next_cursor": None}
        while not found or page["next_cursor"]:
            more = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
            page = self.ask("workflow_next_tasks", workflow_id=self.first, **more)
            found += [task["id"] for task in page["tasks"]]
        return found

    def workflow(self, tasks: int, ready: int) -> str:
        made: str = self.ask("workflow_create", name="w", source_type="prompt", source_content="x")["id"]
        self.ask("workflow_set_plan", id=made, plan=plan_of(tasks, ready))
        return made

    def fill_inbox(self, messages: int) -> None:
        def send(count: int) -> None:
            for _ in range(count):
                self.send()

        threads = [threading.Thread(target=send, args=(messages // 20,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def send(self) -> dict[str, Any]:
        told = {
            "sender_id": self.bob,
            "recipient_id": self.ada,
            "message_type": "query",
            "body": "how far are you? " * 6,
        }
        return self.ask("message_send", **told)

    def probes(self, task: str) -> dict[str, Callable[[], Any]]:
        """One round with a task that nobody has touched."""
        return {
            "task_get": lambda: self.ask("task_get", id=self.probed),
            "task_claim": lambda: self.ask("task_claim", task_id=task, agent_id=self.ada),
            "task_update_status, in_progress": lambda: self.ask("task_update_status", id=task, status="in_progress"),
            "checkpoint_add": lambda: self.ask("checkpoint_add", task_id=self.probed, type="progress", summary="half"),
            "task_update_status, completed": lambda: self.ask(
                "task_update_status", id=task, status="completed", outcome="done"
            ),
            "message_send": self.send,
            "message_list": lambda: self.ask("message_list", agent_id=self.ada),
            "message_count_unread": lambda: self.ask("message_count_unread", agent_id=self.ada),
            "task_get_available": lambda: self.ask("task_get_available", agent_id=self.ada, workflow_id=self.first),
        }


def timed(function: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and seconds of the processor."""
    began, busy = time.perf_counter(), time.thread_time()
    function()
    return time.perf_counter() - began, time.thread_time() - busy


def hall() -> None:
    """Calls on one task and one inbox in halls of three sizes."""
    halls = [Hall(size) for size in SIZES]
    found: Found = {}
    for number in range(ROUNDS):
        for place, one in enumerate(halls):
            for name, probe in one.probes(one.ready[number]).items():
                took = timed(probe)
                if number >= 5:  # the first rounds warm up
                    found.setdefault(name, [[] for _ in SIZES])[place].append(took)
    show(f"a hall of {', '.join(str(size) for size in SIZES)} tasks and messages", found)
    for one in halls:
        one.hub.close()


def show(title: str, found: Found) -> None:
    """Each size against the smallest: by the clock, and by the processor, which waits for no disk."""
    print(f"\n{title}")
    for name, sides in found.items():
        told = []
        for kind in (0, 1):
            medians = [statistics.median(times[kind] for times in side) for side in sides]
            costs = "  ".join(f"{median / medians[0]:5.2f} x" for median in medians)
            told.append(f"{costs} ({medians[0] * 1e3:.2f} ms)")
        print(f"  {name:32} {told[0]}   processor {told[1]}")


def workflows() -> None:
    """Questions to a workflow of 100 tasks and to one of 10,000; and plans of 10,000 tasks."""
    one = Hall(100)
    flow = {100: one.first, 10_000: one.workflow(10_000, 80)}
    for workflow in flow.values():  # half way: some done, some under way
        for task in one.ask("workflow_next_tasks", workflow_id=workflow, limit=40)["tasks"][:20]:
            one.ask("task_update_status", id=task["id"], status="in_progress")
            one.ask("task_update_status", id=task["id"], status="completed", outcome="done")
    found: Found = {}
    for number in range(ROUNDS):
        for place, workflow in enumerate(flow.values()):
            for tool in ("workflow_next_tasks", "workflow_progress"):
                took = timed(lambda tool=tool, workflow=workflow: one.ask(tool, workflow_id=workflow))  # type: ignore[misc]
                if number >= 5:
                    found.setdefault(tool, [[], []])[place].append(took)
    show("a workflow of 100 and of 10,000 tasks", found)
    plan = plan_of(10_000, 80)
    edges = sum(len(task.get("depends_on", ())) for task in plan["tasks"])
    made = one.ask("workflow_create", name="w", source_type="prompt", source_content="x")["id"]
    took = timed(lambda: one.ask("workflow_set_plan", id=made, plan=plan))
    print(f"  workflow_set_plan, 10,000 tasks, {edges} edges: {took[0]:.2f} s")
    more = [planned(-1, depends_on=["task 9999"])]
    print(
        f"  workflow_add_tasks, one more: {timed(lambda: one.ask('workflow_add_tasks', id=made, tasks=more))[0]:.2f} s"
    )
    _cycle(one)
    one.hub.close()


def _cycle(one: Hall) -> None:
    """A chain of 10,000 whose first waits for its last."""
    chain = [planned(number, depends_on=[f"task {(number - 1) % 10_000}"]) for number in range(10_000)]
    made = one.ask("workflow_create", name="w", source_type="prompt", source_content="x")["id"]
    began = time.perf_counter()
    try:
        one.ask("workflow_set_plan", id=made, plan={**PLAN, "tasks": chain})
    except InvalidInput as refusal:
        print(f"  a cycle of 10,000 tasks is refused in {time.perf_counter() - began:.2f} s: {refusal.message[:90]}")
    else:
        raise AssertionError("a cycle was taken for a plan")


PARTS = {"hall": hall, "workflows": workflows}
