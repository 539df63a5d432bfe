"""
The words of templates: plans with variables in them, and the shapes that their tools take and return.

    template     tp_…   a plan to make workflows from
    placeholder         {{name}} in a text of the plan
    variable            what a placeholder names, and the text that takes its place
"""

from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

from pydantic import Field
from pydantic_core import from_json

from crewhall.bounded import LIST_TEXT_BYTES, Cut, cut, take_fitting
from crewhall.declaration import InputModel, Suggest
from crewhall.families.work.model import Short, Text
from crewhall.families.work.task.model import Complexity, PlannedTask
from crewhall.store.transaction import Row
from crewhall.tool import Result

VALUE_LETTERS = 10_000
MOST_VARIABLES = 200
TASKS_BYTES, VARIABLES_BYTES, TEXTS_BYTES = 12_000, 6_000, 6_000  # of one template on its own
LISTED_BYTES, SHORT_BYTES = 2_000, 200  # in a list: of a template's variables, and of each text in them

TemplateRef = Annotated[str, Suggest("template_ids"), Field(max_length=100)]
Value = Annotated[str, Field(max_length=VALUE_LETTERS)]
Values = Annotated[dict[str, Value], Field(max_length=MOST_VARIABLES, description="A text for each {{word}}.")]
About = Annotated[str, Field(max_length=10_000)]


class TemplateVariable(InputModel):
    name: str
    description: Annotated[str, Field(max_length=2_000)]
    required: bool
    default: Value | None = None


class NewTemplate(InputModel):
    tasks: Annotated[list[PlannedTask], Field(min_length=1, max_length=10_000)]
    variables: Annotated[list[TemplateVariable], Field(max_length=MOST_VARIABLES)] | None = None
    summary: Text | None = None
    approach: Text | None = None


class Definition(InputModel):
    """A template's plan as the hall keeps it; of a workflow's plan all is kept."""

    tasks: list[PlannedTask]
    summary: str | None = None
    approach: str = ""
    risks: list[Short] = Field(default_factory=list)
    assumptions: list[Short] = Field(default_factory=list)
    max_parallel_tasks: int = 1
    auto_create_workspaces: bool = False


class TemplateId(Result):
    id: str


class TemplateListed(TypedDict):
    """A template without its tasks."""

    id: str
    name: str
    description: str | None
    variables: str
    task_count: int
    created_at: int


class TemplateRow(TemplateListed):
    definition: str
    updated_at: int


class TemplateApplied(Result):
    workflow_id: str


class ShownVariable(Result):
    name: str
    description: str
    required: bool = Field(description="Whether it must be given; else its default is taken, or nothing.")
    default: str | None
    left_out: Cut | None


class TemplateSummary(Result):
    """A template in a list, in short."""

    id: str
    name: str
    description: str | None
    variables: list[ShownVariable]
    task_count: int
    created_at: int
    left_out: Cut | None

    @classmethod
    def from_row(cls, row: TemplateListed) -> "TemplateSummary":
        fields = cut(dict(row), ("description",), (), each=LIST_TEXT_BYTES)
        return cls(**_with_variables(fields, row, LISTED_BYTES, SHORT_BYTES))


def _with_variables(fields: Row, row: TemplateListed, most: int, each: int) -> Row:
    """The fields and as many of the variables as fit; how many are missing is in `left_out`."""
    variables = from_json(row["variables"])
    shown = (
        ShownVariable(name=name, **cut(one, ("description", "default"), (), each=each))
        for name, one in variables.items()
    )
    kept = take_fitting(shown, most)
    return fields | {
        "variables": kept,
        "left_out": add_left_out(fields["left_out"], variables=len(variables) - len(kept)),
    }


def add_left_out(left_out: Cut | None, **more: int) -> Cut | None:
    """`left_out` with more entries; counts of 0 are dropped."""
    return {**(left_out or {}), **{name: count for name, count in more.items() if count}} or None


class Templates(Result):
    templates: list[TemplateSummary]
    total: int
    next_offset: int | None = Field(description="Where the next page begins; null when this is the last.")


class ShownTask(Result):
    name: str
    description: str
    sequence: int
    parallel_group: str | None
    depends_on: list[str]
    estimated_complexity: Complexity | None
    files_likely_affected: list[str]
    required_capabilities: list[str]
    left_out: Cut | None


# What a definition leaves out, since it is so by default.
PLAN: dict[str, Any] = {
    "summary": None,
    "approach": "",
    "risks": [],
    "assumptions": [],
    "max_parallel_tasks": 1,
    "auto_create_workspaces": False,
}


class Template(Result):
    id: str
    name: str
    description: str | None
    summary: str | None = Field(description="Of the plan; when it has none, the template's description or name.")
    approach: str
    risks: list[str]
    assumptions: list[str]
    max_parallel_tasks: int
    auto_create_workspaces: bool
    variables: list[ShownVariable]
    task_count: int
    tasks: list[ShownTask] = Field(description="The first that fit.")
    created_at: int
    updated_at: int
    left_out: Cut | None

    @classmethod
    def from_row(cls, row: TemplateRow) -> "Template":
        plan = PLAN | from_json(row["definition"])
        tasks = take_fitting(_shown_tasks(plan.pop("tasks")), TASKS_BYTES)
        kept: Row = {name: value for name, value in row.items() if name != "definition"} | plan
        fields = cut(kept, ("description", "summary", "approach", "risks", "assumptions"), (), total=TEXTS_BYTES)
        fields["left_out"] = add_left_out(fields["left_out"], tasks=row["task_count"] - len(tasks))
        return cls(**_with_variables(fields, row, VARIABLES_BYTES, SHORT_BYTES * 5), tasks=tasks)


def _shown_tasks(tasks: list[dict[str, Any]]) -> Iterator[ShownTask]:
    lists = ("depends_on", "files_likely_affected", "required_capabilities")
    for task in tasks:
        fields = {"parallel_group": None, "estimated_complexity": None} | {name: [] for name in lists} | task
        yield ShownTask(**cut(fields, ("description", *lists), (), each=LIST_TEXT_BYTES))
