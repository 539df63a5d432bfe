"""Whatever a hall holds, no list answers in more than 20 kB, each has a total, and its cursor reaches every item."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import InvalidInput
from crewhall.families.all import registry
from crewhall.families.work.message import inbox
from crewhall.identity import OPERATOR, new_id
from tests.conftest import Clock, settings_for
from tests.families.work.workflows import HOW, PLAN, Ask, finish, move, new_workflow, plan_workflow, register, task
from tests.sizes import size

pytestmark = pytest.mark.slow

LIST_BYTES = 20_000
WHOLE_BYTES = 60_000
MANY = size(1_000, 10_000)
NASTY = "\x01"  # six bytes of JSON in one character
HUGE = ('漢字"\\\n\x01😀' * 20_000)[:99_000]
LONG_PATH = "src/" + "p" * 4_000
FAT = {"k": "x" * 15_900}
THIN = {"n": [1] * 7_900}  # each comma gets a space on its way out


def bytes_of(body: dict[str, Any]) -> int:
    return len(json.dumps(body, ensure_ascii=False).encode())


def big_plan(count: int, edges: int) -> list[dict[str, Any]]:
    """Tasks of ten sequences; all but the first tenth depend on some of the sequence before."""
    chance = random.Random(7)
    step = count // 10
    tasks = []
    for number in range(count):
        low = (number // step - 1) * step
        wanted = chance.sample(range(low, low + step), edges * 10 // (9 * count)) if number >= step else []
        tasks.append(
            task(
                f"{number:05}" + "名" * 20,
                number // step,
                depends_on=[f"{other:05}" + "名" * 20 for other in wanted],
                parallel_group=f"g{number % 700}" if number % 3 else None,
                files_likely_affected=[f"src/{number}/{file}.py" for file in range(40)],
            )
            | {"description": "説明する。" * 150}
        )
    return tasks


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A crowded hall, on SQLite: what bounds an answer is the same code on both."""
    home = tmp_path_factory.mktemp("crowded")
    hub = Hub(settings_for(str(home / "hall.db"), home), registry(), clock=Clock())
    crowd(hub)
    yield hub
    hub.close()


