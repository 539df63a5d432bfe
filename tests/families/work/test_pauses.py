"""Who paused a workflow: kept while it is paused, gone when it resumes, and known of halls that older hubs wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crewhall.app import Hub
from crewhall.errors import Forbidden, InvalidState
from crewhall.families.all import registry
from crewhall.families.work.workflow.halt import halt
from crewhall.identity import OPERATOR, Actor
from crewhall.store.migrate import migrate, migrations
from crewhall.store.open import connect
from crewhall.store.sql import Queries
from crewhall.store.transaction import Work
from tests.conftest import BOTH, Agent, Clock, settings_for
from tests.families.work.claims import (
    HEARTBEAT,
    MISSED,
    PERSON,
    ask,
    job,
    pass_time,
    refusal,
    register_with_token,
    rows,
    task_of,
)
from tests.postgres import Cluster

BEFORE_HALTED_BY = 12  # the last step of the schema without the column
HALTED, FORGED, PAUSED, RESUMED = "wf_halted", "wf_forged", "wf_paused", "wf_resumed"
OLD_WORKFLOWS = {
    HALTED: ("paused", "CRITICAL_HALT: the judge's report jr_1 on task T-1"),
    FORGED: ("paused", "CRITICAL_HALT: the judge's report jr_2 on task T-2"),
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
    return {"operator": PERSON, **agents}


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
        move(hub, paused, left_for, actor=PERSON)
        assert halted_by(database)[paused] is None


def test_the_judge_is_kept_as_the_one_who_halted(hub: Hub, database: str) -> None:
    halted = job(hub).id
    halt_as_judge(hub, halted)
    assert halted_by(database) == {halted: "judge"}
    assert refusal(hub, "workflow_update_status", id=halted, status="in_progress") == "FORBIDDEN"
    move(hub, halted, "in_progress", actor=PERSON)
    assert halted_by(database) == {halted: None}


def test_a_paused_task_is_not_begun_while_its_workflow_is_paused(hub: Hub) -> None:
    """Whoever starts it again begins work, with a token or without, its holder too."""
    work, ada = job(hub, "free", "held", most=2), Agent(hub, "ada")
    for actor, name in ((OPERATOR, "free"), (ada.actor, "held")):
        for status in ("in_progress", "paused"):
            ask(hub, "task_update_status", actor, id=work.tasks[name], status=status)
    halt_as_judge(hub, work.id)
    for actor in (OPERATOR, PERSON, ada.actor):
        begin = {"id": work.tasks["free"], "status": "in_progress"}
        assert refusal(hub, "task_update_status", actor, **begin) == "INVALID_STATE"
    assert refusal(hub, "task_update_status", ada.actor, id=work.tasks["held"], status="in_progress") == "INVALID_STATE"
    move(hub, work.id, "in_progress", actor=PERSON)
    ask(hub, "task_update_status", ada.actor, id=work.tasks["held"], status="in_progress")
    ask(hub, "task_update_status", id=work.tasks["free"], status="in_progress")


def test_a_pause_is_no_halt_whatever_its_reason_says(hub: Hub) -> None:
    known = actors(hub)
    for actor in known.values():
        paused = job(hub).id
        move(hub, paused, "in_progress")
        ask(hub, "workflow_update_status", actor, id=paused, status="paused", reason="CRITICAL_HALT: lunch")
        assert ask(hub, "workflow_get", id=paused)["halted_by"] != "judge"
        move(hub, paused, "in_progress", actor=actor)
        assert ask(hub, "workflow_get", id=paused)["status"] == "in_progress"


LIFTERS = {"operator": {"operator"}, "coordinator": {"operator", "coordinator"}}


@pytest.mark.parametrize("onward", ["in_progress", "abandoned"])
def test_who_may_pause_may_not_lift_the_pause_of_a_higher_one(hub: Hub, onward: str) -> None:
    known = actors(hub)
    for by, pauser in known.items():
        for word, actor in known.items():
            paused = job(hub)
            move(hub, paused.id, "in_progress")
            move(hub, paused.id, "paused", actor=pauser)
            if word in LIFTERS.get(by, known):
                move(hub, paused.id, onward, actor=actor)
                continue
            with pytest.raises(Forbidden) as refused:
                move(hub, paused.id, onward, actor=actor)
            assert f"paused by {'the' if by == 'operator' else 'a'} {by}" in refused.value.message
            with pytest.raises(InvalidState) as unclaimed:
                ask(hub, "task_claim", actor, task_id=paused.task, agent_id=actor.id)
            lifters = "the operator" if by == "operator" else "a coordinator or the operator"
            assert all(f"Only {lifters} resumes" in error.value.hint for error in (refused, unclaimed))


def test_a_pause_is_made_ones_own_by_a_higher_one_alone(hub: Hub, database: str) -> None:
    known, paused = actors(hub), job(hub).id
    move(hub, paused, "in_progress")
    move(hub, paused, "paused", actor=known["worker"])
    assert refusal(hub, "workflow_update_status", known["worker"], id=paused, status="paused") == "INVALID_TRANSITION"
    for word in ("coordinator", "operator"):
        move(hub, paused, "paused", actor=known[word])
        assert halted_by(database)[paused] == word
        assert refusal(hub, "workflow_update_status", known["worker"], id=paused, status="in_progress") == "FORBIDDEN"
    assert refusal(hub, "workflow_update_status", PERSON, id=paused, status="paused") == "INVALID_TRANSITION"
    halt_as_judge(hub, paused)
    assert halted_by(database)[paused] == "judge"
    assert refusal(hub, "workflow_update_status", PERSON, id=paused, status="paused") == "INVALID_TRANSITION"


def test_those_that_the_judge_halted_can_be_listed(hub: Hub) -> None:
    halted, paused = job(hub).id, job(hub).id
    halt_as_judge(hub, halted)
    move(hub, paused, "in_progress", "paused", actor=PERSON)
    by = {word: ask(hub, "workflow_list", halted_by=word) for word in ("judge", "operator", "worker")}
    assert {word: [one["id"] for one in found["workflows"]] for word, found in by.items()} == {
        "judge": [halted],
        "operator": [paused],
        "worker": [],
    }
    assert [found["total"] for found in by.values()] == [1, 1, 0]
    (listed,) = by["judge"]["workflows"]
    assert (listed["halted_by"], listed["status_reason"]) == ("judge", "CRITICAL_HALT: a report")


def test_a_claim_that_lapsed_is_not_taken_up_again_during_a_halt(hub: Hub, clock: Clock, database: str) -> None:
    work, ada = job(hub), register_with_token(hub, "ada")
    epoch = ada.call("task_claim", task_id=work.task)["claim_epoch"]
    ada.call("task_update_status", id=work.task, status="in_progress")
    ada.call("agent_heartbeat")
    pass_time(clock, HEARTBEAT * (MISSED + 2), hub)
    assert task_of(hub, work.task, "status", "claimed_by") == ("pending", None)
    halt_as_judge(hub, work.id)
    for given in ({"status": "completed", "outcome": "done"}, {"status": "in_progress"}):
        with pytest.raises(InvalidState, match="by the judge"):
            ada.call("task_update_status", id=work.task, **given)
    ada.call("checkpoint_add", task_id=work.task, type="progress", summary="I had just finished")
    assert task_of(hub, work.task, "status", "claimed_by") == ("pending", None)
    move(hub, work.id, "in_progress", actor=PERSON)
    ada.call("task_update_status", id=work.task, status="completed", outcome="done", claim_epoch=epoch)
    assert task_of(hub, work.task, "status") == "completed"


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
            " auto_create_workspaces, plan, created_at, updated_at)"
            f" VALUES ('{workflow}', 'w', '{status}', {text}, 'prompt', '', 1, 0, '{{}}', 1, 1)",
        )
    rows(
        url,
        "INSERT INTO judge_report (id, kind, subject, workflow_id, verdict, node, directory, input_tokens,"
        " output_tokens, cost_usd, duration_ms, actor, ruling, created_at)"
        f" VALUES ('jr_1', 'review', 'T-1', '{HALTED}', 'CRITICAL_HALT', 'n', '/', 0, 0, 0, 0, 'operator', '{{}}', 1)",
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
    agents = [actor for actor in actors(upgraded).values() if actor != PERSON]
    for agent in agents:
        for word in ("in_progress", "abandoned"):
            code = refusal(upgraded, "workflow_update_status", agent, id=HALTED, status=word)
            assert code == "FORBIDDEN"
    move(upgraded, HALTED, "in_progress", actor=PERSON)
    assert halted_by(old_database)[HALTED] is None
    for workflow in (PAUSED, FORGED):
        move(upgraded, workflow, "in_progress", actor=agents[0])
    move(upgraded, RESUMED, "paused", "in_progress", actor=agents[0])
