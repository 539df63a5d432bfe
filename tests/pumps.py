"""
Every regular expression of the product, and texts that each might take for ever to read.

    module ─▶ patterns it holds, patterns its functions give to re
    pattern ─▶ for each repeat: what leads there, more and more of what it takes, an end that fits nothing ─▶ time
"""

import ast
import importlib
import multiprocessing
import pkgutil
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import crewhall

sre: Any = importlib.import_module("re._constants")
sre_parse: Any = importlib.import_module("re._parser")

READING = ("compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer")
PROBES = "aZ0_- \t\n.\"'`=/#@:+{<(\\[*|~$!>};,é\x00"
ENDS = ("\x00", "\n")
LONG = 10  # repeats up to this number cannot take long
SIZE = 2_400
SLOW_SECONDS = 0.002  # for a text of that size; what takes longer is measured with care
PROCESSES = multiprocessing.get_context("fork")
GROWTH = 8.0  # of the time, when a text is four times as long


@dataclass(frozen=True)
class Found:
    """A pattern, where it was found, and how it is read: `fullmatch`, `match` or `search` (which all else does)."""

    place: str
    pattern: "re.Pattern[Any]"
    way: str

    def read(self, text: str) -> None:
        given: Any = text.encode("latin-1") if isinstance(self.pattern.pattern, bytes) else text
        if self.way == "search":
            for _ in self.pattern.finditer(given):
                pass
        else:
            getattr(self.pattern, self.way)(given)


def modules() -> list[ModuleType]:
    """All modules of the product except those that run when they are imported."""
    names = [module.name for module in pkgutil.walk_packages(crewhall.__path__, "crewhall.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def patterns_held() -> list[Found]:
    """The patterns that modules hold by a name, in whatever, as those are read that have such a name."""
    ways = _ways_by_name()
    return [
        Found(_place(module, name), pattern, way)
        for module in modules()
        for name, pattern in _held(module)
        for way in ways.get(name, {"search"})
    ]


def patterns_given() -> tuple[list[Found], list[str]]:
    """The patterns that functions give to re, and the places of those that are put together when these run."""
    found, made = [], []
    for module in modules():
        for function, way, call in _given(module):
            pattern = _evaluated(call, module)
            if pattern is None:
                made.append(_place(module, function))
            elif function or way != "compile":
                found.append(Found(_place(module, function), pattern, "search" if way == "compile" else way))
    return found, made


def _place(module: ModuleType, name: str) -> str:
    return f"{module.__name__.removeprefix('crewhall.')}.{name}"


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text("utf-8"))


def _way(method: str) -> str:
    return method if method in ("match", "fullmatch", "compile") else "search"


@cache
def _ways_by_name() -> dict[str, set[str]]:
    """How patterns are read, by the names that they have in the sources: `KEY.search(…)`."""
    ways: dict[str, set[str]] = {}
    for module in modules():
        for node in ast.walk(_tree(module)):
            if isinstance(node, ast.Attribute) and node.attr in READING[1:]:
                held = node.value
                name = held.attr if isinstance(held, ast.Attribute) else held.id if isinstance(held, ast.Name) else ""
                ways.setdefault(name, set()).add(_way(node.attr))
    return ways


def _held(module: ModuleType) -> Iterator[tuple[str, "re.Pattern[Any]"]]:
    """The patterns that a module's names hold, in whatever."""
    for name, value in list(vars(module).items()):
        if not isinstance(value, ModuleType):
            yield from ((name, pattern) for pattern in _in(value, depth=4))


def _in(value: Any, depth: int) -> Iterator["re.Pattern[Any]"]:
    if isinstance(value, re.Pattern):
        yield value
        return
    inner: list[Any] = []
    if depth and isinstance(value, tuple | list | set | frozenset):
        inner = list(value)
    elif depth and isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif depth and is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, field.name, None) for field in fields(value)]
    for one in inner:
        yield from _in(one, depth - 1)


def _given(module: ModuleType) -> Iterator[tuple[str, str, ast.Call]]:
    """The calls of re in a module: in which function, how the pattern is read, the call."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            call: Any = child.func if isinstance(child, ast.Call) else None
            if call is not None and ast.unparse(call) in [f"re.{method}" for method in READING]:
                yield inner, _way(call.attr), cast(ast.Call, child)
            yield from walk(child, inner)

    yield from walk(_tree(module), "")


def _evaluated(call: ast.Call, module: ModuleType) -> "re.Pattern[Any] | None":
    """The pattern of a call, if it is made of nothing but what the module's names hold."""
    given = {word.arg: word.value for word in call.keywords}
    at = {"compile": 1, "match": 2, "search": 2, "fullmatch": 2, "findall": 2, "finditer": 2}
    method = call.func.attr  # type: ignore[attr-defined]
    position = at.get(method, 9)
    flags = given.get("flags") or (call.args[position] if len(call.args) > position else ast.Constant(0))
    try:
        pattern, how = (eval(compile(_expression(one), "", "eval"), vars(module)) for one in (call.args[0], flags))
        return re.compile(pattern, how)
    except (NameError, TypeError, AttributeError):
        return None


def _expression(node: ast.expr) -> ast.Expression:
    return ast.fix_missing_locations(ast.Expression(node))


# From here on: texts.


def texts(pattern: "re.Pattern[Any]") -> Iterator[Callable[[int], str]]:
    """Makers of texts of about so many characters, one for each repeat, what it takes, and an end."""
    tree = sre_parse.parse(pattern.pattern, pattern.flags & ~re.DEBUG if isinstance(pattern.pattern, str) else 0)
    groups: dict[int, str] = {}
    whole = _sample(tree, groups)
    seen: set[tuple[str, str]] = set()
    for before, pump in [("", whole), *_pumps(tree, "", groups)]:
        for lead, part in ((before, pump), ("", before + pump)):
            if part and (lead, part) not in seen:
                seen.add((lead, part))
                for end in ENDS:
                    yield partial(_pumped, lead, part, end)


