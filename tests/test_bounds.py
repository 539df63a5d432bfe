"""What a call may be is bounded before it is looked at: how many items, how many fields, how many problems are told."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from crewhall.app import Call
from crewhall.declaration import COUNTED, PROBLEMS, SPARE, Declaration
from crewhall.errors import InvalidInput
from crewhall.families.all import registry
from crewhall.families.work.model import Done
from crewhall.tool import Tool
from tests.sizes import size

DECLARED = [*registry().tools, *registry().prompts]
MANY = size(5_000, 1_300_000)  # as many as 4 MiB hold
each = pytest.mark.parametrize("declared", DECLARED, ids=lambda declared: declared.name)


def nodes(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within one, by its place."""
    if isinstance(schema, list):
        for number, one in enumerate(schema):
            yield from nodes(one, f"{place}|{number}")
    elif isinstance(schema, dict):
        yield place, schema
        for name, one in schema.get("properties", {}).items():
            yield from nodes(one, f"{place}.{name}")
        for key in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"):
            yield from nodes(schema.get(key), f"{place}[{key}]")


@each
def test_no_list_and_no_mapping_is_unbounded(declared: Declaration) -> None:
    for place, node in nodes(declared.input_schema):
        if node.get("type") == "array":
            assert "maxItems" in node, f"{declared.name}{place}: give the list a max_length"
        elif isinstance(node.get("additionalProperties"), dict):
            assert "maxProperties" in node, f"{declared.name}{place}: give the mapping a max_length"
        elif node.get("type") == "object" and "properties" in node:
            assert node["additionalProperties"] is False, f"{declared.name}{place}: make it an InputModel"


def floods(schema: dict[str, Any]) -> Iterator[Any]:
    """Values that are wrong many times over, in every place where a value may have parts."""
    for option in schema.get("anyOf", [schema]):
        if option.get("type") == "array":
            yield [0.5] * MANY
            yield [{"x": 1}] * MANY
            yield [dict.fromkeys(map(str, range(SPARE)))] * MANY
            yield from ([flood] for flood in floods(option["items"]))
        elif option.get("type") == "object" and (
            option.get("properties") or option["additionalProperties"] is not True
        ):
            yield dict.fromkeys(map(str, range(MANY)))
            for name, inner in option.get("properties", {}).items():
                yield from ({name: flood} for flood in floods(inner))


@each
def test_what_is_wrong_a_million_times_is_no_million_problems(declared: Declaration) -> None:
    for flood in floods(declared.input_schema):
        with pytest.raises(ValidationError) as wrong:
            declared.arguments.model_validate(flood)
        assert wrong.value.error_count() <= 4 * (len(declared.arguments.model_fields) + SPARE), str(flood)[:200]
        with pytest.raises(InvalidInput) as refused:
            declared.parse(flood)
        assert len(refused.value.message) < 2_000


def test_more_arguments_than_a_tool_takes_are_refused_by_their_number() -> None:
    tool = registry().find("agent_get")
    with pytest.raises(InvalidInput, match=r"^300 arguments, and agent_get takes 1"):
        tool.parse({f"x{number}": 1 for number in range(300)})
    with pytest.raises(InvalidInput, match="unknown argument 'ide', did you mean 'id'"):
        tool.parse({"ide": 1})


class Plain(BaseModel):
    """An object that is no InputModel."""

    rows: list[int]


def test_many_problems_are_counted_and_not_listed() -> None:
    def handler(call: Call, plain: Plain) -> Done:
        """Take."""
        return Done(success=True)

    tool = Tool("take", "wrong", handler, changes=False)
    with pytest.raises(InvalidInput, match=f"^{COUNTED + 1} parts of the arguments are wrong"):
        tool.parse({"plain": {"rows": [[]] * (COUNTED + 1)}})
    with pytest.raises(InvalidInput, match=r"plain.rows.0.*; and 1 more"):
        tool.parse({"plain": {"rows": [[]] * (PROBLEMS + 1)}})
