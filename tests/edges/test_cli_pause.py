"""`crewhall pause` and `crewhall resume`, with a hub and without one, and what `crewhall status` says."""

import json
from contextlib import nullcontext
from typing import Any

import pytest

from tests.edges.program import Program, Up
from tests.edges.raw_http import http as client
from tests.edges.test_cli import assert_error, body

TASKS = json.dumps({"summary": "s", "approach": "a", "tasks": [{"name": "a", "description": "d", "sequence": 1}]})


def plan(program: Program, *steps: str) -> str:
    """A workflow with a plan, after these steps; its id."""
    made: str = body(program.here("--json", "workflow", "create", "w", "prompt", "do it"))["id"]
    assert program.here("workflow", "set-plan", made, TASKS).code == 0
    for step in steps:
        assert program.here("workflow", "update-status", made, step).code == 0
    return made


def pause_of(program: Program, workflow: str) -> tuple[str, str | None, str | None]:
    found = body(program.here("--json", "workflow", "get", workflow))
    return found["status"], found["halted_by"], found["status_reason"]


@pytest.fixture(params=["with a hub", "without a hub"])
def hall(request: pytest.FixtureRequest, program: Program) -> Any:
    with program.up() if request.param == "with a hub" else nullcontext() as up:
        yield up


def test_the_hall_is_paused_and_resumed(program: Program, hall: Up | None) -> None:
    ready, running = plan(program), plan(program, "in_progress")
    assert body(program.here("--json", "status"))["paused"] is None
    paused = body(program.here("--json", "pause", "--all", "a key has leaked"))
    assert (paused["workflows_paused"], set(paused["workflow_ids"])) == (2, {ready, running})
    assert pause_of(program, ready) == ("paused", "operator", "the hall is paused: a key has leaked")
    told = program.here("status").out
    assert "paused" in told and "a key has leaked" in told
    facts = body(program.here("--json", "status"))["paused"]
    assert (facts["reason"], facts["by"], facts["since"]) == ("a key has leaked", "operator", paused["paused_since"])
    if hall is not None:
        token = (program.home / "operator.token").read_text().strip()
        answer = client.get(f"{hall.url}/api/v1/hub", headers={"Authorization": f"Bearer {token}"})
        assert answer.json()["paused"] == facts
    assert body(program.here("--json", "resume", "--all"))["workflows_resumed"] == 2
    assert [pause_of(program, one)[0] for one in (ready, running)] == ["ready", "in_progress"]
    assert body(program.here("--json", "status"))["paused"] is None
    assert body(program.here("--json", "pause", "--all"))["reason"] is None


def test_one_workflow_is_paused_as_the_operator_and_resumed(program: Program, hall: Up | None) -> None:
    running, other = plan(program, "in_progress"), plan(program, "in_progress")
    assert program.here("pause", running, "look here").code == 0
    assert pause_of(program, running) == ("paused", "operator", "look here")
    assert pause_of(program, other)[0] == "in_progress"
    assert program.here("resume", running).code == 0
    assert pause_of(program, running) == ("in_progress", None, None)
    assert_error(program.here("pause", "wf_nothing"), 3, "there is no workflow 'wf_nothing'")


def test_an_agents_token_pauses_no_hall(program: Program, hall: Up | None) -> None:
    token = body(program.here("--json", "agent", "token", "--name", "ada"))["token"]
    for words in (("pause", "--all"), ("resume", "--all")):
        assert program.here(*words, CREWHALL_TOKEN=token).code == 4
    assert body(program.here("--json", "status"))["paused"] is None


@pytest.mark.parametrize(
    "words",
    [
        ("pause",),
        ("resume",),
        ("pause", "--everything"),
        ("pause", "--all", "two", "words"),
        ("pause", "wf_a", "two", "words"),
        ("resume", "--all", "a reason"),
        ("resume", "wf_a", "a reason"),
    ],
)
def test_other_words_are_refused(program: Program, words: tuple[str, ...]) -> None:
    done = program.here(*words)
    assert done.code == 2 and "crewhall" in done.err


def test_their_help_is_one_line(program: Program) -> None:
    for word in ("pause", "resume"):
        done = program.here(word, "--help")
        assert done.code == 0 and done.out.startswith(f"{word} WORKFLOW|--all")
