"""Templates through the door: made of a workflow or a definition, listed, read, applied; on both databases."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crewhall.app import Hub, Origin
from crewhall.errors import Conflict, InvalidInput, InvalidState, LimitExceeded, NotFound
from crewhall.identity import OPERATOR
from tests.conftest import Agent, Clock
from tests.families.work.workflows import (
    Ask,
    all_rows,
    code_of,
    events,
    finish,
    ids,
    list_tasks,
    new_workflow,
    newest,
    plan_workflow,
    sql,
    task,
)
from tests.sizes import size

PLANNED = (
    *("name", "description", "sequence", "parallel_group", "depends_on", "estimated_complexity"),
    *("files_likely_affected", "required_capabilities"),
)
TASKS = [
    task("build {{service}}", 2, files_likely_affected=["src/{{service}}.py"], estimated_complexity="high"),
    task("test", 3, depends_on=["build {{service}}"], parallel_group="{{service}}-checks")
    | {"description": "{{ how }}"},
]
NASTY = "\x01" * 190  # six bytes of JSON each
words = st.lists(
    st.sampled_from(["a", " ", "{{x}}", "{{ x }}", "{", "}}", "é漢", '"', "\\", "\n", "\x01"]), max_size=6
).map("".join)


def make_template(ask: Ask, *tasks: dict[str, Any], name: str = "t", **more: Any) -> str:
    """A template by a definition; its id."""
    found: str = ask("template_create", name=name, template={"tasks": list(tasks) or [task("a")]} | more)["id"]
    return found


def apply_template(ask: Ask, template: str, /, **variables: str) -> str:
    found: str = ask("template_apply", template_id=template, workflow_name="w", variables=variables)["workflow_id"]
    return found


def shape(ask: Ask, workflow: str) -> tuple[Any, list[dict[str, Any]]]:
    """A workflow's plan, and its tasks as they were planned."""
    tasks = [ask("task_get", id=one["id"]) for one in list_tasks(ask, workflow)]
    return ask("workflow_get", id=workflow)["plan"], [{name: one[name] for name in PLANNED} for one in tasks]


def bytes_of(body: dict[str, Any]) -> int:
    return len(json.dumps(body, ensure_ascii=False).encode())


# From a workflow and back


def test_a_workflow_made_into_a_template_comes_back_as_it_was(hub: Hub, operator: Ask) -> None:
    tasks = [
        task(
            "late", 7, parallel_group="g{{x}}", estimated_complexity="high", files_likely_affected=["a{{ x }}", "b/*"]
        ),
        task("early {{x}}", -3, parallel_group="g{{x}}", required_capabilities=["sql", "Rust", "{{c}}"]),
        task("other", 7, depends_on=["early {{x}}", "late"], estimated_complexity="medium"),
        task("bare", 2**31 - 1),
    ]
    plan = {"summary": "", "approach": "{{ y }} ${{ a.b }}", "risks": ["{{r}}"], "assumptions": ["none"]}
    source = new_workflow(operator)
    operator("workflow_set_plan", id=source, plan=plan | {"tasks": tasks})
    before = newest(operator)
    template = operator("template_create", name="again", description="all of it", from_workflow_id=source)["id"]
    assert events(operator, before) == [("template.created", None, None)]
    [shown] = operator("template_list")["templates"]
    assert [(one["name"], one["required"], one["default"]) for one in shown["variables"]] == [
        ("y", False, "{{ y }}"),
        ("r", False, "{{r}}"),
        ("x", False, "{{x}}"),
    ]
    copy = apply_template(operator, template)
    assert shape(operator, copy) == shape(operator, source)
    assert [one["name"] for one in list_tasks(operator, copy)] == [one["name"] for one in list_tasks(operator, source)]
    other = shape(operator, apply_template(operator, template, x="1", r="2"))
    assert other[0] == plan | {"risks": ["2"]}
    assert other[1][1]["files_likely_affected"] == ["a1", "b/*"] and other[1][2]["depends_on"] == ["late", "early 1"]


