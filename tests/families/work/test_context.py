"""What an agent gets back after its memory was cleared: through the door, on both databases."""

import json
from typing import Any

import pytest

from crewhall.app import Hub, Origin
from crewhall.errors import Failure, InvalidInput
from crewhall.families.work.context.asked import PAGE, SIBLINGS
from crewhall.families.work.context.compose import load_context
from crewhall.families.work.context.model import Include
from crewhall.identity import OPERATOR
from crewhall.store.sql import SQLITE
from crewhall.store.transaction import Row, Tx
from tests.conftest import Agent, Clock
from tests.families.work.claims import claim, register_agent, register_with_token
from tests.families.work.workflows import (
    HOW,
    Ask,
    code_of,
    finish,
    list_tasks,
    move,
    new_workflow,
    plan_workflow,
    sql,
    task,
)
from tests.outside.samples import prose, real_cost, real_count

HUGE = "A step was taken and it was noted down at once. " * 2_000
NASTY = ('漢"\\\n\x01😀\u0301𒀀' * 20_000)[:99_000]
RARE = "𒀀" * 200  # a name of the letters that cost most
FLAGS = {
    "workflow_plan": True,
    "workflow_summary": True,
    "prior_task_outcomes": True,
    "prior_task_full": False,
    "sibling_status": True,
    "dependency_outcomes": True,
    "all_checkpoints": False,
    "recent_checkpoints": 5,
}
LISTS = ("prior_tasks", "sibling_tasks", "dependency_outcomes")


