"""
Templates: plans with variables in them, and the workflows made from them (seed 003, template management).

    a workflow │ a definition ── create ──▶ template ── apply, with values ──▶ a workflow that is ready
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from pydantic_core import from_json

from crewhall.app import Call
from crewhall.bounded import Limit, Offset, json_text, page, rows_and_total
from crewhall.errors import InvalidInput, InvalidState, LimitExceeded
from crewhall.families.work.family import work
from crewhall.families.work.hall.pause import SharedPause
from crewhall.families.work.lookup import get, get_locked, hint_all, hint_get, hint_get_locked
from crewhall.families.work.model import Name, Path
from crewhall.families.work.task.model import PlannedTask
from crewhall.families.work.task.pages import names_by_task
from crewhall.families.work.template.model import (
    About,
    Definition,
    NewTemplate,
    Template,
    TemplateApplied,
    TemplateId,
    TemplateRef,
    TemplateRow,
    Templates,
    TemplateSummary,
    TemplateVariable,
    Values,
)
from crewhall.families.work.template.rules import (
    MOST_BYTES,
    choose_values,
    declare_variables,
    fill_plan,
    optional_variables,
    refuse_blow_up,
    refuse_unsound,
)
from crewhall.families.work.workflow.plans import MOST_EDGES, plan_text
from crewhall.families.work.workflow.tools import give_plan, insert_workflow, repository_of
from crewhall.identity import new_id
from crewhall.store.transaction import Row, Tx

LISTED = 100  # more never fit into an answer
TOLD = 200  # letters of a value that the workflow's source repeats


@work.tool("template_create", changes=True, creates=True, profiles=("coordinator",))
def template_create(
    call: Call,
    name: Name,
    description: About | None = None,
    from_workflow_id: Annotated[str, Field(max_length=100)] | None = None,
    template: NewTemplate | None = None,
) -> TemplateId:
    """Keep a plan to use again: a workflow's, or one with tasks as workflow_set_plan takes them.

    {{word}} in its texts is a variable, required unless declared otherwise; in a workflow's texts, optional.
    """
    if (from_workflow_id is None) == (template is None):
        raise InvalidInput(
            "a template is made either from_workflow_id or by a template definition",
            hint="Give one of the two, and leave the other out.",
        )
    made = new_id("tp")
    given = None if template is None else _template_columns(*_from_definition(template))
    with call.begin() as tx:
        kept = given or _template_columns(*_from_workflow(tx, from_workflow_id or ""))
        tx.run("template_insert", id=made, name=name, description=description, now=call.now, **kept)
        tx.event("template.created", made)
    return TemplateId(id=made)


def _from_definition(template: NewTemplate) -> tuple[Definition, list[TemplateVariable]]:
    plan = Definition(tasks=template.tasks, summary=template.summary, approach=template.approach or "")
    return plan, declare_variables(plan, template.variables)


def _from_workflow(tx: Tx, workflow_id: str) -> tuple[Definition, list[TemplateVariable]]:
    """A workflow's plan and tasks, whatever has become of them. Raises NotFound, InvalidState or LimitExceeded."""
    hint_get_locked(tx, "workflow", workflow_id)
    hint_get(tx, "workflow", workflow_id)
    tx.ahead("workflow_letters", workflow_id=workflow_id)
    get_locked(tx, "workflow", workflow_id)
    workflow = get(tx, "workflow", workflow_id)
    if workflow["plan"] is None or workflow["task_count"] == 0:
        raise InvalidState(
            f"workflow {workflow_id} has no {'tasks' if workflow['plan'] else 'plan'} to make a template of",
            hint="workflow_set_plan and workflow_add_tasks give it some; or give a template definition.",
        )
    letters = tx.value("workflow_letters", workflow_id=workflow_id)
    if letters > MOST_BYTES:
        raise LimitExceeded(
            f"the tasks of workflow {workflow_id} have {letters} characters, and {MOST_BYTES} bytes are allowed",
            hint="Make templates of parts of it, by a template definition.",
        )
    plan = Definition(
        **from_json(workflow["plan"]),
        tasks=_planned_tasks(tx, workflow_id),
        max_parallel_tasks=workflow["max_parallel_tasks"],
        auto_create_workspaces=bool(workflow["auto_create_workspaces"]),
    )
    return plan, optional_variables(plan)