@settings(max_examples=size(8, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_workflow_comes_back_as_it_was(hub: Hub, operator: Ask, data: st.DataObject) -> None:
    tasks: list[dict[str, Any]] = []
    for number in range(data.draw(st.integers(1, 5))):
        earlier = st.lists(st.sampled_from([one["name"] for one in tasks] or ["-"]), unique=True, max_size=3)
        more = {
            "description": data.draw(words),
            "parallel_group": data.draw(st.none() | words.filter(bool)),
            "depends_on": data.draw(earlier) if tasks else [],
            "estimated_complexity": data.draw(st.sampled_from([None, "low", "medium", "high"])),
            "files_likely_affected": data.draw(st.lists(words.filter(bool), max_size=3)),
            "required_capabilities": data.draw(st.lists(words.filter(bool), max_size=3)),
        }
        tasks.append(task(f"{number}{data.draw(words)}", number, **more))
    source = new_workflow(operator)
    told = {"summary": data.draw(words), "approach": data.draw(words)}
    operator("workflow_set_plan", id=source, plan=told | {"tasks": tasks})
    template = operator("template_create", name="t", from_workflow_id=source)["id"]
    assert shape(operator, apply_template(operator, template)) == shape(operator, source)


def test_a_workflow_in_any_status_can_be_a_template_and_its_copy_begins_anew(operator: Ask) -> None:
    source, task_ids = plan_workflow(operator, task("a"), task("b", depends_on=["a"]))
    finish(operator, task_ids["a"], task_ids["b"])
    for step in ("completed", None):
        template = operator("template_create", name="t", from_workflow_id=source)["id"]
        copy = operator("workflow_get", id=apply_template(operator, template), include_tasks=True)
        assert (copy["status"], copy["finished_count"]) == ("ready", 0)
        assert [one["status"] for one in copy["tasks"]] == ["pending", "blocked"]
        if step:
            operator("workflow_update_status", id=source, status=step)


def test_a_workflow_that_cannot_be_a_template_is_refused(hub: Hub, operator: Ask) -> None:
    unplanned = new_workflow(operator)
    grown, task_ids = plan_workflow(operator, task("a", 2))
    finish(operator, task_ids["a"])
    operator("workflow_add_tasks", id=grown, tasks=[task("b", 1, depends_on=["a"])])
    empty, task_ids = plan_workflow(operator, task("a"))
    operator("workflow_remove_task", id=empty, task_id=task_ids["a"])
    before = all_rows(hub)
    with pytest.raises(InvalidState, match=f"{unplanned} has no plan"):
        operator("template_create", name="t", from_workflow_id=unplanned)
    with pytest.raises(InvalidState, match=f"{empty} has no tasks"):
        operator("template_create", name="t", from_workflow_id=empty)
    with pytest.raises(InvalidInput, match="for ever: "):  # 'a' was done before 'b' came, and would wait for it now
        operator("template_create", name="t", from_workflow_id=grown)
    with pytest.raises(NotFound, match="no workflow 'wf_no'"):
        operator("template_create", name="t", from_workflow_id="wf_no")
    assert all_rows(hub) == before


def test_a_workflow_that_is_too_large_for_a_template_is_refused(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()

    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, OPERATOR)

    source, _ = plan_workflow(ask, task("a"))
    many = [task(f"{number}") | {"description": "x" * 99_000} for number in range(43)]
    ask("workflow_add_tasks", id=source, tasks=many)
    with pytest.raises(LimitExceeded, match=f"{source} have 4257169 "):
        ask("template_create", name="t", from_workflow_id=source)
    source, _ = plan_workflow(ask, *(task(f"{number}") | {"description": "漢" * 99_000} for number in range(15)))
    with pytest.raises(LimitExceeded, match="would have 44550"):
        ask("template_create", name="t", from_workflow_id=source)


# By a definition


def test_a_template_by_a_definition_makes_workflows_with_values(hub: Hub, operator: Ask, clock: Clock) -> None:
    template = make_template(operator, *TASKS, name="ship")
    clock.advance(5)
    before = newest(operator)
    given = {"service": "api {{how}}", "how": "x" * 300}
    workflow = operator(
        "template_apply",
        template_id=template,
        workflow_name="api!",
        variables=given,
        repository_path="/srv//app/",
        max_parallel_tasks=4,
    )["workflow_id"]
    assert events(operator, before) == [
        ("workflow.created", None, "planning"),
        ("workflow.planned", "planning", "ready"),
    ]
    kept = operator("workflow_get", id=workflow)
    assert kept | {"source_content": ""} == {
        "id": workflow,
        "name": "api!",
        "status": "ready",
        "status_reason": None,
        "halted_by": None,
        "source_type": "custom",
        "source_ref": template,
        "source_content": "",
        "repository_path": "/srv/app",
        "max_parallel_tasks": 4,
        "auto_create_workspaces": False,
        "reviewer": "instance",
        "plan": {"summary": "ship", "approach": "", "risks": [], "assumptions": []},
        "task_count": 2,
        "finished_count": 0,
        "started_at": None,
        "finished_at": None,
        "archived_at": None,
        "created_at": clock.now,
        "updated_at": clock.now,
        "left_out": None,
        "tasks": None,
        "next_cursor": None,
    }
    told = f"From template 'ship' ({template}).\nservice = api {{{{how}}}}\nhow = {'x' * 200}…"
    assert kept["source_content"] == told
    _, tasks = shape(operator, workflow)
    assert [one["name"] for one in tasks] == ["build api {{how}}", "test"], "a value is text, whatever it looks like"
    assert tasks[0]["files_likely_affected"] == ["src/api {{how}}.py"] and tasks[0]["estimated_complexity"] == "high"
    assert tasks[1]["depends_on"] == ["build api {{how}}"] and tasks[1]["parallel_group"] == "api {{how}}-checks"
    assert tasks[1]["description"] == "x" * 300
    [ready] = operator("workflow_next_tasks", workflow_id=workflow)["tasks"]
    assert ready["name"] == "build api {{how}}"


@pytest.mark.parametrize(
    ("more", "description", "expected"),
    [
        ({"summary": "of {{x}}", "approach": "by {{x}}"}, "d", ("of 1", "by 1")),
        ({"summary": ""}, "d", ("", "")),
        ({}, "d {{x}}", ("d {{x}}", "")),
        ({"approach": None, "summary": None}, None, ("t", "")),
    ],
)
def test_the_plans_summary_is_the_templates_or_its_description_or_its_name(
    operator: Ask, more: dict[str, Any], description: str | None, expected: tuple[str, str]
) -> None:
    definition = {"tasks": [task("{{x}}")]} | more
    template = operator("template_create", name="t", description=description, template=definition)["id"]
    plan = operator("workflow_get", id=apply_template(operator, template, x="1"))["plan"]
    assert (plan["summary"], plan["approach"]) == expected


def test_declared_variables_have_defaults_or_must_be_given(hub: Hub, operator: Ask) -> None:
    variables = [
        {"name": "must", "description": "m", "required": True, "default": "never"},
        {"name": "may", "description": "", "required": False},
        {"name": "else", "description": "", "required": False, "default": "d"},
        {"name": "unused", "description": "", "required": False, "default": None},
    ]
    template = make_template(operator, task("{{must}}|{{may}}|{{else}}"), variables=variables)
    shown = operator("template_get", id=template)["variables"]
    assert [{name: one[name] for name in variables[0]} for one in shown] == [{"default": None} | v for v in variables]
    before = all_rows(hub)
    with pytest.raises(InvalidInput, match=r"must be given: must$"):
        apply_template(operator, template, may="1")
    with pytest.raises(InvalidInput, match=r"no variable 'mst'$") as refused:
        apply_template(operator, template, mst="1")
    assert refused.value.hint == "Its variables are must, may, else, unused."
    assert all_rows(hub) == before
    assert list(ids(operator, apply_template(operator, template, must="1"))) == ["1||d"]
    assert list(ids(operator, apply_template(operator, template, must="", may="2", **{"else": ""}))) == ["|2|"]
    with pytest.raises(InvalidInput, match=r"must be given: service, how$"):
        operator("template_apply", template_id=make_template(operator, *TASKS), workflow_name="w")


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ({"tasks": []}, "template.tasks"),
        ({"tasks": [task("a"), task("a")]}, "two tasks named 'a'"),
        ({"tasks": [task("a", depends_on=["b"])]}, "'b', which is not in the plan"),
        ({"tasks": [task("a", depends_on=["{{b}}"]), task("{{b}}", depends_on=["a"])]}, "for ever: "),
        ({"tasks": [task("a", priority=1)]}, "template.tasks.0.priority"),
        ({"tasks": [task("a", estimated_complexity="huge")]}, "template.tasks.0.estimated_complexity"),
        ({"tasks": [task("a", files_likely_affected=["x" * 5_000])]}, "template.tasks.0.files_likely_affected"),
        ({"tasks": [task("{{a}}")], "variables": []}, "not declared: 'a'"),
        ({"tasks": [task("a")], "variables": [{"name": "é", "description": "", "required": True}]}, "'é' is no name"),
        ({"tasks": [task("a")], "variables": [{"name": "b"}]}, "missing argument 'template.variables.0.description'"),
        ({"tasks": [task("a")], "summary": "x" * 64_000}, "plan is 6405. bytes"),
        ({"tasks": [task("a")], "steps": 1}, "unknown argument 'template.steps'"),
        (
            {
                "tasks": [task("a")],
                "variables": [
                    {"name": f"v{n}", "description": "x" * 2_000, "required": False, "default": "x" * 9_000}
                    for n in range(6)
                ],
            },
            "variables is 66... bytes",
        ),
    ],
)
def test_a_definition_that_could_never_be_applied_is_refused(
    common_hub: Hub, common: Ask, definition: dict[str, Any], said: str
) -> None:
    before = all_rows(common_hub)
    with pytest.raises(InvalidInput, match=said):
        common("template_create", name="t", template=definition)
    assert all_rows(common_hub) == before


