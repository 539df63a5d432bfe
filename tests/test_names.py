"""Names of the product: a class exists once, and a function is a verb or the noun it returns."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parent.parent / "src" / "crewhall"
# Class names that stand in two places for a reason.
TWICE: dict[str, str] = {}
REGULAR = re.compile("[a-z]+ed")
IRREGULAR = re.compile(
    "begun|born|bought|bound|broken|brought|built|caught|chosen|done|drawn|fed|felt|fought|found|given|gone|held|heard|"
    "hidden|kept|known|laid|led|left|lent|lost|made|meant|met|paid|said|seen|sent|shown|sold|sought|spent|taken|taught|"
    "thought|thrown|told|torn|understood|woken|worn|written"
)
# Words that only look regular. `read`, `put`, `cut`, `set` and `run` are verbs too, and so in no list.
NO_PARTICIPLE = ("bed", "embed", "exceed", "feed", "need", "proceed", "red", "seed", "shed", "speed")
CALL_IT = "Call it by a verb, or by the noun that it returns: not `told`, but `send_notice` or `message`."
RENAME_IT = "Give one of them a name of its own, or put the name into TWICE in tests/test_names.py with a reason."


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return word not in NO_PARTICIPLE and bool(REGULAR.fullmatch(word) or IRREGULAR.fullmatch(word))


def participles(source: str) -> Iterator[tuple[int, str]]:
    """The line and name of each function or method that is called by a past participle alone."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name):
            yield node.lineno, node.name


def class_names(source: str) -> list[str]:
    """The classes of a module, also those inside another class."""
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def modules() -> dict[str, str]:
    """The sources of the modules that are checked, by their paths below the product's package."""
    paths = {path.relative_to(PRODUCT).as_posix(): path for path in sorted(PRODUCT.rglob("*.py"))}
    return {name: path.read_text("utf-8") for name, path in paths.items()}


@pytest.mark.parametrize(
    "source",
    [
        "def told(): ...",
        "def _kept(): ...",
        "async def opened(): ...",
        "class Tray:\n    def taken(self): ...",
        "class Tray:\n    @property\n    def shown(self): ...",
        "def make():\n    def listed(): ...",
    ],
)
def test_a_participle_alone_is_found_wherever_it_stands(source: str) -> None:
    assert len(list(participles(source))) == 1


@pytest.mark.parametrize("name", ["read", "put", "cut", "set", "run", "feed", "seed", "shown_status", "get_locked"])
def test_a_verb_or_a_noun_is_no_participle(name: str) -> None:
    assert not is_participle(name)


def test_no_function_is_called_by_a_participle_alone() -> None:
    bad = [f"{name}:{line} {word}()" for name, text in modules().items() for line, word in participles(text)]
    assert not bad, f"{CALL_IT}\n" + "\n".join(bad)


def test_a_class_name_stands_in_one_place() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name, text in modules().items():
        for one in class_names(text):
            places[one].append(name)
    doubled = {one: where for one, where in places.items() if len(where) > 1}
    bad = [f"class {one}: {', '.join(where)}" for one, where in doubled.items() if one not in TWICE]
    assert not bad, f"{RENAME_IT}\n" + "\n".join(bad)
    stale = [one for one in TWICE if one not in doubled]
    assert not stale, f"these stand in one place now; take them out of TWICE: {stale}"