def crowd(hub: Hub) -> None:
    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, OPERATOR)

    agents = [
        register(
            ask,
            f"{number}" + NASTY * 190,
            metadata=FAT if number % 2 else THIN,
            capabilities=[NASTY * 90 + str(word) for word in range(50)] if number % 3 == 0 else [],
            workspace_path="/" + "w" * 4_000,
        )
        for number in range(40)
    ]
    big = new_workflow(
        ask, name="big", source_content=HUGE * 9, source_ref=NASTY * 2_000, repository_path="/" + "r" * 1_990
    )
    ask("workflow_set_plan", id=big, plan=PLAN | {"summary": "要約" * 9_000, "tasks": big_plan(MANY, 3 * MANY)})
    nasty = [task(f"{number}" + NASTY * 190, 1, parallel_group=f"{number}" + NASTY * 90) for number in range(60)]
    for one in nasty:
        one |= {"description": HUGE, "files_likely_affected": [f"{n}{LONG_PATH}" for n in range(120)]}
        one |= {"required_capabilities": [], "estimated_complexity": "low"}
    chain = [
        task(
            f"c{number}" + NASTY * 190,
            2,
            depends_on=[nasty[n]["name"] for n in range(60)] + [f"c{number - 1}" + NASTY * 190][: number > 0],
        )
        for number in range(60)
    ]
    plan_workflow(
        ask, *nasty, *chain, task("last", 9), name="nasty", max_parallel_tasks=50, repository_path="/" + "q" * 1_990
    )
    with hub.own_work() as tx:
        told = {"source_type": "custom", "source_ref": None, "source_content": "", "repository_path": "/" + "r" * 2_000}
        more = {"max_parallel_tasks": 1, "auto_create_workspaces": 0, "reviewer": "judge", "now": hub.clock() - 1}
        tx.many(
            "workflow_insert", [{"id": new_id("wf"), "name": NASTY * 200, **told, **more} for _ in range(MANY // 5)]
        )
        note(tx, first_task(ask, big))
        write(tx, agents[0], agents[1], hub.clock())
    for number in range(60):
        ask("repository_register", path=f"/{number}" + "/r" * 990, name=NASTY * 200)


def first_task(ask: Ask, workflow: str) -> str:
    found: str = ask("task_list", workflow_id=workflow, limit=1)["tasks"][0]["id"]
    return found


def note(tx: Any, task_id: str) -> None:
    rows = [
        {
            "id": new_id("cp"),
            "task_id": task_id,
            "sequence": number,
            "type": "progress",
            "summary": f"{number} " + "進捗" * (300 if number % 50 == 0 else 1),
            "detail": json.dumps(FAT if number % 50 == 1 else {"n": number}),
            "files_changed": json.dumps([LONG_PATH] * (60 if number % 50 == 2 else 0)),
            "agent_id": None,
            "now": number,
        }
        for number in range(1, MANY + 1)
    ]
    tx.many("checkpoint_insert", rows)
    tx.run("checkpoint_count", id=task_id, sequence=MANY, now=1)


def write(tx: Any, sender: str, recipient: str, now: int) -> None:
    for number in range(MANY):
        letter = {
            "sender": sender,
            "type": "query",
            "now": now + number,
            "form": "text",
            "body": f"{number} " + "文" * (900 if number % 50 == 0 else 1),
        }
        letter |= {
            "subject": NASTY * (400 if number % 50 == 1 else 0),
            "priority": "normal",
            "workflow": None,
            "task": None,
            "expires_at": None,
        }
        letter |= {"thread": new_id("th"), "turn": 1, "reply_to": None}
        inbox.put(tx, letter, [recipient], inbox.hold(tx, [recipient], each=1))


@pytest.fixture
def ask(hall: Hub) -> Ask:
    def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hall.call(tool, arguments, OPERATOR)

    return call


def workflow_named(ask: Ask, name: str) -> str:
    """The big workflow, or the nasty one; both are newer than all others."""
    found: list[str] = [one["id"] for one in ask("workflow_list", limit=5)["workflows"] if one["name"] == name]
    return found[0]


def agent(ask: Ask, number: int) -> str:
    offset = 0
    while True:
        page = ask("agent_list", offset=offset)
        for one in page["agents"]:
            if one["name"].rstrip(NASTY) == str(number):
                return str(one["id"])
        offset = page["next_offset"]


def walk(
    ask: Ask, tool: str, items: str, key: str, cursor: str = "next_cursor", given: str = "cursor", **more: Any
) -> int:
    """Go through all pages; each within its bytes. How many different items there were, none of them twice."""
    seen: list[Any] = []
    where: dict[str, Any] = {}
    while True:
        page = ask(tool, **more, **where)
        assert bytes_of(page) <= LIST_BYTES, (tool, bytes_of(page))
        assert page[items] and len(seen) <= MANY, (tool, where)
        seen += [one[key] for one in page[items]]
        if page[cursor] is None:
            assert len(set(seen)) == len(seen)
            return len(seen)
        where = {given: page[cursor]}


LISTS: list[tuple[str, dict[str, Any], str, str]] = [
    ("agent_list", {}, "agents", "total"),
    ("repository_list", {}, "repositories", "total"),
    ("workflow_list", {}, "workflows", "total"),
    ("workflow_get", {"id": "big", "include_tasks": True}, "tasks", "task_count"),
    ("workflow_get", {"id": "nasty", "include_tasks": True}, "tasks", "task_count"),
    ("workflow_get", {"id": "big", "include_tasks": True, "include_task_summaries": False}, "tasks", "task_count"),
    ("workflow_get", {"id": "nasty", "include_tasks": True, "include_task_summaries": False}, "tasks", "task_count"),
    ("task_list", {"workflow_id": "big"}, "tasks", "total"),
    ("task_list", {"workflow_id": "nasty"}, "tasks", "total"),
    ("task_get_available", {"agent_id": "1"}, "tasks", "total"),
    ("task_get_available", {"agent_id": "1", "workflow_id": "nasty"}, "tasks", "total"),
    ("workflow_next_tasks", {"workflow_id": "big"}, "tasks", "total"),
    ("workflow_next_tasks", {"workflow_id": "nasty"}, "tasks", "total"),
    ("workflow_progress", {"workflow_id": "big"}, "blocked_tasks", "blocked_total"),
    ("workflow_progress", {"workflow_id": "nasty"}, "blocked_tasks", "blocked_total"),
    ("task_check_dependencies", {"task_id": "last"}, "pending", "pending_total"),
    ("task_check_dependencies", {"task_id": "gated"}, "pending", "pending_total"),
    ("checkpoint_list", {"task_id": "first"}, "checkpoints", "total"),
    ("message_list", {"agent_id": "1"}, "messages", "total"),
    ("event_list", {}, "events", "newest"),
    ("call_list", {}, "calls", ""),
]


@pytest.fixture(scope="module")
def ids_by_name(hall: Hub) -> dict[str, str]:
    """What the names in LISTS mean."""

    def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hall.call(tool, arguments, OPERATOR)

    big, nasty = workflow_named(call, "big"), workflow_named(call, "nasty")
    call("workflow_add_tasks", id=big, tasks=[task("gated", 10**6)])
    gated = [one["id"] for one in call("task_list", workflow_id=big, status=["blocked"], cursor=f"9:{MANY}")["tasks"]]
    last = [one["id"] for one in call("task_list", workflow_id=nasty, cursor="2:1000")["tasks"]]
    first = first_task(call, big)
    return {"big": big, "nasty": nasty, "gated": gated[0], "last": last[0], "first": first, "1": agent(call, 1)}


@pytest.mark.parametrize(("tool", "arguments", "items", "total"), LISTS)
def test_a_list_answers_by_default_within_its_bytes_and_with_a_total(
    ask: Ask, ids_by_name: dict[str, str], tool: str, arguments: dict[str, Any], items: str, total: str
) -> None:
    asked = {name: ids_by_name.get(value, value) for name, value in arguments.items()}
    body = ask(tool, **asked)
    assert body[items] and bytes_of(body) <= LIST_BYTES, bytes_of(body)
    assert not total or body[total] >= len(body[items])
    assert bytes_of(ask(tool, **asked, **({"limit": 500} if "limit" in parameters(tool) else {}))) <= LIST_BYTES


def parameters(tool: str) -> set[str]:
    return set(registry().find(tool).input_schema["properties"])


def test_cursors_reach_every_item_once(ask: Ask, ids_by_name: dict[str, str]) -> None:
    big, nasty = ids_by_name["big"], ids_by_name["nasty"]
    assert walk(ask, "task_list", "tasks", "id", workflow_id=big) == MANY + 1
    assert walk(ask, "task_list", "tasks", "id", workflow_id=nasty) == 121
    assert walk(ask, "workflow_next_tasks", "tasks", "id", workflow_id=big, limit=100) == MANY // 10
    assert walk(ask, "workflow_next_tasks", "tasks", "id", workflow_id=nasty) == 60
    offset = {"cursor": "next_offset", "given": "offset"}
    who = ids_by_name["1"]
    assert walk(ask, "task_get_available", "tasks", "id", **offset, agent_id=who, limit=50) == MANY // 10 + 60
    assert walk(ask, "agent_list", "agents", "id", **offset) == 40
    assert walk(ask, "repository_list", "repositories", "id", **offset) == 60
    assert walk(ask, "workflow_list", "workflows", "id", **offset, limit=100) == MANY // 5 + 2
    assert walk(ask, "workflow_progress", "blocked_tasks", "id", workflow_id=nasty) == 61


def test_every_checkpoint_and_message_is_reached_once(ask: Ask, ids_by_name: dict[str, str]) -> None:
    since = {"cursor": "next_since_sequence", "given": "since_sequence"}
    assert walk(ask, "checkpoint_list", "checkpoints", "sequence", **since, task_id=ids_by_name["first"]) == MANY
    assert walk(ask, "message_list", "messages", "id", agent_id=ids_by_name["1"], limit=60) == MANY


def test_one_thing_on_its_own_stays_below_sixty_thousand_bytes(
    hall: Hub, ask: Ask, ids_by_name: dict[str, str]
) -> None:
    first = ids_by_name["first"]
    whole = {"approach": HUGE[:2_000], "steps": [NASTY * 900] * 9}
    ask("task_set_plan", id=first, plan=HOW | whole, context=THIN)
    move(ask, first, "in_progress")
    ask(
        "task_update_status",
        id=first,
        status="failed",
        error=HUGE,
        outcome=HUGE,
        outcome_detail=THIN | {"k": "v" * 30_000},
    )
    bodies = [
        ask("task_get", id=first),
        ask("task_get", id=first, include_checkpoints=True),
        ask("task_get", id=ids_by_name["last"], include_checkpoints=True),
        ask("workflow_get", id=ids_by_name["big"]),
        ask("workflow_get", id=ids_by_name["nasty"]),
        ask("agent_get", id=agent(ask, 0)),
        ask("text_read", id=ids_by_name["big"], field="source_content", offset=77),
        ask("text_read", id=first, field="outcome"),
        ask("text_read", id=first, field="files_likely_affected"),
    ]
    for message in ask("message_list", agent_id=ids_by_name["1"], limit=1)["messages"]:
        bodies.append(ask("message_get", id=message["id"]))
    for body in bodies:
        assert bytes_of(body) <= WHOLE_BYTES
    assert bodies[1]["checkpoints"] and bodies[1]["checkpoint_count"] == MANY
    nasty = ask("task_list", workflow_id=ids_by_name["nasty"], limit=1)["tasks"][0]["id"]
    shown = ask("task_get", id=nasty)
    assert bytes_of(shown) <= WHOLE_BYTES
    assert shown["left_out"]["files_likely_affected"] == 120 - len(shown["files_likely_affected"])


def test_a_task_says_how_many_of_its_dependencies_it_does_not_name(ask: Ask, ids_by_name: dict[str, str]) -> None:
    page = ask("task_list", workflow_id=ids_by_name["nasty"], cursor="2:100")
    task_id = page["tasks"][0]["id"]
    shown = ask("task_get", id=task_id)
    assert len(shown["depends_on"]) + shown["left_out"]["depends_on"] == 61


@pytest.mark.parametrize("path", ["漢" * 700, NASTY * 700, "x" * 2_000])
def test_a_path_that_is_too_long_to_be_one_is_refused(ask: Ask, path: str) -> None:
    with pytest.raises(InvalidInput):
        ask("repository_register", path="/" + path)
    with pytest.raises(InvalidInput):
        new_workflow(ask, repository_path="/" + path)


def test_a_plan_of_many_tasks_and_three_times_as_many_edges_is_taken(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()

    def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, OPERATOR)

    tasks = big_plan(MANY, 3 * MANY)
    for one in tasks:
        one |= {"description": "d", "files_likely_affected": []}
    assert sum(len(one["depends_on"]) for one in tasks) >= MANY * 27 // 10
    workflow = new_workflow(call)
    made = call("workflow_set_plan", id=workflow, plan=PLAN | {"tasks": tasks})
    assert made["tasks_created"] == MANY
    shown = call("workflow_progress", workflow_id=workflow)
    assert (shown["by_status"]["pending"], shown["blocked_total"]) == (MANY // 10, MANY * 9 // 10)
    assert len(shown["critical_path"]) == 10 and shown["critical_path_minutes"] == 150
    finish(call, call("workflow_next_tasks", workflow_id=workflow, limit=1)["tasks"][0]["id"])
    assert call("workflow_progress", workflow_id=workflow)["by_status"]["completed"] == 1
