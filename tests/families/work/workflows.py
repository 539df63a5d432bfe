"""Shared by the tests of workflows and tasks: a plan in one line, and all rows of a hall, to compare."""

from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.store.transaction import Row
from tests.conftest import Clock

Ask = Callable[..., dict[str, Any]]
PLAN = {"summary": "in short", "approach": "step by step"}
HOW = {"approach": "carefully", "steps": ["look", "do"]}


def new_workflow(ask: Ask, **more: Any) -> str:
    fields = {"name": "w", "source_type": "prompt", "source_content": "do it"}
    found: str = ask("workflow_create", **fields | more)["id"]
    return found


def task(name: str, sequence: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"do {name}", "sequence": sequence, **more}


def plan_workflow(ask: Ask, *tasks: dict[str, Any], **more: Any) -> tuple[str, dict[str, str]]:
    """Create a workflow with a plan; its id, and the ids of its tasks by name."""
    workflow = new_workflow(ask, **more)
    ask("workflow_set_plan", id=workflow, plan=PLAN | {"tasks": list(tasks)})
    return workflow, ids(ask, workflow)


def list_tasks(ask: Ask, workflow: str, **more: Any) -> list[dict[str, Any]]:
    """All tasks of a workflow, page by page."""
    tasks: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = ask("task_list", workflow_id=workflow, **cursor, **more)
        tasks += page["tasks"]
        if page["next_cursor"] is None:
            return tasks
        cursor = {"cursor": page["next_cursor"]}


def ids(ask: Ask, workflow: str) -> dict[str, str]:
    return {one["name"]: one["id"] for one in list_tasks(ask, workflow)}


def statuses(ask: Ask, workflow: str) -> dict[str, str]:
    return {one["name"]: one["status"] for one in list_tasks(ask, workflow)}


def register(ask: Ask, name: str = "ada", **more: Any) -> str:
    found: str = ask("agent_register", name=name, runtime="codex", **more)["id"]
    return found


WORDS = {"completed": {"outcome": "done"}, "failed": {"error": "broken"}}  # what a status needs


def move(ask: Ask, task_id: str, *steps: str) -> None:
    for status in steps:
        ask("task_update_status", id=task_id, status=status, **WORDS.get(status, {}))


def finish(ask: Ask, *task_ids: str) -> None:
    for task_id in task_ids:
        move(ask, task_id, "in_progress", "completed")


def events(ask: Ask, after: int = 0, **more: Any) -> list[tuple[str, str | None, str | None]]:
    found = ask("event_list", after=after, limit=500, **more)["events"]
    return [(event["what"], event["before_status"], event["after_status"]) for event in found]


def newest(ask: Ask) -> int:
    found: int = ask("event_list", limit=1)["newest"]
    return found


def let_lapse(hub: Hub, clock: Clock, seconds: int = 1860) -> None:
    """Nobody gives a sign of life, for longer than a lease; the hub is awake all the time."""
    for _ in range(0, seconds, 30):
        clock.advance(30)
        hub.chores.run_due()
    clock.advance(30)
    hub.chores.run_due()


def sql(hub: Hub, text: str, **params: Any) -> list[Row]:
    """What only the test asks of the database."""
    hub.store.texts["test"] = hub.store.dialect.query(text)
    with hub.store.read() as tx:
        return tx.all("test", **params)


def all_rows(hub: Hub) -> dict[str, list[str]]:
    """All rows of all tables but the call log, which notes what is refused too."""
    tables = sorted(set(hub.store.tables()) - {"call_log", "chore"})
    return {table: sorted(map(str, sql(hub, f"SELECT * FROM {table}"))) for table in tables}


def code_of(ask: Ask, tool: str, /, **arguments: Any) -> str:
    """The code of the failure that the call meets; it must meet one."""
    with pytest.raises(Failure) as refused:
        ask(tool, **arguments)
    assert refused.value.message and refused.value.hint
    return refused.value.code
