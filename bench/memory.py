"""
What coming back costs: the context of a task as its workflow and its notes grow, and how near other tokenizers are.

Small and large stand in one hall and take turns. "Alike" has as much to show on both sides, so that what differs is
what lies behind it; "as they come" lets the larger one fill its budget.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from bench.work import Found, show, timed
from crewhall import config
from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.identity import OPERATOR, new_id
from crewhall.outside.tokens import count
from tests.outside.samples import SAMPLES, real_count

SMALL, LARGE = 20, 10_000
ROUNDS = 40
TOKENS = 8000
OTHERS = ("cl100k_base", "llama3", "qwen3", "deepseek_v3", "kimi_k2", "glm4", "mistral_v3", "gemma3", "phi4")
NOTE = (
    "Moved the parser into a module of its own and ran its tests, which pass; step {} of the plan is done. The cache "
    "is still keyed by path, so two checkouts of one repository share entries: the key needs the commit too. Next "
    "comes the command line, where the flag is read twice, and then the page about settings."
)
WHOLE = {"all_checkpoints": True}


class Flow:
    """A workflow of so many tasks, half of them finished, and a task with as many checkpoints."""

    def __init__(self, hub: Hub, size: int, finished: int) -> None:
        self.hub, self.size = hub, size
        self.id: str = self.ask("workflow_create", name="w", source_type="prompt", source_content=NOTE * 4)["id"]
        tasks = [
            {"name": f"task {number}", "description": NOTE.format(number), "sequence": number // 10 + 1}
            for number in range(size)
        ]
        plan = {"summary": NOTE, "approach": NOTE, "tasks": tasks}
        self.ask("workflow_set_plan", id=self.id, plan=plan)
        self.task = self.after(finished)
        self.note(size)

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.hub.call(tool, arguments, OPERATOR)

    def after(self, finished: int) -> str:
        """The first task that is ready when so many are finished."""
        done = 0
        while True:
            ready = self.ask("workflow_next_tasks", workflow_id=self.id, limit=50)["tasks"]
            for task in ready:
                if done == finished:
                    return str(task["id"])
                self.ask("task_update_status", id=task["id"], status="in_progress")
                told = {"outcome": NOTE.format(done)}
                self.ask("task_update_status", id=task["id"], status="completed", **told)
                done += 1

    def note(self, checkpoints: int) -> None:
        """So many checkpoints, past the door: only reading them is measured."""
        with self.hub.own_work() as tx:
            for number in range(checkpoints):
                told = {"type": "progress", "summary": NOTE.format(number), "files_changed": '["src/parser.py"]'}
                place = {"id": new_id("cp"), "task_id": self.task, "sequence": number + 1}
                tx.run("checkpoint_insert", detail=None, agent_id=None, now=self.hub.clock(), **place, **told)
            tx.run("checkpoint_count", id=self.task, sequence=checkpoints, now=self.hub.clock())

    def probes(self) -> dict[str, Callable[[], Any]]:
        asked = {"task_id": self.task, "max_tokens": TOKENS}
        return {
            "task_load_context": lambda: self.ask("task_load_context", **asked),
            "task_load_context, all_checkpoints": lambda: self.ask("task_load_context", include=WHOLE, **asked),
            "workflow_get_summary": lambda: self.ask("workflow_get_summary", id=self.id),
        }


def memory() -> None:
    """Coming back to a task with 20 notes among 20 tasks, and to one with 10,000 among 10,000."""
    hub = Hub(config.load({}, {"home": tempfile.mkdtemp(), "tool.timeout": 3600.0}), registry())
    for title, finished in {"alike": (10, 10), "as they come": (SMALL // 2, LARGE // 2)}.items():
        compare(title, [Flow(hub, size, done) for size, done in zip((SMALL, LARGE), finished, strict=True)])
    hub.close()


def compare(title: str, flows: list[Flow]) -> None:
    found: Found = {}
    for number in range(ROUNDS):
        for place, flow in enumerate(flows):
            for name, probe in flow.probes().items():
                took = timed(probe)
                if number >= 3:  # the first rounds warm up
                    found.setdefault(name, [[] for _ in flows])[place].append(took)
    show(f"{SMALL} and {LARGE} tasks and checkpoints, {title}", found)
    for flow in flows:
        body = flow.ask("task_load_context", task_id=flow.task, max_tokens=TOKENS)
        shown = {name: len(body[name] or []) for name in ("prior_tasks", "sibling_tasks", "dependency_outcomes")}
        print(f"  {flow.size}: {body['token_estimate']} tokens, {shown}")


FIRST = """
import time
from pathlib import Path
from crewhall.outside.tokens import count
used = lambda: int(Path("/proc/self/statm").read_text().split()[1]) / 256
before, began = used(), time.perf_counter()
count("The first text that is counted.")
print(f"  the first count in a process: {time.perf_counter() - began:.2f} s, {used() - before:.0f} MiB")
"""


def tokens() -> None:
    """What the vocabulary costs a process, and how far other tokenizers are from our count."""
    print("\ntokens")
    for _ in range(3):
        subprocess.run([sys.executable, "-c", FIRST], check=True)
    texts = {name: make() for name, make in SAMPLES.items()}
    for name, text in texts.items():
        ours, (seconds, _) = count(text), timed(lambda text=text: count(text + " "))  # type: ignore[misc]
        ratios = "  ".join(f"{other} {real_count(text, other) / ours:.2f}" for other in ("o200k_base", *OTHERS))
        print(f"  {name:20} {len(text)} letters, {ours} tokens, {seconds * 1e3:.1f} ms:  {ratios}")


PARTS = {"memory": memory, "tokens": tokens}
