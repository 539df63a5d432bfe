"""Every event that the code raises is declared in crewhall/events.py, and every declared one is raised."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from crewhall.events import EVENTS

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
Place = tuple[str, str]  # an event's name, and the line that raises it


def possible_names(node: ast.expr, hints: dict[str, Any]) -> list[str]:
    """The texts that an expression can be: a text, either side of an `if`, or one with a parameter of Literal type.

    Raises KeyError for a name whose values are not known.
    """
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.IfExp(body=first, orelse=second):
            return possible_names(first, hints) + possible_names(second, hints)
        case ast.Name(id=name) | ast.FormattedValue(value=ast.Name(id=name)) if get_origin(hints[name]) is Literal:
            return list(get_args(hints[name]))
        case ast.JoinedStr(values=parts):
            names = [""]
            for part in parts:
                names = [left + right for left in names for right in possible_names(part, hints)]
            return names
    raise KeyError(ast.unparse(node))


def raised_in(tree: ast.Module, hints: dict[str, dict[str, Any]], where: str) -> Iterator[Place]:
    """The events that a module raises; `hints` are the types of its functions' parameters."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "event":
                place = f"{where}:{node.lineno}"
                try:
                    names = possible_names(node.args[0], hints.get(function.name, {}))
                except KeyError:
                    raise AssertionError(
                        f"{place} raises {ast.unparse(node.args[0])}, which can be anything: "
                        "write the name out, or annotate the parameter in it with a Literal of its values"
                    ) from None
                yield from ((name, place) for name in names)


@cache
def raised() -> list[Place]:
    """Every event that crewhall raises, with its place."""
    places: list[Place] = []
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        if re.search(r"\btx\.event\(", text):
            module = import_module(".".join(path.relative_to(SOURCES).with_suffix("").parts))
            functions = inspect.getmembers(module, inspect.isfunction)
            hints = {name: get_type_hints(one) for name, one in functions if one.__module__ == module.__name__}
            places += raised_in(ast.parse(text), hints, str(path.relative_to(ROOT)))
    return places


def test_every_event_that_is_raised_is_declared() -> None:
    for name, place in raised():
        assert name in EVENTS, f"{place} raises '{name}': add it to EVENTS in src/crewhall/events.py, run `make docs`"


def test_every_declared_event_is_raised() -> None:
    for name in EVENTS:
        assert name in {one for one, _ in raised()}, (
            f"nothing raises '{name}': remove it from EVENTS in src/crewhall/events.py, then run `make docs`"
        )


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_a_noun_and_a_verb_with_a_sentence(name: str) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", name), f"'{name}' in src/crewhall/events.py is not noun.verb"
    assert EVENTS[name].subject and EVENTS[name].about.endswith("."), f"say in a sentence what '{name}' means"


def names_in(source: str) -> list[str]:
    hints = {"f": {"how": Literal["read", "archived"], "free": str}}
    return [name for name, _ in raised_in(ast.parse(f"def f():\n    {source}"), hints, "here")]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("tx.event('a.b', id)", ["a.b"]),
        ("tx.event('a.b' if error else 'a.c', id)", ["a.b", "a.c"]),
        ("tx.event(f'a.{how}', id)", ["a.read", "a.archived"]),
    ],
)
def test_the_names_of_an_event_are_read_from_the_source(source: str, names: list[str]) -> None:
    assert names_in(source) == names


@pytest.mark.parametrize("source", ["tx.event(f'a.{free}', id)", "tx.event(what, id)", "tx.event(f'a.{x.y}', id)"])
def test_an_event_that_can_be_anything_is_refused(source: str) -> None:
    with pytest.raises(AssertionError, match=r"here:2 raises .* annotate the parameter"):
        names_in(source)
