"""A contract is what it has to be, or every field that is not is named."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from crewhall.families.judge.model import Contract
from crewhall.families.judge.rules_answer import problems

WHOLE: dict[str, Any] = {
    "task_id": "T-1",
    "specification": {"requirements": ["it adds"]},
    "acceptance_criteria": ["1 + 1 is 2"],
    "changed_files": ["src/a.py"],
}
EMPTY: list[Any] = [None, "", " \n", [], {}]
FIELDS = (*WHOLE, "workflow_id", "handoff_data")
GONE = object()


def with_(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in (WHOLE | fields).items() if value is not GONE}


def wrong(told: Any) -> list[str]:
    """What is wrong with a contract, field by field."""
    try:
        Contract.model_validate(told)
    except ValidationError as error:
        return problems(error)
    return []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"task_id": "fix: größer, 2. Versuch"},
        {"task_id": "x" * 200},
        {"workflow_id": "wf_1"},
        {"workflow_id": None},
        {"acceptance_criteria": {"functional": ["a"], "tests": {"unit": True}}},
        {"acceptance_criteria": [{"id": 1, "text": "a"}, 0, False]},
        {"complexity": "high", "git": {"base": "main"}, "task_ID": "other"},
        {"specification": {"requirements": ["a"], "target_file": "x", "description": 1}},
        {"changed_files": ["a"] * 2000},
    ],
)
def test_what_is_whole_is_taken_whatever_else_it_says(fields: dict[str, Any]) -> None:
    assert wrong(with_(**fields)) == []


@pytest.mark.parametrize("name", ["acceptance_criteria", "changed_files"])
@pytest.mark.parametrize("place", ["specification", "handoff_data"])
def test_criteria_and_files_may_be_in_other_places(name: str, place: str) -> None:
    inner = {**(WHOLE["specification"] if place == "specification" else {}), name: ["there"]}
    assert getattr(Contract.model_validate(with_(**{name: GONE, place: inner})), name) == ["there"]
    assert getattr(Contract.model_validate(with_(**{place: inner})), name) == WHOLE[name], "the top comes first"
    assert wrong(with_(**{name: GONE, place: {**inner, name: []}}))[0].startswith(f"{place}.{name}: ")


@pytest.mark.parametrize("place", [[], "x", None, 1, ["changed_files"]])
def test_a_place_that_is_none_is_passed_over(place: Any) -> None:
    assert wrong(with_(handoff_data=place)) == []
    assert wrong(with_(changed_files=GONE, handoff_data=place)) == ["changed_files: field required"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        *(({name: GONE}, f"{name}: field required") for name in WHOLE),
        *(({name: 5}, name) for name in (*WHOLE, "workflow_id")),
        *(({name: None}, name) for name in WHOLE),
        *(({name: []}, name) for name in (*WHOLE, "workflow_id")),
        *(
            ({"task_id": odd}, "task_id: it has letters")
            for odd in (" T", "T ", "T\n", "T\0", "T\u2028x", "T\u202e", " ")
        ),
        ({"task_id": ""}, "task_id: string should have at least 1"),
        ({"task_id": "x" * 201}, "task_id: string should have at most 200"),
        ({"task_id": "\ud800"}, "task_id"),
        ({"workflow_id": "wf\0"}, "workflow_id: it has letters"),
        ({"specification": {}}, "specification.requirements: field required"),
        ({"specification": {"requirements": []}}, "specification.requirements"),
        ({"specification": {"requirements": "it adds"}}, "specification.requirements"),
        ({"specification": {"requirements": ["a", ""]}}, "specification.requirements.1"),
        ({"specification": {"requirements": ["x" * 20_001]}}, "specification.requirements.0"),
        ({"acceptance_criteria": {}}, "acceptance_criteria"),
        ({"acceptance_criteria": "all"}, "acceptance_criteria"),
        *(({"acceptance_criteria": ["a", empty]}, "acceptance_criteria: item 1 is null or empty") for empty in EMPTY),
        *(
            ({"acceptance_criteria": {"tests": empty}}, "acceptance_criteria: item 'tests' is null or empty")
            for empty in [*EMPTY, ["a", None], ["a", " "]]
        ),
        ({"acceptance_criteria": {"\ud800\n": None}}, "acceptance_criteria"),
        ({"changed_files": "src/a.py"}, "changed_files"),
        ({"changed_files": ["a", {"path": "b"}]}, "changed_files.1"),
        ({"changed_files": [""]}, "changed_files.0"),
        ({"changed_files": ["a\ud800"]}, "changed_files.0"),
        ({"changed_files": ["a"] * 2001}, "changed_files"),
        ({"changed_files": ["x" * 4097]}, "changed_files.0"),
    ],
)
def test_a_field_that_is_wrong_is_named(fields: dict[str, Any], named: str) -> None:
    told = wrong(with_(**fields))
    assert told and all(one.startswith(named) for one in told), told
    json.dumps(told).encode()


def test_every_wrong_field_is_named_however_often_one_of_them_is() -> None:
    told = wrong({"task_id": 1, "specification": {"requirements": [1] * 900}, "changed_files": [2] * 900})
    assert [one.partition(":")[0] for one in told] == [
        "task_id",
        "specification.requirements.0",
        "acceptance_criteria",
        "changed_files.0",
    ]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda one: (
        st.lists(one, max_size=3) | st.dictionaries(st.sampled_from([*WHOLE, "requirements", "x"]), one, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, ANY)))
def test_whatever_is_given_is_a_contract_or_refused_field_by_field(told: dict[str, Any]) -> None:
    found = wrong(told)
    assert all(one.partition(":")[0].partition(".")[0] in FIELDS for one in found)
    if not found:
        contract = Contract.model_validate(told)
        assert contract.changed_files and contract.acceptance_criteria and contract.task_id.strip()