def _planned_tasks(tx: Tx, workflow_id: str) -> list[PlannedTask]:
    """The tasks of a workflow, as its plan had them."""
    here = {"workflow_id": workflow_id}
    hint_all(tx, dict.fromkeys(("workflow_dependencies", "workflow_capabilities", "workflow_planned"), here))
    wanted = names_by_task(tx.all("workflow_dependencies", **here))
    needed = names_by_task(tx.all("workflow_capabilities", **here), "capability")
    return [
        PlannedTask(
            name=row["name"],
            description=row["description"],
            sequence=row["sequence"],
            parallel_group=row["parallel_group"],
            depends_on=wanted.get(row["id"], []),
            estimated_complexity=row["estimated_complexity"],
            files_likely_affected=from_json(row["files_likely_affected"]),
            required_capabilities=needed.get(row["id"], []),
        )
        for row in tx.all("workflow_planned", **here)
    ]


def _template_columns(plan: Definition, variables: list[TemplateVariable]) -> Row:
    """The columns of a template. Raises every error that applying it would raise with any values."""
    refuse_blow_up(plan, {})
    refuse_unsound(plan.tasks)
    edges = sum(len(task.depends_on) for task in plan.tasks)
    if edges > MOST_EDGES:
        raise LimitExceeded(
            f"the plan has {edges} dependencies, and {MOST_EDGES} are allowed",
            hint="A task need not name what its dependencies wait for already.",
        )
    plan_text(plan.summary or "", plan.approach, plan.risks, plan.assumptions)
    declarations = {one.name: one.model_dump(exclude={"name"}) for one in variables}
    return {
        "variables": json_text("variables", declarations),
        "definition": plan.model_dump_json(exclude_defaults=True),
        "task_count": len(plan.tasks),
    }


@work.tool("template_list", profiles=("coordinator", "planning"), resources=("crewhall://templates",))
def template_list(call: Call, limit: Limit = 20, offset: Offset = 0) -> Templates:
    """The templates of the hall, the newest first, with their variables."""
    with call.begin() as tx:
        rows, total = rows_and_total(tx, "templates", {}, limit=min(limit, LISTED), offset=offset)
    items, following = page((TemplateSummary.from_row(row) for row in rows), total, offset)
    return Templates(templates=items, total=total, next_offset=following)


@work.tool("template_get", ours=True, profiles=("coordinator",), resources=("crewhall://templates/{id}",))
def template_get(call: Call, id: TemplateRef) -> Template:
    """A template with its plan; text_read gives the whole of its definition and variables."""
    return Template.from_row(get(call, "template", id))


@work.tool("template_apply", changes=True, creates=True, profiles=("coordinator", "planning"))
def template_apply(
    call: Call,
    template_id: TemplateRef,
    workflow_name: Name,
    variables: Values | None = None,
    repository_path: Path | None = None,
    max_parallel_tasks: Annotated[int, Field(ge=1, le=1000)] | None = None,
    auto_create_workspaces: bool | None = None,
) -> TemplateApplied:
    """Make a workflow from a template, ready to begin; repository_path as in workflow_create.

    The last two are as in the template's own workflow when left out.
    """
    template = get(call, "template", template_id)
    given = variables or {}
    plan = _filled_plan(template, given)
    text = plan_text(_summary(plan, template), plan.approach, plan.risks, plan.assumptions)
    where = repository_of(call, repository_path)
    with call.begin() as tx:
        shared = SharedPause(tx)
        workflow_id = insert_workflow(
            tx,
            call.now,
            name=workflow_name,
            source_type="custom",
            source_ref=template_id,
            source_content=_source(template, given),
            repository_path=where,
            max_parallel_tasks=max_parallel_tasks or plan.max_parallel_tasks,
            auto_create_workspaces=int(
                plan.auto_create_workspaces if auto_create_workspaces is None else auto_create_workspaces
            ),
        )
        give_plan(tx, workflow_id, text, plan.tasks, shared)
    return TemplateApplied(workflow_id=workflow_id)


def _filled_plan(template: TemplateRow, given: Mapping[str, str]) -> Definition:
    """The template's plan, filled with these values. Raises InvalidInput or LimitExceeded."""
    plan = Definition(**from_json(template["definition"]))
    variables = [
        TemplateVariable(name=name, **declaration) for name, declaration in from_json(template["variables"]).items()
    ]
    values = choose_values(variables, given)
    refuse_blow_up(plan, values)
    return fill_plan(plan, values)


def _summary(plan: Definition, template: TemplateRow) -> str:
    return plan.summary if plan.summary is not None else template["description"] or template["name"]


def _source(template: TemplateRow, given: Mapping[str, str]) -> str:
    """What the workflow says of where it comes from."""
    values = [f"{name} = {value[:TOLD]}{'…' if len(value) > TOLD else ''}" for name, value in given.items()]
    return "\n".join([f"From template '{template['name']}' ({template['id']}).", *values])
