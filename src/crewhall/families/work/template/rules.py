"""
What templates mean: which texts are placeholders, which variables they need, and the plan that values make of them.

    "ship {{ name }}" ── name = "api" ──▶ "ship api"      in one pass: a placeholder in a value stays text
    "${{ a.b }} {{}}" ──────────────────▶ the same        what is no placeholder stays as it is
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from crewhall.declaration import WORD
from crewhall.errors import InvalidInput, LimitExceeded
from crewhall.families.work.task.model import PlannedTask
from crewhall.families.work.template.model import MOST_VARIABLES, Definition, TemplateVariable
from crewhall.families.work.workflow.rules_plan import GraphTask, refuse_misnamed, standings

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
PLACEHOLDER = re.compile(rf"\{{\{{[ \t]*({NAME.pattern})[ \t]*\}}\}}")
IN_TASK = ("name", "description", "parallel_group", "depends_on", "files_likely_affected")
IN_PLAN = ("summary", "approach", "risks", "assumptions")
MOST_BYTES = 4 * 1024 * 1024  # of the texts of a template, and of what is made from it
NAMED = 5  # of unknown variables that an answer names

Values = Mapping[str, str | None]  # by variable; None where the placeholder stays as it was written


def placeholders(plan: Definition) -> dict[str, str]:
    """The variables that a plan's texts name, in their order, each with its placeholder as first written."""
    found: dict[str, str] = {}
    for text in _texts(plan):
        for match in PLACEHOLDER.finditer(text):
            found.setdefault(match[1], match[0])
    return found


def _texts(plan: Definition) -> Iterator[str]:
    """All texts of a plan in which a placeholder counts."""
    yield from _texts_in(plan, IN_PLAN)
    for task in plan.tasks:
        yield from _texts_in(task, IN_TASK)


def _texts_in(thing: BaseModel, places: Sequence[str]) -> Iterator[str]:
    for place in places:
        value: str | list[str] | None = getattr(thing, place)
        yield from [value] if isinstance(value, str) else value or []


def declare_variables(plan: Definition, given: list[TemplateVariable] | None) -> list[TemplateVariable]:
    """A template's variables: those given, or every placeholder as a required one. Raises InvalidInput, by name."""
    found = placeholders(plan)
    if given is None:
        refuse_many(len(found))
        return [TemplateVariable(name=name, description="", required=True) for name in found]
    names = [variable.name for variable in given]
    for name in names:
        if not NAME.fullmatch(name):
            raise InvalidInput(
                f"'{name[:WORD]}' is no name of a variable",
                hint="A name has up to 64 of A-Z a-z 0-9 _ - and begins with a letter or _.",
            )
        if names.count(name) > 1:
            raise InvalidInput(f"variable '{name}' is declared twice", hint="Declare each variable once.")
    if undeclared := [name for name in found if name not in set(names)]:
        raise InvalidInput(
            f"the tasks name variables that are not declared: {_first_names(undeclared)}",
            hint="Declare them in variables, or leave variables out: then each placeholder is a required one.",
        )
    return given


def optional_variables(plan: Definition) -> list[TemplateVariable]:
    """The variables of a plan that was a workflow's: all optional, and a placeholder without a value stays as it is."""
    found = placeholders(plan)
    refuse_many(len(found))
    return [TemplateVariable(name=name, description="", required=False, default=text) for name, text in found.items()]


def refuse_many(count: int) -> None:
    if count > MOST_VARIABLES:
        raise LimitExceeded(
            f"the texts hold {count} different placeholders, and {MOST_VARIABLES} are allowed",
            hint="Use fewer variables, or split the template.",
        )


def refuse_unsound(tasks: Sequence[PlannedTask]) -> None:
    """Raise InvalidInput for a plan that could not be followed to its end, whatever the values are."""
    refuse_misnamed(tasks)
    standings([GraphTask(task.name, task.name, task.sequence, tuple(dict.fromkeys(task.depends_on))) for task in tasks])


def choose_values(variables: Sequence[TemplateVariable], given: Mapping[str, str]) -> Values:
    """The value of each variable: the given one, its default, or nothing. Raises InvalidInput, by name."""
    names = {variable.name: None for variable in variables}
    if unknown := [name for name in given if name not in names]:
        raise InvalidInput(
            f"the template has no variable {_first_names(unknown)}",
            hint=f"Its variables are {', '.join(names)}." if names else "It has none: leave variables out.",
        )
    if missing := [one.name for one in variables if one.required and one.name not in given]:
        raise InvalidInput(
            f"these variables must be given: {', '.join(missing)}",
            hint=f'Give each a text, as in variables: {{"{missing[0]}": "…"}}.',
        )
    return {one.name: given.get(one.name, _default(one)) for one in variables}


def _first_names(names: list[str]) -> str:
    """The first names, each in short."""
    more = [f"and {len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join([*(f"'{name[:WORD]}'" for name in names[:NAMED]), *more])


def _default(variable: TemplateVariable) -> str | None:
    """What is taken when nothing is given; None when the default is the placeholder itself."""
    own = PLACEHOLDER.fullmatch(variable.default or "")
    return None if own and own[1] == variable.name else variable.default or ""


def refuse_blow_up(plan: Definition, values: Values) -> None:
    """Raise LimitExceeded when the filled texts would be too large together; they are not made to find out."""
    size = filled_bytes(plan, values)
    if size > MOST_BYTES:
        raise LimitExceeded(
            f"the texts would have {size} bytes, and {MOST_BYTES} are allowed",
            hint="Give shorter values, keep long texts in files and name their paths, or split the work.",
        )


def filled_bytes(plan: Definition, values: Values) -> int:
    """How large the texts would be together once they are filled."""
    sizes = {name: len(value.encode()) for name, value in values.items() if value is not None}
    size = 0
    for text in _texts(plan):
        size += len(text.encode())
        for match in PLACEHOLDER.finditer(text):
            size += sizes.get(match[1], len(match[0])) - len(match[0])
    return size


def fill_plan(plan: Definition, values: Values) -> Definition:
    """The plan with each placeholder replaced by its value, in one pass. Raises InvalidInput that names the task."""

    def fill(text: str) -> str:
        return PLACEHOLDER.sub(lambda match: _value_or_placeholder(values.get(match[1]), match[0]), text)

    words = {place: _fill_each(fill, getattr(plan, place)) for place in IN_PLAN}
    return plan.model_copy(update=words | {"tasks": [_fill_task(task, fill) for task in plan.tasks]})


def _value_or_placeholder(value: str | None, written: str) -> str:
    return written if value is None else value


def _fill_each(fill: Callable[[str], str], value: Any) -> Any:
    """A text or a list of texts, filled."""
    return fill(value) if isinstance(value, str) else value and [fill(one) for one in value]


def _fill_task(task: PlannedTask, fill: Callable[[str], str]) -> PlannedTask:
    words = {place: _fill_each(fill, getattr(task, place)) for place in IN_TASK}
    try:
        return PlannedTask.model_validate(task.model_dump() | words)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise InvalidInput(
            f"with these values task '{task.name}' has a wrong {place}: {problem['msg'].lower()[:200]}",
            hint="Give other values: what they make is checked like any plan.",
        ) from None
