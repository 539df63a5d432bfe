"""An agent whose memory was cleared goes on: real Claude Code, the resume prompt, and a hall that remembers."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crewhall.outside import tokens
from tests.conftest import BOTH
from tests.edges.claude import asking, claude_code, use
from tests.edges.program import Program, Up
from tests.families.work.workflows import Ask, finish, move, plan_workflow, register, task
from tests.outside.repos import make_repository
from tests.postgres import Cluster
from tools.stubs.anthropic import Play

NUMBERS = itertools.count(1)
RESUME = "/mcp__crewhall__resume_task"
STEPS = ["a switch in the header", "keep its state", "follow the system's setting"]
LONG = "The header was read, and each of its parts was tried in both schemes, by hand and by the tests. " * 60
TASKS = (
    task("colours"),
    task("survey"),
    task("switch", 2, depends_on=["colours", "survey"]),
    task("pages", 2, depends_on=["colours"]),
    task("shots", 3, depends_on=["colours", "switch"]),
)


@dataclass
class Story:
    """A hall in the middle of its work: ada holds the task switch, bob two others, one of another workflow."""

    program: Program
    ask: Ask
    tasks: dict[str, str]
    repository: str
    ada: str
    name: str
    token: str
    bob: str


@pytest.fixture(scope="module", params=BOTH)
def hall(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Up]]:
    """A hall and its hub, a process of its own; the story of each test happens there."""
    home = tmp_path_factory.mktemp("claude") / "hall"
    if request.param == "sqlite":
        with (program := Program(home, {"MCP_DATABASE_PATH": str(home / "hall.db")})).up() as up:
            yield program, up
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    url = cluster.create()
    with (program := Program(home, {"CREWHALL_DATABASE_URL": url})).up() as up:
        yield program, up
    cluster.drop(url)


@pytest.fixture
def story(hall: tuple[Program, Up], tmp_path: Path) -> Story:
    program, up = hall
    ask = asking(up)
    name = f"ada {next(NUMBERS)}"
    made = ask("agent_token_create", name=name)
    repository = make_repository(tmp_path / "shop").root
    places = {"repository_path": repository, "auto_create_workspaces": True, "max_parallel_tasks": 2}
    _, tasks = plan_workflow(ask, *TASKS, name="Dark mode", **places)
    finish(ask, tasks["colours"])
    ask("task_update_status", id=tasks["survey"], status="skipped", outcome="nobody wants it")
    bob = register(ask, "bob")
    _, others = plan_workflow(ask, task("notes"), name="Release notes")
    for one in (tasks["pages"], others["notes"]):
        ask("task_claim", task_id=one, agent_id=bob)
    _work(asking(up, made["token"]), tasks["switch"])
    return Story(program, ask, tasks | others, repository, made["agent_id"], name, made["token"], bob)


def _work(ada: Ask, switch: str) -> None:
    """What ada did at the task before her memory was cleared, more of it than a context holds."""
    assert ada("task_claim", task_id=switch)["success"]
    ada("task_set_plan", id=switch, plan={"approach": "from the outside in", "steps": STEPS})
    move(ada, switch, "in_progress")
    for number in range(1, 9):
        ada("checkpoint_add", task_id=switch, type="progress", summary=f"part {number} done", detail={"told": LONG})


def resumes(asked: str) -> Play:
    """A model that does what the prompt says: load, read, make sure of the claim, note a recovery."""
    assert "task_load_context()" in asked
    context = yield use("task_load_context")
    held = context["current_task"]
    claim = yield use("task_claim", task_id=held["id"], agent_id=held["claimed_by"])
    noted = {"type": "recovery", "summary": f"went on after: {held['checkpoints'][-1]['summary']}"}
    yield use("checkpoint_add", task_id=held["id"], claim_epoch=claim["claim_epoch"], **noted)
    yield f"going on with {held['name']}"


def test_a_cleared_agent_with_a_token_has_its_task_before_it(story: Story, tmp_path: Path) -> None:
    """Given only the resume prompt, a new Claude Code is shown the right task, and its note in the hall is ada's."""
    with claude_code(tmp_path / "home", story.program, resumes, story.token) as claude:
        assert claude.ask(RESUME) == "going on with switch"
        asked, (context, claim, _) = claude.told()
    assert "your memory of it is gone" in asked
    _is_the_switch(context, story)
    assert claim["success"] and claim["claim_epoch"] == context["current_task"]["claim_epoch"]
    assert 4_000 < tokens.count(context_text(claude.requests)) <= 8_000
    notes = story.ask("checkpoint_list", task_id=story.tasks["switch"], limit=20)["checkpoints"]
    recovery = [(one["agent_id"], one["summary"]) for one in notes if one["type"] == "recovery"]
    assert recovery == [(story.ada, "went on after: part 8 done")]


