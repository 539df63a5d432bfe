"""Shared by the tests of claims and leases: a workflow in one line, rows as stored, and time that passes in ticks."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from pysqlite3 import dbapi2 as sqlite3  # the hub's own: a second library in a process breaks the first one's locks

from crewhall.app import Hub, Origin
from crewhall.errors import Failure
from crewhall.identity import OPERATOR, Actor
from tests.conftest import Agent, Clock

LEASE, HEARTBEAT, MISSED = 1800, 30, 3  # the settings' own, in seconds and beats
JOB: dict[str, Any] = {"name": "job", "source_type": "prompt", "source_content": "do it"}
PERSON = replace(OPERATOR, proof="token")  # the operator with the token, not a local client without one
PLAN = {"approach": "slowly", "steps": ["one", "two"]}


@dataclass(frozen=True)
class Job:
    """A workflow that is ready, and its tasks by name."""

    id: str
    tasks: dict[str, str]

    @property
    def task(self) -> str:
        """Its first task."""
        return next(iter(self.tasks.values()))


def job(hub: Hub, *tasks: str | dict[str, Any], most: int = 99) -> Job:
    """A workflow of these tasks, `one` if none is named; those given by a name alone wait for nothing.

    So many of them may run at once.
    """
    made = ask(hub, "workflow_create", max_parallel_tasks=most, **JOB)["id"]
    given = [task if isinstance(task, dict) else {"name": task} for task in tasks or ("one",)]
    planned = [{"description": "…", "sequence": 1, **task} for task in given]
    ask(hub, "workflow_set_plan", id=made, plan={"summary": "s", "approach": "a", "tasks": planned})
    listed = ask(hub, "task_list", workflow_id=made)["tasks"]
    return Job(made, {task["name"]: task["id"] for task in listed})


def ask(hub: Hub, tool: str, /, actor: Actor = OPERATOR, origin: Origin | None = None, **given: Any) -> dict[str, Any]:
    """A call: of a local client without a token, unless another actor is given."""
    return hub.call(tool, given, actor, origin=origin or Origin())


def refusal(hub: Hub, tool: str, /, actor: Actor = OPERATOR, **given: Any) -> str:
    """The code with which a call is refused."""
    with pytest.raises(Failure) as refused:
        ask(hub, tool, actor, **given)
    assert refused.value.hint, "a failure tells the caller what to do next"
    return refused.value.code


def register_agent(hub: Hub, name: str = "bob", origin: Origin | None = None, **more: Any) -> str:
    """Register an agent without a token; its id."""
    made: str = ask(hub, "agent_register", origin=origin, name=name, runtime="custom", **more)["id"]
    return made


def register_with_token(hub: Hub, name: str) -> Agent:
    """An agent with a token that has registered itself."""
    agent = Agent(hub, name)
    agent.call("agent_register", name=name, runtime="codex")
    return agent


def claim(hub: Hub, task: str, agent: str) -> int:
    """The epoch of the claim that the agent gets."""
    body = ask(hub, "task_claim", task_id=task, agent_id=agent)
    assert body["success"], body
    epoch: int = body["claim_epoch"]
    return epoch


def task_of(hub: Hub, task: str, *fields: str) -> Any:
    """Some fields of a task, or the one that is asked for."""
    return _fields(ask(hub, "task_get", id=task), fields)


def agent_of(hub: Hub, agent: str, *fields: str) -> Any:
    """Some fields of an agent, or the one that is asked for."""
    return _fields(ask(hub, "agent_get", id=agent), fields)


def _fields(body: dict[str, Any], fields: tuple[str, ...]) -> Any:
    return body[fields[0]] if len(fields) == 1 else tuple(body[field] for field in fields)


def recoveries(hub: Hub, task: str) -> list[dict[str, Any]]:
    """The recovery checkpoints of a task."""
    found: list[dict[str, Any]] = ask(hub, "checkpoint_list", task_id=task, type=["recovery"])["checkpoints"]
    return found


def events_about(hub: Hub, subject: str, *whats: str) -> list[tuple[str, str, str | None, str | None]]:
    """The events about something, perhaps of some kinds: what, by whom, before, after."""
    events = ask(hub, "event_list", subject=subject, limit=500)["events"]
    facts = [(event["what"], event["actor"], event["before_status"], event["after_status"]) for event in events]
    return [event for event in facts if not whats or event[0] in whats]


def pass_time(clock: Clock, seconds: float, *hubs: Hub, ticks: int = 1) -> None:
    """Let time go by while these hubs do their chores at each tick, or at every so many of them."""
    end = clock.now + int(seconds * 1000)
    while clock.now < end:
        clock.now = min(end, clock.now + int(hubs[0].chores.tick_seconds * 1000) * ticks)
        for hub in hubs:
            hub.chores.run_due()


def rows(database: str, text: str) -> list[dict[str, Any]]:
    """What a statement gives, past all our own code."""
    if "://" in database:
        with psycopg.connect(database, row_factory=dict_row, autocommit=True) as connection:
            done = connection.execute(text)
            return [] if done.description is None else list(done)
    with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as file:
        file.row_factory = sqlite3.Row
        return [dict(row) for row in file.execute(text)]


@contextmanager
def refuse_changes(database: str, table: str, event: str, when: str = "TRUE") -> Iterator[None]:
    """Let the database refuse such a change of a row during the block, whatever transaction it is part of."""
    event = f"BEFORE {event} ON {table}"
    if "://" in database:
        body = "BEGIN RAISE EXCEPTION 'refused by the test'; END"
        rows(database, f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        rows(database, f"CREATE TRIGGER broken {event} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()")
    else:
        rows(
            database, f"CREATE TRIGGER broken {event} WHEN {when} BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
        )
    try:
        yield
    finally:
        rows(database, f"DROP TRIGGER broken ON {table}" if "://" in database else "DROP TRIGGER broken")


def assert_claims_agree(database: str) -> None:
    """Assert that tasks, claims and agents agree on who holds what, and that no epoch is missing or doubled."""
    tasks = rows(database, "SELECT id, status, claimed_by, claim_epoch FROM task ORDER BY id")
    claims = rows(database, "SELECT task_id, epoch, agent_id, ended_at, ended_how FROM claim ORDER BY task_id, epoch")
    for task in tasks:
        own = [claim for claim in claims if claim["task_id"] == task["id"]]
        assert [claim["epoch"] for claim in own] == list(range(1, task["claim_epoch"] + 1)), task
        held_by = [(claim["agent_id"], claim["epoch"]) for claim in own if claim["ended_at"] is None]
        assert held_by == ([(task["claimed_by"], task["claim_epoch"])] if task["claimed_by"] else []), task
        assert all((claim["ended_at"] is None) == (claim["ended_how"] is None) for claim in own)
        assert not (task["claimed_by"] and task["status"] in ("completed", "skipped")), task
    for agent in rows(database, "SELECT id, status, current_task_id FROM agent ORDER BY id"):
        holds = [task["id"] for task in tasks if task["claimed_by"] == agent["id"]]
        assert (agent["status"] == "busy") == bool(holds), (agent, holds)
        assert agent["current_task_id"] in (holds or [None]), (agent, holds)