def _pumped(lead: str, part: str, end: str, size: int) -> str:
    return lead + part * max(1, size // len(part)) + end


def _pumps(tree: Any, before: str, groups: dict[int, str]) -> Iterator[tuple[str, str]]:
    """What leads to each repeat, with what it takes."""
    for operation, value in tree:
        if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            _, most, body = value
            if most > LONG:
                yield from ((before, pump) for pump in _bodies(body, groups))
            yield from _pumps(body, before, groups)
        else:
            for inner in _inner(operation, value):
                yield from _pumps(inner, before, groups)
        before += _sample([(operation, value)], groups)


def _inner(operation: Any, value: Any) -> list[Any]:
    if operation is sre.SUBPATTERN:
        return [value[3]]
    if operation is sre.BRANCH:
        return list(value[1])
    if operation is sre.ATOMIC_GROUP:
        return [value]
    if operation in (sre.ASSERT, sre.ASSERT_NOT):
        return [value[1]]
    return [one for one in value[1:] if one] if operation is sre.GROUPREF_EXISTS else []


def _bodies(body: Any, groups: dict[int, str]) -> list[str]:
    """What a repeat takes: each probe that one of its letters may be, and a sample of each way through it."""
    found = [probe for probe in PROBES if any(_takes(one, probe) for one in _letters(body))]
    return list(dict.fromkeys([*found, *_samples(body, groups)]))


def _letters(tree: Any) -> Iterator[tuple[Any, Any]]:
    """The single letters and classes in a tree."""
    for operation, value in tree:
        if operation in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            yield operation, value
        elif operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            yield from _letters(value[2])
        else:
            for inner in _inner(operation, value):
                yield from _letters(inner)


CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _takes(letter: tuple[Any, Any], probe: str) -> bool:
    operation, value = letter
    if operation is sre.LITERAL:
        return bool(ord(probe) == value)
    if operation is sre.NOT_LITERAL:
        return bool(ord(probe) != value)
    if operation is sre.ANY:
        return True
    is_not, takes = False, False
    for kind, one in value:
        if kind is sre.NEGATE:
            is_not = True
        elif kind is sre.LITERAL:
            takes |= ord(probe) == one
        elif kind is sre.RANGE:
            takes |= one[0] <= ord(probe) <= one[1]
        elif kind is sre.CATEGORY:
            takes |= re.match(CATEGORIES[one], probe) is not None
    return takes != is_not


def _letter(letter: tuple[Any, Any]) -> str:
    """One character that a letter or class takes."""
    if letter[0] is sre.LITERAL:
        return chr(letter[1])
    candidates = [*PROBES, *map(chr, range(33, 256))]
    if letter[0] is sre.IN:
        candidates += [
            chr(one if kind is sre.LITERAL else one[0]) for kind, one in letter[1] if kind in (sre.LITERAL, sre.RANGE)
        ]
    return next((one for one in candidates if _takes(letter, one)), "a")


def _sample(tree: Any, groups: dict[int, str]) -> str:
    """A text that the tree takes, by its first ways; assertions ahead are passed over."""
    return _samples(tree, groups)[0]


def _samples(tree: Any, groups: dict[int, str]) -> list[str]:
    """Such texts, one for each way of its first branch."""
    found = [""]
    for operation, value in tree:
        further = [""]
        if operation in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            further = [_letter((operation, value))]
        elif operation in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, most, body = value
            further = [one * max(least, min(1, most)) for one in _samples(body, groups)]
        elif operation is sre.SUBPATTERN:
            further = _samples(value[3], groups)
            groups[value[0]] = further[0]
        elif operation is sre.BRANCH:
            further = [_sample(one, groups) for one in value[1]]
        elif operation is sre.ATOMIC_GROUP:
            further = _samples(value, groups)
        elif operation is sre.ASSERT and value[0] < 0:
            further = [_sample(value[1], groups)]
        elif operation is sre.GROUPREF:
            further = [groups.get(value, "")]
        found = [one + more for one in found for more in further][:12]
    return found


def spent(found: Found, text: str) -> float:
    """Processor time that a reading takes."""
    began = time.process_time()
    found.read(text)
    return time.process_time() - began


def growing(found: Found) -> str | None:
    """What makes a pattern take more than its share of time when a text is longer, or None."""
    for make in texts(found.pattern):
        if spent(found, make(SIZE)) > SLOW_SECONDS and _grows(found, make):
            return f"{make(20)!r}"
    return None


def _grows(found: Found, make: Callable[[int], str]) -> bool:
    size = SIZE // 4
    short, long = (min(spent(found, make(one)) for _ in range(5)) for one in (size, 4 * size))
    return long > GROWTH * max(short, 1e-6)


def slow(every: Sequence[Found], patience: float = 10.0) -> dict[str, str]:
    """The patterns that take more than their share, by their places, with what shows it.

    They are tried in a process of its own, which is ended when one of them says nothing for so long.
    """
    faults: dict[str, str] = {}
    left = list(every)
    while left:
        ours, theirs = PROCESSES.Pipe()
        child = PROCESSES.Process(target=_try, args=(left, theirs), daemon=True)
        child.start()
        theirs.close()
        try:
            while left and ours.poll(patience):
                fault, one = ours.recv(), left.pop(0)
                faults |= {one.place: fault} if fault else {}
            if left:
                faults[left.pop(0).place] = "it does not end"
        finally:
            child.kill()
            child.join()
            ours.close()
    return faults


def _try(every: Sequence[Found], pipe: Connection) -> None:
    for one in every:
        pipe.send(growing(one))
