"""Who paused a workflow: kept while it is paused, gone when it resumes, and known of halls that older hubs wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.families.work.workflow.halt import halt
from crewhall.identity import OPERATOR, Actor
from crewhall.store.migrate import migrate, migrations
from crewhall.store.open import connect
from crewhall.store.sql import Queries
from crewhall.store.transaction import Work
from tests.conftest import BOTH, Agent, settings_for
from tests.families.work.claims import ask, job, refusal, rows
from tests.postgres import Cluster

BEFORE_HALTED_BY = 12  # the last step of the schema without the column
HALTED, PAUSED, RESUMED = "wf_halted", "wf_paused", "wf_resumed"
OLD_WORKFLOWS = {
    HALTED: ("paused", "CRITICAL_HALT: the judge's report jr_1 on task T-1"),
    PAUSED: ("paused", "not CRITICAL_HALT: lunch"),
    RESUMED: ("in_progress", "CRITICAL_HALT: an older one"),
    "wf_silent": ("paused", None),
}


def move(hub: Hub, workflow: str, *steps: str, actor: Actor = OPERATOR) -> None:
    for step in steps:
        ask(hub, "workflow_update_status", actor, id=workflow, status=step)


def halted_by(database: str) -> dict[str, str | None]:
    return {row["id"]: row["halted_by"] for row in rows(database, "SELECT id, halted_by FROM workflow")}


def actors(hub: Hub) -> dict[str, Actor]:
    """One actor of each kind that can pause a workflow, by the word for it."""
    agents = {role: Agent(hub, role, role).actor for role in ("coordinator", "worker")}
    return {"operator": OPERATOR, **agents}


def halt_as_judge(hub: Hub, workflow: str) -> None:
    with hub.store.write(Work("operator", None, now=1)) as tx:
        assert halt(tx, workflow, "a report", 1)


@pytest.mark.parametrize("left_for", ["in_progress", "abandoned"])
def test_who_paused_is_kept_until_the_workflow_leaves_paused(hub: Hub, database: str, left_for: str) -> None:
    for word, actor in actors(hub).items():
        paused = job(hub).id
        move(hub, paused, "in_progress")
        assert halted_by(database)[paused] is None
        move(hub, paused, "paused", actor=actor)
        assert halted_by(database)[paused] == word
        move(hub, paused, left_for)
        assert halted_by(database)[paused] is None


def test_the_judge_is_kept_as_the_one_who_halted(hub: Hub, database: str) -> None:
    halted = job(hub).id
    halt_as_judge(hub, halted)
    assert halted_by(database) == {halted: "judge"}
    move(hub, halted, "in_progress")
    assert halted_by(database) == {halted: None}


def test_a_pause_is_no_halt_whatever_its_reason_says(hub: Hub) -> None:
    known = actors(hub)
    for actor in known.values():
        paused = job(hub).id
        move(hub, paused, "in_progress")
        ask(hub, "workflow_update_status", actor, id=paused, status="paused", reason="CRITICAL_HALT: lunch")
        move(hub, paused, "in_progress", actor=known["worker"])
        assert ask(hub, "workflow_get", id=paused)["status"] == "in_progress"


@pytest.fixture(params=BOTH)
def old_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A hall that an older hub has written: its workflows say in their reason alone who halted them."""
    cluster: Cluster | None = request.getfixturevalue("cluster") if request.param == "postgres" else None
    url = cluster.create_empty() if cluster else str(tmp_path / "old.db")
    store = connect(url, Queries([]))
    migrate(store, migrations(store.dialect.name)[:BEFORE_HALTED_BY])
    store.close()
    for workflow, (status, reason) in OLD_WORKFLOWS.items():
        text = "NULL" if reason is None else "'{}'".format(reason.replace("'", "''"))
        rows(
            url,
            "INSERT INTO workflow (id, name, status, status_reason, source_type, source_content, max_parallel_tasks,"
            " auto_create_workspaces, created_at, updated_at)"
            f" VALUES ('{workflow}', 'w', '{status}', {text}, 'prompt', '', 1, 0, 1, 1)",
        )
    yield url
    if cluster:
        cluster.drop(url)


@pytest.fixture
def upgraded(old_database: str, tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(settings_for(old_database, tmp_path / "home"), registry())
    yield hub
    hub.close()


def test_the_operator_alone_lifts_a_halt_of_an_older_hub(upgraded: Hub, old_database: str) -> None:
    assert halted_by(old_database) == dict.fromkeys(OLD_WORKFLOWS) | {HALTED: "judge"}
    agents = [actor for actor in actors(upgraded).values() if actor != OPERATOR]
    for agent in agents:
        for word in ("in_progress", "abandoned"):
            code = refusal(upgraded, "workflow_update_status", agent, id=HALTED, status=word)
            assert code == "FORBIDDEN"
    move(upgraded, HALTED, "in_progress")
    assert halted_by(old_database)[HALTED] is None
    move(upgraded, PAUSED, "in_progress", actor=agents[0])
    move(upgraded, RESUMED, "paused", "in_progress", actor=agents[0])