def _is_the_switch(context: dict[str, Any], story: Story) -> None:
    held = context["current_task"]
    assert (held["id"], held["name"], held["claimed_by"]) == (story.tasks["switch"], "switch", story.ada)
    assert held["status"] == "in_progress" and held["plan"]["steps"] == STEPS
    assert held["checkpoint_count"] == 8 and held["checkpoints"][-1]["summary"] == "part 8 done"
    assert held["workspace"]["path"].startswith(f"{story.repository}-worktrees/switch-")
    assert context["workflow"]["name"] == "Dark mode"
    outcomes = {one["task_name"]: (one["status"], one["outcome"]) for one in context["dependency_outcomes"]}
    assert outcomes == {"colours": ("completed", "done"), "survey": ("skipped", "nobody wants it")}
    assert {one["name"] for one in context["prior_tasks"]} == {"colours", "survey"}
    assert [(one["name"], one["claimed_by"]) for one in context["sibling_tasks"]] == [("pages", story.bob)]


def context_text(requests: list[dict[str, Any]]) -> str:
    """The first tool's result as the model was sent it, to the letter."""
    blocks = [
        block for message in requests[-1]["messages"] if message["role"] == "user" for block in message["content"]
    ]
    content = next(block["content"] for block in blocks if block["type"] == "tool_result")
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def joins_and_resumes(asked: str) -> Play:
    """A model that takes the task shots as eve; after its memory was cleared it goes on."""
    if "your memory of it is gone" in asked:
        yield from resumes(asked)
        return
    eve = (yield use("agent_register", name="eve", runtime="claude_code"))["id"]
    found = (yield use("task_get_available", agent_id=eve))["tasks"]
    shots = next(one["id"] for one in found if one["name"] == "shots")
    claim = yield use("task_claim", task_id=shots, agent_id=eve)
    epoch = {"claim_epoch": claim["claim_epoch"]}
    yield use("task_set_plan", id=shots, plan={"approach": "one by one", "steps": ["light", "dark"]}, **epoch)
    yield use("task_update_status", id=shots, status="in_progress", **epoch)
    yield use("checkpoint_add", task_id=shots, type="progress", summary="light is shot", **epoch)
    yield "begun"


def test_a_cleared_agent_without_a_token_is_known_by_its_bridge(story: Story, tmp_path: Path) -> None:
    """/clear ends a memory and not the bridge: the hall still knows who speaks, though others are there."""
    move(story.ask, story.tasks["switch"], "completed")
    with claude_code(tmp_path / "home", story.program, joins_and_resumes) as claude, claude.conversation() as talk:
        assert talk.say("Join the hall as eve and take the shots.") == "begun"
        talk.say("/clear")
        assert talk.say(RESUME) == "going on with shots"
        _, (context, _, _) = claude.told()
    assert "Join the hall as eve" not in str(claude.requests[-1]["messages"]), "the memory is gone"
    held = context["current_task"]
    assert held["id"] == story.tasks["shots"] and held["plan"]["steps"] == ["light", "dark"]
    assert held["checkpoints"][-1]["summary"] == "light is shot"
    notes = story.ask("checkpoint_list", task_id=story.tasks["shots"])["checkpoints"]
    assert (notes[-1]["type"], notes[-1]["agent_id"]) == ("recovery", held["claimed_by"])


def asks_who_is_there(name: str, asked: str) -> Play:
    """A model whom the hall does not know: it follows the prompt to agent_list, and finds itself by its name."""
    refusal = yield use("task_load_context")
    assert refusal["code"] == "INVALID_INPUT" and "agent_list" in refusal["hint"]
    assert "agent_list" in asked
    agents = (yield use("agent_list"))["agents"]
    me = next(one["id"] for one in agents if one["name"] == name)
    context = yield use("task_load_context", agent_id=me)
    yield f"going on with {context['current_task']['name']}"


def test_a_stranger_is_led_to_its_task(story: Story, tmp_path: Path) -> None:
    """A new process without a token cannot be known; the refusal says how to find out who it is."""
    script = partial(asks_who_is_there, story.name)
    with claude_code(tmp_path / "home", story.program, script) as claude:
        assert claude.ask(RESUME) == "going on with switch"
        _, (_, _, context) = claude.told()
    _is_the_switch(context, story)


def takes_over(asked: str) -> Play:
    """A model that is given a task by its id, and may not take it yet."""
    named = asked.partition('task_load_context(task_id="')[2].partition('"')[0]
    context = yield use("task_load_context", task_id=named)
    first = context["dependency_outcomes"][0]
    refusal = yield use("task_claim", task_id=named)
    yield f"{context['current_task']['status']}: {first['task_name']} is {first['status']}. {refusal['code']}"


def test_a_task_given_by_its_id_shows_first_what_it_waits_for(story: Story, tmp_path: Path) -> None:
    with claude_code(tmp_path / "home", story.program, takes_over, story.token) as claude:
        said = claude.ask(f"{RESUME} {story.tasks['shots']}")
        _, (context, refusal) = claude.told()
    assert said == "blocked: switch is in_progress. TASK_BLOCKED", refusal
    assert [one["task_name"] for one in context["dependency_outcomes"]] == ["switch", "colours"]
    assert context["current_task"]["id"] == story.tasks["shots"]
    assert "switch" in refusal["message"] and refusal["hint"]
