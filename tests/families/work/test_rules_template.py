"""Placeholders, variables and what values make of a plan: tables, and properties against the rule as it is written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.errors import InvalidInput, LimitExceeded
from crewhall.families.work.task.model import PlannedTask
from crewhall.families.work.template.model import MOST_VARIABLES, Definition, TemplateVariable
from crewhall.families.work.template.rules import (
    MOST_BYTES,
    choose_values,
    declare_variables,
    fill_plan,
    filled_bytes,
    optional_variables,
    placeholders,
    refuse_blow_up,
    refuse_unsound,
)

LONGEST = "n" * 64
# What looks like a placeholder and is none; no two of them make one when they meet.
JUNK = ["x", " ", "é漢😀", "{", "}", "{{}}", "{{ }}", "${{ a.b }}", "{{a b}}", "{{1a}}", "{{-a}}", "{{a\n}}", "{{é}}"]
NAMES = ["a", "b", "_", "A-1", LONGEST]
BLANKS = st.text(" \t", max_size=2)
written = st.builds("{{{{{}{}{}}}}}".format, BLANKS, st.sampled_from(NAMES), BLANKS)
texts = st.lists(st.sampled_from(JUNK) | written, max_size=6)
values = st.sampled_from(["", "v", "{{a}}", "{{ b }}", "{{", "}}", "漢", "\\1", "\\g<1>"]) | st.text(max_size=20)


def plan(*descriptions: str, **more: Any) -> Definition:
    tasks = [PlannedTask(name=f"t{n}", description=text, sequence=1) for n, text in enumerate(descriptions or ("",))]
    return Definition(**{"tasks": tasks} | more)


def one(**told: Any) -> Definition:
    """A plan of one task."""
    named: dict[str, Any] = {"name": "t", "description": "", "sequence": 1}
    return Definition(tasks=[PlannedTask(**named | told)])


def variable(name: str, required: bool = True, default: str | None = None) -> TemplateVariable:
    return TemplateVariable(name=name, description="", required=required, default=default)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{{a}}", ["a"]),
        ("{{ a }} {{\tb\t}}", ["a", "b"]),
        ("{{b}}{{a}}{{ b }}", ["b", "a"]),
        ("{{_}} {{a-b}} {{A1_}}", ["_", "a-b", "A1_"]),
        ("{{{a}}}", ["a"]),
        ("cost: ${{price}}", ["price"]),
        ("{{" + LONGEST + "}}", [LONGEST]),
        ("{{n" + LONGEST + "}}", []),
        *((junk, []) for junk in JUNK),
        ("{a} {{a} {a}} { {a} }", []),
        ("{" * 30_000 + " " * 30_000 + "a" * 30_000, []),
        ("{{a" + " " * 30_000 + "}", []),
    ],
)
def test_a_placeholder_is_a_name_in_two_braces_and_nothing_else(text: str, names: list[str]) -> None:
    assert list(placeholders(plan(text))) == names


def test_placeholders_count_in_every_text_of_a_plan_but_its_capabilities() -> None:
    told: dict[str, Any] = {
        "name": "{{n}}",
        "description": "{{d}}",
        "parallel_group": "{{g}}",
        "depends_on": ["{{o}}"],
        "files_likely_affected": ["{{f}}/{{f2}}"],
        "required_capabilities": ["{{c}}"],
    }
    words: dict[str, Any] = {"summary": "{{s}}", "approach": "{{p}}", "risks": ["{{r}}"], "assumptions": ["{{u}}"]}
    whole = Definition(tasks=[PlannedTask(sequence=1, **told)], **words)
    names = ["s", "p", "r", "u", "n", "d", "g", "o", "f", "f2"]
    assert list(placeholders(whole)) == names
    made = fill_plan(whole, {name: name.upper() for name in names})
    assert made.tasks[0].model_dump() == {
        "name": "N",
        "description": "D",
        "sequence": 1,
        "parallel_group": "G",
        "depends_on": ["O"],
        "estimated_complexity": None,
        "files_likely_affected": ["F/F2"],
        "required_capabilities": ["{{c}}"],
    }
    assert (made.summary, made.approach, made.risks, made.assumptions) == ("S", "P", ["R"], ["U"])


@given(texts, st.fixed_dictionaries(dict.fromkeys(NAMES, values)))
def test_values_are_put_in_in_one_pass_and_the_bytes_are_known_before(parts: list[str], given: dict[str, str]) -> None:
    """A value that looks like a placeholder stays text, and so does what it makes with its neighbours."""
    expected = "".join(part if part in JUNK else given[part.strip("{} \t")] for part in parts)
    whole = plan("".join(parts), summary="".join(parts))
    made = fill_plan(whole, given)
    assert made.tasks[0].description == made.summary == expected
    assert filled_bytes(whole, given) == len(made.tasks[0].name) + 2 * len(expected.encode())


@given(st.lists(texts, min_size=1, max_size=4))
def test_a_workflows_plan_comes_back_as_it_was_when_nothing_is_given(descriptions: list[list[str]]) -> None:
    whole = plan(*map("".join, descriptions), approach="".join(descriptions[0]))
    variables = optional_variables(whole)
    assert not any(one.required for one in variables)
    assert fill_plan(whole, choose_values(variables, {})) == whole


def test_what_was_written_in_two_ways_stays_in_two_ways() -> None:
    whole = plan("{{a}} {{ a }} {{\ta}}{{b}}")
    variables = optional_variables(whole)
    assert [(one.name, one.required, one.default) for one in variables] == [
        ("a", False, "{{a}}"),
        ("b", False, "{{b}}"),
    ]
    assert (
        fill_plan(whole, choose_values(variables, {"b": "{{a}}"})).tasks[0].description == "{{a}} {{ a }} {{\ta}}{{a}}"
    )
    assert fill_plan(whole, choose_values(variables, {"a": "1"})).tasks[0].description == "1 1 1{{b}}"


def test_every_placeholder_is_required_unless_variables_are_declared() -> None:
    whole = plan("{{b}} {{a}} {{b}}")
    assert declare_variables(whole, None) == [variable("b"), variable("a")]
    told = [variable("unused", False), variable("a", False, "x"), variable("b")]
    assert declare_variables(whole, told) == told
    assert declare_variables(plan("none"), []) == declare_variables(plan("none"), None) == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a"], "not declared: 'b'$"),
        ([], "not declared: 'a', 'b'$"),
        (["a", "b", "a"], "variable 'a' is declared twice"),
        (["a", "b", "{{c}}"], "'{{c}}' is no name"),
        (["a", "b", ""], "'' is no name"),
        (["a", "b", "a\n"], "is no name"),
        (["a", "b", "n" + LONGEST], f"'n{LONGEST}' is no name"),
        (["a", "b", "x" * 9_000], f"'{'x' * 80}' is no name"),
    ],
)
def test_what_is_declared_wrongly_is_refused_by_name(names: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        declare_variables(plan("{{a}} {{b}}"), [variable(name) for name in names])


def test_a_template_has_so_many_variables_and_no_more() -> None:
    full = plan(" ".join(f"{{{{v{n}}}}}" for n in range(MOST_VARIABLES)))
    assert len(declare_variables(full, None)) == len(optional_variables(full)) == MOST_VARIABLES
    over = plan(" ".join(f"{{{{v{n}}}}}" for n in range(MOST_VARIABLES + 1)))
    with pytest.raises(LimitExceeded, match="201 different"):
        declare_variables(over, None)
    with pytest.raises(LimitExceeded, match="201 different"):
        optional_variables(over)
    with pytest.raises(InvalidInput, match="'v0', 'v1', 'v2', 'v3', 'v4', and 196 more"):
        declare_variables(over, [])


VARIABLES = [
    variable("must"),
    variable("both", True, "d"),
    variable("may", False),
    variable("else", False, "d"),
    variable("own", False, "{{ own }}"),
    variable("other", False, "{{own}}"),
]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, {"may": "", "else": "d", "own": None, "other": "{{own}}"}),
        ({"may": "m", "else": "", "own": "o"}, {"may": "m", "else": "", "own": "o", "other": "{{own}}"}),
    ],
)
def test_what_is_not_given_is_the_default_or_nothing(told: dict[str, str], expected: dict[str, Any]) -> None:
    needed = {"must": "1", "both": "2"}
    assert choose_values(VARIABLES, needed | told) == needed | expected


@pytest.mark.parametrize(
    ("told", "said", "hint"),
    [
        ({}, "must be given: must, both$", 'variables: {"must": "…"}'),
        ({"must": ""}, "must be given: both$", '{"both": '),
        ({"must": "", "both": "", "mast": ""}, "no variable 'mast'$", "are must, both, may, else, own, other."),
        ({"x" * 9_000: ""}, f"no variable '{'x' * 80}'$", "are must, both"),
        ({str(n): "" for n in range(9)}, "'0', '1', '2', '3', '4', and 4 more", "are must, both"),
    ],
)
def test_missing_and_unknown_variables_are_refused_by_name(told: dict[str, str], said: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        choose_values(VARIABLES, told)
    assert hint in refused.value.hint
    with pytest.raises(InvalidInput) as refused:
        choose_values([], {"a": "1"})
    assert refused.value.hint == "It has none: leave variables out."


@pytest.mark.parametrize(
    ("told", "value", "said"),
    [
        ({"name": "{{v}}"}, "", r"task '\{\{v\}\}' has a wrong name: .* at least 1 char"),
        ({"name": "a {{v}}"}, "x" * 199, r"task 'a \{\{v\}\}' has a wrong name: .* at most 200 char"),
        ({"parallel_group": "{{v}}"}, "x" * 101, "task 't' has a wrong parallel_group: .* at most 100"),
        ({"depends_on": ["u", "{{v}}"]}, "", "wrong depends_on.1: "),
        ({"files_likely_affected": ["{{v}}"]}, "漢" * 1_400, "wrong files_likely_affected.0: .*4096 bytes"),
        ({"description": "{{v}}" * 11}, "x" * 10_000, "wrong description: .* at most 100000"),
    ],
)
def test_what_values_make_is_checked_like_any_task(told: dict[str, Any], value: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        fill_plan(one(**told), {"v": value})


def test_texts_that_would_blow_up_are_refused_before_they_are_made() -> None:
    bomb = plan(*["{{v}}" * 20_000] * 40)
    with pytest.raises(LimitExceeded, match=str(40 * 20_000 * 10_000 + 40 * 3 - 10)):
        refuse_blow_up(bomb, {"v": "x" * 10_000})
    room = MOST_BYTES - len("t0")
    refuse_blow_up(plan("{{v}}"), {"v": "漢" * (room // 3)})
    with pytest.raises(LimitExceeded):
        refuse_blow_up(plan("{{v}}"), {"v": "漢" * (room // 3 + 1)})


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([("{{a}}", 1, []), ("{{a}}", 1, [])], "two tasks named"),
        ([("a", 1, ["{{b}}"])], "which is not in the plan"),
        ([("{{a}}", 1, ["{{ a }}"])], "which is not in the plan"),
        ([("a", 1, ["a"])], "depends on itself"),
        ([("{{a}}", 1, ["b"]), ("b", 1, ["{{a}}"])], "for ever: "),
        ([("a", 1, ["b"]), ("b", 2, [])], "for ever: "),
    ],
)
def test_a_plan_that_no_value_makes_sound_is_refused(tasks: list[tuple[str, int, list[str]]], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        refuse_unsound([PlannedTask(name=n, description="", sequence=s, depends_on=d) for n, s, d in tasks])
    refuse_unsound([PlannedTask(name=n, description="", sequence=s) for n, s, _ in dict.fromkeys(map(_free, tasks))])


def _free(task: tuple[str, int, list[str]]) -> tuple[str, int, None]:
    return task[0], task[1], None