def test_a_template_is_made_in_one_way(hub: Hub, operator: Ask) -> None:
    workflow, _ = plan_workflow(operator, task("a"))
    both = {"from_workflow_id": workflow, "template": {"tasks": [task("a")]}}
    for arguments in ({}, both):
        with pytest.raises(InvalidInput, match="either from_workflow_id or by a template definition"):
            operator("template_create", name="t", **arguments)
    assert code_of(operator, "template_create", name="", template=both["template"]) == "INVALID_INPUT"
    assert operator("template_list")["total"] == 0


def test_too_many_dependencies_are_refused_when_the_template_is_made(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()
    names = [f"{number}" for number in range(1_000)]
    wide = [task(name) for name in names] + [task(f"w{n}", depends_on=names) for n in range(101)]
    with pytest.raises(LimitExceeded, match="101000 dependencies"):
        hub.call("template_create", {"name": "t", "template": {"tasks": wide}}, OPERATOR)


@pytest.mark.parametrize(
    ("tasks", "values", "said"),
    [
        ([task("{{a}}"), task("{{b}}")], {"a": "x", "b": "x"}, "two tasks named 'x'"),
        ([task("{{a}}", depends_on=["b"]), task("b")], {"a": "b"}, "two tasks named 'b'"),
        ([task("{{a}}")], {"a": ""}, "task '{{a}}' has a wrong name"),
        ([task("{{a}}")], {"a": "x" * 201}, "task '{{a}}' has a wrong name"),
        ([task("{{a}}")], {"a": "x" * 10_001}, "argument 'variables.a'"),
        ([task("{{a}}")], {"a": 1}, "argument 'variables.a'"),
        ([task("a")], {"b": ""}, "no variable 'b'"),
    ],
)
def test_values_that_make_no_plan_are_refused_and_nothing_is_made(
    common_hub: Hub, common: Ask, tasks: list[dict[str, Any]], values: dict[str, Any], said: str
) -> None:
    template = make_template(common, *tasks)
    before = all_rows(common_hub)
    with pytest.raises(InvalidInput, match=said):
        apply_template(common, template, **values)
    assert all_rows(common_hub) == before


def test_a_template_that_would_blow_up_is_refused_before_it_does(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()

    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, OPERATOR)

    bomb = [task(f"{number}") | {"description": "{{x}}" * 19_000} for number in range(size(4, 40))]
    template = make_template(ask, *bomb)
    began = time.monotonic()
    with pytest.raises(LimitExceeded, match="would have 760000"):
        apply_template(ask, template, x="漢" * 3_333 + "x")
    assert time.monotonic() - began < 5
    assert ask("workflow_list")["total"] == 0
    assert apply_template(ask, template, x="")


# Listing and reading


def test_templates_are_listed_the_newest_first_with_what_they_take(operator: Ask, clock: Clock) -> None:
    assert operator("template_list") == {"templates": [], "total": 0, "next_offset": None}
    for number in range(25):
        clock.advance(1)
        make_template(operator, task("a {{v}}"), task("b"), name=f"n{number}")
    page = operator("template_list")
    assert [one["name"] for one in page["templates"]] == [f"n{number}" for number in range(24, 4, -1)]
    assert (page["total"], page["next_offset"]) == (25, 20)
    first = page["templates"][0]
    takes = {"name": "v", "description": "", "required": True, "default": None, "left_out": None}
    assert first == {
        "id": first["id"],
        "name": "n24",
        "description": None,
        "variables": [takes],
        "task_count": 2,
        "created_at": clock.now,
        "left_out": None,
    }
    assert first["id"].startswith("tp_")
    rest = operator("template_list", offset=page["next_offset"], limit=500)
    assert [one["name"] for one in rest["templates"]] == ["n4", "n3", "n2", "n1", "n0"]
    assert rest["next_offset"] is None


def test_a_template_shows_its_plan_and_what_does_not_fit_is_read_on(operator: Ask) -> None:
    told = {"summary": "s", "approach": "a"}
    small = operator("template_get", id=make_template(operator, *TASKS, **told))
    assert small["tasks"][1] == {
        "name": "test",
        "description": "{{ how }}",
        "sequence": 3,
        "parallel_group": "{{service}}-checks",
        "depends_on": ["build {{service}}"],
        "estimated_complexity": None,
        "files_likely_affected": [],
        "required_capabilities": [],
        "left_out": None,
    }
    assert (small["summary"], small["approach"], small["task_count"], small["left_out"]) == ("s", "a", 2, None)
    variables = [{"name": f"v{n}", "description": NASTY, "required": False, "default": "d" * 600} for n in range(35)]
    tasks = [task(f"{n}{NASTY}") | {"description": "漢" * 9_000} for n in range(50)]
    template = operator(
        "template_create",
        name=NASTY,
        description=NASTY * 50,
        template={"tasks": tasks, "variables": variables, "summary": NASTY * 40},
    )["id"]
    shown = operator("template_get", id=template)
    assert bytes_of(shown) < 30_000 and shown["tasks"] and shown["variables"]
    left = shown["left_out"]
    assert left["tasks"] == 50 - len(shown["tasks"]) and left["variables"] == 35 - len(shown["variables"])
    assert left["description"] == 9_500 - len(shown["description"]) and left["summary"] > 0
    assert whole(operator, template, "description") == NASTY * 50
    assert [one["name"] for one in json.loads(whole(operator, template, "definition"))["tasks"]] == [
        one["name"] for one in tasks
    ]
    assert json.loads(whole(operator, template, "variables"))["v34"]["default"] == "d" * 600
    for tool in ("template_get", "text_read"):
        more = {"field": "definition"} if tool == "text_read" else {}
        assert code_of(operator, tool, id="tp_no", **more) == "NOT_FOUND"
    for _ in range(12):
        operator(
            "template_create", name=NASTY, description=NASTY * 50, template={"tasks": tasks, "variables": variables}
        )
    seen, offset = 0, 0
    while offset is not None:
        page = operator("template_list", limit=500, offset=offset)
        assert bytes_of(page) <= 20_000 and page["templates"]
        seen, offset = seen + len(page["templates"]), page["next_offset"]
    assert seen == 14


def whole(ask: Ask, template: str, field: str) -> str:
    """A long text, piece by piece."""
    text, offset = "", 0
    while offset is not None:
        piece = ask("text_read", id=template, field=field, offset=offset)
        text, offset = text + piece["text"], piece["next_offset"]
    return text


def test_a_template_of_ten_thousand_tasks_is_applied(make_hub: Callable[..., Hub]) -> None:
    """So many in `make soak`: otherwise a thousand."""
    hub, many = make_hub(), size(1_000, 10_000)

    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, OPERATOR)

    tasks = [
        task(f"{{{{x}}}}{n}", n // 100, depends_on=[f"{{{{x}}}}{n - 100}"] if n >= 100 else []) for n in range(many)
    ]
    template = make_template(ask, *tasks)
    assert bytes_of(ask("template_get", id=template)) < 30_000
    workflow = apply_template(ask, template, x="名")
    shown = ask("workflow_progress", workflow_id=workflow)
    assert (shown["total_tasks"], shown["blocked_total"]) == (many, many - 100)
    again = ask("template_create", name="t", from_workflow_id=workflow)["id"]
    copy = apply_template(ask, again)
    columns = "name, description, sequence, place, dependency_count, waits_for, tail"
    text = f"SELECT {columns} FROM task WHERE workflow_id = :id ORDER BY place"
    assert sql(hub, text, id=copy) == sql(hub, text, id=workflow)


# Who and how


def test_a_worker_may_list_and_apply_and_a_repeat_with_its_key_makes_one(hub: Hub, operator: Ask) -> None:
    ada = Agent(hub)
    template = ada.call("template_create", name="t", template={"tasks": TASKS}, idempotency_key="k")["id"]
    assert ada.call("template_create", name="t", template={"tasks": TASKS}, idempotency_key="k")["id"] == template
    assert [one["id"] for one in ada.call("template_list")["templates"]] == [template]
    asked = {"template_id": template, "workflow_name": "w", "variables": {"service": "s", "how": ""}}
    workflow = ada.call("template_apply", **asked, idempotency_key="k")["workflow_id"]
    assert ada.call("template_apply", **asked, idempotency_key="k")["workflow_id"] == workflow
    assert operator("workflow_list")["total"] == 1
    with pytest.raises(Conflict):
        ada.call("template_apply", **asked | {"workflow_name": "other"}, idempotency_key="k")
    actors = {event["actor"] for event in operator("event_list", subject=workflow)["events"]}
    assert actors == {ada.id}


def test_the_repository_is_the_clients_directory_when_left_out(hub: Hub, operator: Ask) -> None:
    told = {"template_id": make_template(operator), "workflow_name": "w"}
    here = Origin(directory="/home/ada/app")
    workflow = hub.call("template_apply", told, OPERATOR, origin=here)["workflow_id"]
    kept = operator("workflow_get", id=workflow)
    assert (kept["repository_path"], kept["max_parallel_tasks"], kept["plan"]) == (
        "/home/ada/app",
        1,
        {"summary": "t", "approach": "", "risks": [], "assumptions": []},
    )
    with pytest.raises(InvalidInput, match="not absolute"):
        operator("template_apply", **told, repository_path="app")
    assert operator("workflow_get", id=operator("template_apply", **told)["workflow_id"])["repository_path"] is None


def test_what_is_no_template_is_not_found(hub: Hub, operator: Ask) -> None:
    before = all_rows(hub)
    for tool, more in (("template_get", {"id": "tp_no"}), ("template_apply", {"template_id": "tp_no"})):
        with pytest.raises(NotFound, match="no template 'tp_no'") as refused:
            operator(tool, **more | ({"workflow_name": "w"} if tool == "template_apply" else {}))
        assert "template_list" in refused.value.hint
    assert code_of(operator, "template_apply", template_id="tp_no", workflow_name="") == "INVALID_INPUT"
    assert (
        code_of(operator, "template_apply", template_id="t", workflow_name="w", max_parallel_tasks=0) == "INVALID_INPUT"
    )
    assert all_rows(hub) == before


def test_ids_of_templates_are_suggested_by_id_and_by_name(hub: Hub, operator: Ask, clock: Clock) -> None:
    first = make_template(operator, name="ship it")
    clock.advance(1)
    second = make_template(operator, name="sink it")
    tool = hub.registry.find("template_apply")
    _, query = tool.suggestions("template_id")
    assert query is not None
    with hub.store.read() as tx:
        assert [row["value"] for row in tx.all(query, prefix="s", limit=9)] == [second, first]
        assert [dict(row) for row in tx.all(query, prefix="shi", limit=9)] == [{"value": first, "total": 1}]
        assert [row["value"] for row in tx.all(query, prefix=second, limit=9)] == [second]