def load(ask: Ask, task_id: str, /, **more: Any) -> dict[str, Any]:
    """The context of a task; whatever is asked for, it keeps to its budget and says how much it took."""
    given = {name: more.pop(name) for name in list(more) if name in FLAGS}
    body = ask("task_load_context", task_id=task_id, **({"include": given} if given else {}), **more)
    most = min(more.get("max_tokens", 8000), 20_000)
    tokens = real_cost(body)
    assert tokens <= most and tokens - 1 <= body["token_estimate"] <= tokens + max(1, tokens // 100)
    return body


def note(ask: Ask, task_id: str, *summaries: str, **more: Any) -> None:
    for summary in summaries:
        ask("checkpoint_add", task_id=task_id, type="progress", summary=summary, **more)


@pytest.fixture
def crew(operator: Ask, clock: Clock) -> dict[str, str]:
    return make_crew(operator, clock)


@pytest.fixture(scope="module")
def common_crew(common_hub: Hub, common: Ask) -> dict[str, str]:
    assert isinstance(common_hub.clock, Clock)
    return make_crew(common, common_hub.clock)


def make_crew(operator: Ask, clock: Clock) -> dict[str, str]:
    """Tasks by name: `me` depends on two that are finished and one that failed, `beside` runs at its side."""
    _, ids = plan_workflow(
        operator,
        task("parser"),
        task("lexer"),
        task("broken"),
        task(
            "me", 2, depends_on=["parser", "lexer", "broken"], parallel_group="g", files_likely_affected=["src/me.py"]
        ),
        task("beside", 2, parallel_group="g", depends_on=["parser"]),
        task("grouped", 3, parallel_group="g", depends_on=["lexer"]),
        task("later", 4),
        name="the compiler",
        source_content="Write a compiler. It must be fast.",
        repository_path="/srv/compiler",
        max_parallel_tasks=3,
    )
    for name in ("parser", "lexer"):
        move(operator, ids[name], "in_progress")
        clock.advance(1)
        told = {"outcome": f"{name} done", "outcome_detail": {"of": name}}
        operator("task_update_status", id=ids[name], status="completed", **told)
    move(operator, ids["broken"], "in_progress", "failed")
    operator("task_set_plan", id=ids["me"], plan=HOW)
    note(operator, ids["me"], *(f"note {number}" for number in range(1, 9)), detail={"k": 1}, files_changed=["a.py"])
    note(operator, ids["beside"], "at the side")
    return ids


def test_the_context_has_what_is_needed_to_go_on(common: Ask, common_crew: dict[str, str]) -> None:
    body = load(common, common_crew["me"])
    workflow, current = body["workflow"], body["current_task"]
    assert workflow | {"id": ""} == {
        "id": "",
        "name": "the compiler",
        "source_type": "prompt",
        "source_summary": "Write a compiler. It must be fast.",
        "plan_summary": "in short\nstep by step",
        "status": common("workflow_get", id=workflow["id"])["status"],
        "max_parallel_tasks": 3,
        "task_count": 7,
        "finished_count": 2,
        "repository_path": "/srv/compiler",
        "left_out": None,
    }
    stored = common("task_get", id=common_crew["me"])
    same = ("id", "name", "description", "status", "plan", "context", "outcome", "error", "files_likely_affected")
    assert {name: current[name] for name in same} == {name: stored[name] for name in same}
    assert current["plan"]["approach"] == HOW["approach"] and current["checkpoint_count"] == 8
    noted = common("checkpoint_list", task_id=common_crew["me"])["checkpoints"]
    assert current["checkpoints"] == noted[-5:], "the newest, oldest first, as checkpoint_list has them"
    assert [(one["name"], one["outcome"]) for one in body["prior_tasks"]] == [
        ("lexer", "lexer done"),
        ("parser", "parser done"),
    ]
    assert [one["name"] for one in body["sibling_tasks"]] == ["beside", "grouped"]
    assert body["sibling_tasks"][0]["brief_summary"] == "at the side"
    told = {one["task_name"]: (one["status"], one["outcome"]) for one in body["dependency_outcomes"]}
    assert told == {
        "broken": ("failed", "broken"),
        "parser": ("completed", "parser done"),
        "lexer": ("completed", "lexer done"),
    }
    assert next(iter(told)) == "broken", "unfinished ones first"
    assert body["left_out"] == {"checkpoints": 3} and body["unread_messages"] == 0


def test_the_same_is_said_twice(operator: Ask, crew: dict[str, str], clock: Clock) -> None:
    first = load(operator, crew["me"], max_tokens=900)
    clock.advance(60)
    assert json.dumps(load(operator, crew["me"], max_tokens=900)) == json.dumps(first)


# What is wanted


def test_all_flags_left_out_are_the_seeds_defaults(common: Ask, common_crew: dict[str, str]) -> None:
    assert (
        load(common, common_crew["me"], **FLAGS)
        == load(common, common_crew["me"])
        == load(common, common_crew["me"], max_tokens=8000)
    )
    assert common("task_load_context", task_id=common_crew["me"], include={}) == load(common, common_crew["me"])


@pytest.mark.parametrize(
    ("flag", "place", "off"),
    [
        ("workflow_plan", ("workflow", "plan_summary"), None),
        ("workflow_summary", ("workflow", "source_summary"), None),
        ("prior_task_outcomes", ("prior_tasks",), []),
        ("sibling_status", ("sibling_tasks",), None),
        ("dependency_outcomes", ("dependency_outcomes",), None),
    ],
)
def test_what_is_not_wanted_is_not_there_and_all_else_is(
    common: Ask, common_crew: dict[str, str], flag: str, place: tuple[str, ...], off: Any
) -> None:
    whole, less = load(common, common_crew["me"], **{flag: True}), load(common, common_crew["me"], **{flag: False})
    changed: Any = whole
    for name in place[:-1]:
        changed = changed[name]
    assert changed[place[-1]] not in (None, [])
    changed[place[-1]] = off
    assert less == whole | {"token_estimate": less["token_estimate"]}, "and nothing counts as left out by that"


def test_prior_tasks_in_full_have_their_descriptions_and_details(common: Ask, common_crew: dict[str, str]) -> None:
    short, full = (load(common, common_crew["me"], prior_task_full=flag)["prior_tasks"] for flag in (False, True))
    assert set(full[0]) - set(short[0]) == {"description", "outcome_detail"}
    assert (full[0]["description"], full[0]["outcome_detail"]) == ("do lexer", {"of": "lexer"})


@pytest.mark.parametrize(
    ("include", "shown"),
    [
        ({"recent_checkpoints": 0}, 0),
        ({"recent_checkpoints": 1}, 1),
        ({"recent_checkpoints": 5}, 5),
        ({"recent_checkpoints": 50}, 8),
        ({"all_checkpoints": True}, 8),
        ({"all_checkpoints": True, "recent_checkpoints": 0}, 8),
    ],
)
def test_as_many_checkpoints_as_are_wanted(
    common: Ask, common_crew: dict[str, str], include: dict[str, Any], shown: int
) -> None:
    body = load(common, common_crew["me"], **include)
    sequences = [one["sequence"] for one in body["current_task"]["checkpoints"]]
    assert sequences == list(range(9 - shown, 9))
    assert (body["left_out"] or {}).get("checkpoints", 0) == 8 - shown


def test_more_checkpoints_than_one_read_brings_are_all_there(operator: Ask, crew: dict[str, str]) -> None:
    note(operator, crew["later"], *(str(number) for number in range(2 * PAGE + 1)))
    body = load(operator, crew["later"], all_checkpoints=True, max_tokens=20_000)
    assert [one["summary"] for one in body["current_task"]["checkpoints"]] == [str(n) for n in range(2 * PAGE + 1)]
    assert body["left_out"] is None


@pytest.mark.parametrize(
    "include",
    [{"recent_checkpoints": -1}, {"recent_checkpoints": 10_001}, {"everything": True}, {"workflow_plan": "no"}],
)
def test_a_wish_that_is_none_is_refused(common: Ask, common_crew: dict[str, str], include: dict[str, Any]) -> None:
    assert code_of(common, "task_load_context", task_id=common_crew["me"], include=include) == "INVALID_INPUT"


def test_unread_messages_of_who_holds_the_task_are_counted(hub: Hub, operator: Ask, crew: dict[str, str]) -> None:
    ada, bob = register_agent(hub, "ada"), register_agent(hub, "bob")
    claim(hub, crew["beside"], ada)
    for _ in range(2):
        operator("message_send", sender_id=bob, recipient_id=ada, message_type="query", body="?")
    body = load(operator, crew["beside"])
    assert body["unread_messages"] == 2 and body["current_task"]["claimed_by"] == ada


# The budget


@pytest.mark.parametrize("most", [0, 499, 1_000_001])
def test_a_budget_that_nothing_fits_in_is_refused(common: Ask, common_crew: dict[str, str], most: int) -> None:
    assert code_of(common, "task_load_context", task_id=common_crew["me"], max_tokens=most) == "INVALID_INPUT"


def make_full_task(ask: Ask, text: str, name: str = "full", beside: int = 12, noted: int = 6) -> str:
    """A task with more of this text in every place than any budget holds."""
    workflow = new_workflow(ask, name=name, source_content=text * 5, repository_path="/" + "p/" * 900 + "end")
    mine = {
        "description": text,
        "files_likely_affected": [f"{n}/" + "src/" * 225 for n in range(300)],
        "parallel_group": "g",
    }
    others = [task(f"{n}{name}"[:200], 1, parallel_group="g") | {"description": text} for n in range(beside)]
    wanted = [one["name"] for one in others[: beside // 2]]
    tasks = [*others, task(name, 1, depends_on=wanted) | mine]
    ask("workflow_set_plan", id=workflow, plan={"summary": text[:9_000], "approach": text[:6_000], "tasks": tasks})
    ids: list[str] = [one["id"] for one in list_tasks(ask, workflow)]
    for task_id in ids[: beside // 2]:
        move(ask, task_id, "in_progress")
        told = {"outcome": text, "outcome_detail": {"k": text[:9_000]}}
        ask("task_update_status", id=task_id, status="completed", **told)
    ask("task_set_plan", id=ids[-1], plan={"approach": text[:9_000], "steps": [text[:900]] * 3})
    note(
        ask,
        ids[-1],
        *[text] * noted,
        detail={"k": text[:5_000]},
        files_changed=[f"{n}/" + "lib/" * 225 for n in range(90)],
    )
    return ids[-1]


@pytest.mark.parametrize("text", [HUGE, NASTY], ids=["prose", "nasty"])
def test_whatever_is_stored_the_least_budget_holds_the_frame_and_the_newest_checkpoint(common: Ask, text: str) -> None:
    mine = make_full_task(common, text, RARE)
    for most in (500, 700, 2_000):
        body = load(common, mine, max_tokens=most)
        (kept,) = body["current_task"]["checkpoints"][-1:]
        assert kept["sequence"] == body["current_task"]["checkpoint_count"]
        assert real_cost(body) > most * 0.85, "and the room is used"


def test_a_budget_above_the_most_counts_as_the_most(common: Ask) -> None:
    mine = make_full_task(common, HUGE)
    at_most, above = (load(common, mine, max_tokens=most) for most in (20_000, 1_000_000))
    assert at_most == above and above["token_estimate"] > 18_000


def test_with_everything_long_each_section_gets_its_share(common: Ask) -> None:
    mine = make_full_task(common, HUGE, beside=60)
    note(common, mine, "the newest is short")
    body = load(common, mine, max_tokens=12_000, all_checkpoints=True)
    parts = {"workflow": body["workflow"], "task": body["current_task"], "prior": body["prior_tasks"]}
    parts["beside"] = [body["sibling_tasks"], body["dependency_outcomes"]]
    costs = {name: real_cost(part) for name, part in parts.items()}
    found = {name: 100 * tokens / sum(costs.values()) for name, tokens in costs.items()}
    for name, wanted in {"workflow": 15, "task": 55, "prior": 20, "beside": 10}.items():
        assert abs(found[name] - wanted) < 4, found


def test_a_newest_checkpoint_too_long_to_fit_leaves_the_other_sections_their_shares(common: Ask) -> None:
    body = load(common, make_full_task(common, HUGE))
    (newest,) = body["current_task"]["checkpoints"]
    assert newest["left_out"]["summary"] and 0.4 * 8_000 < real_cost(newest) < 0.6 * 8_000
    assert len(body["current_task"]["description"]) > 500 and len(body["workflow"]["source_summary"]) > 500
    assert len(body["prior_tasks"]) > 3


def test_what_a_section_does_not_need_the_others_get(common: Ask) -> None:
    mine = make_full_task(common, HUGE, beside=0, noted=1)
    body = load(common, mine, max_tokens=4_000, recent_checkpoints=0)
    assert body["token_estimate"] > 3_700
    assert real_cost(body["workflow"]) > 600, "more than 15 of 100 beside the frame"


@pytest.mark.parametrize("text", [prose("english") * 5, prose("chinese") * 8], ids=["english", "chinese"])
def test_texts_end_with_a_sentence_and_tell_how_much_is_missing(common: Ask, text: str) -> None:
    mine = make_full_task(common, text, noted=2)
    body = load(common, mine, max_tokens=4_000, recent_checkpoints=0)
    workflow = body["workflow"]
    for shown, stored, left_out in (
        (workflow["source_summary"], text * 5, workflow["left_out"]["source_content"]),
        (body["current_task"]["description"], text, body["current_task"]["left_out"]["description"]),
    ):
        assert stored.startswith(shown) and len(shown) + left_out == len(stored)
        assert shown.rstrip('”"')[-1] in ".!?。！？", shown[-9:]  # noqa: RUF001
    assert text[len(body["current_task"]["description"]) :].startswith(
        common("text_read", id=mine, field="description", offset=len(body["current_task"]["description"]))["text"][:50]
    ), "text_read goes on there"


def test_paths_are_whole_or_left_out(common: Ask) -> None:
    mine = make_full_task(common, HUGE, noted=1)
    workflow = load(common, mine, max_tokens=500)["workflow"]
    assert workflow["repository_path"] is None and workflow["left_out"]["repository_path"] == 1_804
    body = load(common, mine, max_tokens=20_000)
    assert load(common, mine, max_tokens=20_000, recent_checkpoints=0)["workflow"]["repository_path"].endswith("/end")
    current = body["current_task"]
    paths, (kept,) = current["files_likely_affected"], current["checkpoints"]
    assert paths and all(len(path) > 900 for path in paths)
    assert len(paths) + current["left_out"]["files_likely_affected"] == 300
    assert len(kept["files_changed"]) + kept["left_out"]["files_changed"] == 90


def test_a_newest_checkpoint_that_fits_is_whole_even_one_of_blanks(operator: Ask, crew: dict[str, str]) -> None:
    blanks = "table" + " " * 90_000
    note(operator, crew["me"], blanks)
    newest = load(operator, crew["me"], max_tokens=2_000)["current_task"]["checkpoints"][-1]
    assert real_count(blanks) < 800 and newest["summary"] == blanks and newest["left_out"] is None


def test_a_failed_dependency_with_a_long_error_names_what_to_read_on(common: Ask) -> None:
    _, ids = plan_workflow(common, task("first"), task("me", 2, depends_on=["first"]))
    move(common, ids["first"], "in_progress")
    common("task_update_status", id=ids["first"], status="failed", error=HUGE)
    (told,) = load(common, ids["me"])["dependency_outcomes"]
    assert len(told["outcome"]) + told["left_out"]["error"] == len(HUGE)
    rest = common("text_read", id=told["task_id"], field="error", offset=len(told["outcome"]))
    assert rest["length"] == len(HUGE)


def test_what_is_shown_and_what_is_left_out_are_all_there_is(common: Ask) -> None:
    beside = SIBLINGS + 10
    mine = make_full_task(common, HUGE, beside=beside)
    totals = {"prior_tasks": beside // 2, "sibling_tasks": beside, "dependency_outcomes": beside // 2}
    totals |= {"checkpoints": 6}
    for most in (600, 3_000, 20_000):
        body = load(common, mine, max_tokens=most)
        shown = {name: len(body[name]) for name in LISTS} | {"checkpoints": len(body["current_task"]["checkpoints"])}
        missing = body["left_out"] or {}
        assert {name: shown[name] + missing.get(name, 0) for name in totals} == totals


# Whose task


def test_an_agent_with_a_token_gets_the_task_it_holds(hub: Hub, crew: dict[str, str]) -> None:
    ada = register_with_token(hub, "ada")
    ada.call("task_claim", task_id=crew["beside"])
    assert ada.call("task_load_context")["current_task"]["id"] == crew["beside"]
    assert ada.call("task_load_context", task_id=crew["later"])["current_task"]["id"] == crew["later"]


def test_the_task_of_an_agent_that_is_named(hub: Hub, operator: Ask, crew: dict[str, str]) -> None:
    bob = register_agent(hub)
    claim(hub, crew["beside"], bob)
    claim(hub, crew["grouped"], bob)
    current = operator("agent_get", id=bob)["current_task_id"]
    assert operator("task_load_context", agent_id=bob)["current_task"]["id"] == current
    eve = Agent(hub, "eve")
    assert eve.call("task_load_context", agent_id=bob)["current_task"]["id"] == current, "reading is no writing"


def test_a_client_behind_a_bridge_is_its_only_agent(hub: Hub, crew: dict[str, str]) -> None:
    here = Origin(bridge="br_1")
    bob = register_agent(hub, "bob", here)
    claim(hub, crew["beside"], bob)
    assert hub.call("task_load_context", {}, OPERATOR, origin=here)["current_task"]["id"] == crew["beside"]
    register_agent(hub, "eve", here)
    for origin in (here, Origin(bridge="br_2"), Origin()):
        with pytest.raises(InvalidInput) as refused:
            hub.call("task_load_context", {}, OPERATOR, origin=origin)
        assert "agent_id" in refused.value.message and "agent_list" in str(refused.value.hint)


def test_who_holds_nothing_is_told_where_tasks_are(hub: Hub, operator: Ask, crew: dict[str, str]) -> None:
    bob = register_agent(hub)
    with pytest.raises(Failure) as refused:
        operator("task_load_context", agent_id=bob)
    assert refused.value.code == "INVALID_STATE" and "task_get_available" in str(refused.value.hint)
    claim(hub, crew["beside"], bob)
    operator("task_release", task_id=crew["beside"], agent_id=bob)
    assert code_of(operator, "task_load_context", agent_id=bob) == "INVALID_STATE"


@pytest.mark.parametrize("given", [{"task_id": "tk_nothing"}, {"agent_id": "ag_nobody"}])
def test_what_is_not_there_is_not_found(common: Ask, given: dict[str, str]) -> None:
    assert code_of(common, "task_load_context", **given) == "NOT_FOUND"


# How much is read


def test_no_query_of_a_context_looks_through_a_table(hub: Hub) -> None:
    """On SQLite, which says how it goes: by an index each time, whatever the hall holds."""
    if hub.store.dialect is not SQLITE:
        pytest.skip("PostgreSQL plans by its statistics")
    given = {"workflow_id": "w", "id": "t", "task_id": "t", "sequence": 1, "parallel_group": "g", "before": 2**53}
    given |= {"before_id": "~", "letters": 10, "limit": 10}
    names = [name for name in hub.store.texts if name.startswith("context_")] + ["tasks_running_count"]
    assert len(names) >= 8
    for name in names:
        steps = sql(hub, "EXPLAIN QUERY PLAN " + hub.store.texts[name], **given)
        looked = [step["detail"] for step in steps]
        few = ("SCAN CONSTANT", "SCAN running", "SCAN abreast", "SCAN grouped")  # what a LIMIT has cut already
        assert not [one for one in looked if one.startswith("SCAN") and not one.startswith(few)], (name, looked)
    ordered = sql(hub, "EXPLAIN QUERY PLAN " + hub.store.texts["context_prior"], **given)
    assert not [step for step in ordered if "TEMP B-TREE" in step["detail"]], "the latest are read in their order"


class Counted(Tx):
    """A transaction that counts the rows it hands over."""

    rows = 0

    def all(self, name: str, /, **params: Any) -> list[Row]:
        found = super().all(name, **params)
        self.rows += len(found)
        return found


def test_no_more_is_read_than_could_be_shown(common_hub: Hub, common: Ask) -> None:
    read = {}
    for size in (100, 200):  # the smaller one has more than a page of everything, too
        _, ids = plan_workflow(common, *(task(f"t{number}") for number in range(size)), task("me", 1))
        for name in list(ids)[: size // 4]:
            finish(common, ids[name])
        note(common, ids["me"], *["noted"] * (size // 2))
        with common_hub.store.read() as tx:
            counted = Counted(tx._statements)
            body = load_context(counted, ids["me"], Include(all_checkpoints=True), 1_000, common_hub.clock())
        assert body.left_out and body.left_out["checkpoints"] == size // 2 - len(body.current_task.checkpoints)
        read[size] = counted.rows
    assert PAGE < 100 // 4 and read[200] == read[100] <= 4 * PAGE + SIBLINGS


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_more_room_never_loses_the_newest_note(operator: Ask) -> None:
    """From the least budget in which the note fits with nothing beside it, it is whole in every larger one."""
    _, found = plan_workflow(operator, task("prices", description="Prices in cents. " * 4), task("cart"))
    mine = found["prices"]
    move(operator, mine, "in_progress")
    operator("task_set_plan", id=mine, plan={"approach": "Simply", "steps": ["write it", "try it"]})
    operator("checkpoint_add", task_id=mine, type="progress", summary="wrote prices.py", files_changed=["prices.py"])
    shown = [load(operator, mine, max_tokens=most)["current_task"]["checkpoints"][-1] for most in range(500, 700, 5)]
    assert {(note["summary"], note["left_out"]) for note in shown} == {("wrote prices.py", None)}
