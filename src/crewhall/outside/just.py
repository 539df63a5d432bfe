"""
Tasks of a project, by the command runner just: which public recipes its justfile has, and one of them run to its end.

    recipes(top, check, stop=None) -> [Recipe(name, doc, parameters, needs)]   modules' too, as `mod::recipe`
    run_recipe(top, name, check, *, seconds, most_bytes, …) -> Ended           its two streams in one, as they came

The justfile is the one in the root itself, whatever lies above it; that and what it leads to is inside the root, and
passes `check` (justfiles.py). Recipes run in the hub's environment without what is the hall's own in it, and with no
input.
"""

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from crewhall.errors import Failure, InvalidState, LimitExceeded, Unavailable
from crewhall.outside.environment import program_environment
from crewhall.outside.files import Top, pieces
from crewhall.outside.justfiles import Check, justfiles
from crewhall.outside.run import Ended, Heard, run, run_long
from crewhall.stop import Stop

LIST_SECONDS = 20.0
LIST_BYTES = 8_000_000
PROBLEM_CHARACTERS = 500  # of just's message about a broken justfile
PLACE = re.compile(r"^ *——▶ (.+):\d+:\d+$", re.MULTILINE)
UNREADABLE_IMPORT = "a file that it imports can't be read"


@dataclass(frozen=True)
class Recipe:
    """A public recipe, or another name of one; `needs` are those of its parameters that have no default."""

    name: str
    doc: str | None = None
    parameters: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def recipes(top: Top, check: Check, stop: Stop | None = None) -> list[Recipe]:
    """What `just --list` would show of the root's justfile and its modules, by name.

    Raises Unavailable without just, what `justfiles` raises, and InvalidState with just's words for one that is wrong.
    """
    just = _Just(top, check, stop)
    dump = json.loads(just.query("--dump", "--dump-format", "json"))
    listed = {name for name, told in dump["recipes"].items() if not told["private"]}
    if dump.get("modules"):  # the dump does not tell which of them are private
        listed = set(just.query("--summary").split())
    return sorted(_in_module(dump, "", listed), key=lambda recipe: recipe.name)


def run_recipe(
    top: Top,
    name: str,
    check: Check,
    *,
    seconds: float,
    most_bytes: int,
    stop: Stop | None = None,
    heard: Heard | None = None,
    variables: Iterable[str] = (),
) -> Ended:
    """Run a recipe that `recipes` has named, without arguments; see `run_long`. Any end is an answer.

    It gets the variables of this process that `program_environment` gives, with these. Raises what `justfiles` raises.
    """
    justfile, way = justfiles(top, check)[0], top.way
    with _in_path(program(), variables) as env:
        words = _words(way, _by(way, top, justfile), name)
        limits: dict[str, Any] = {"seconds": seconds, "most_bytes": most_bytes, "stop": stop}
        keep = (top.descriptor,) if way != top.root else ()
        return run_long(words, cwd=way, env=env, called=f"just {name}", merged=True, heard=heard, keep=keep, **limits)


def program() -> str:
    """Where just is: in PATH, or beside the Python that the hall runs on. Raises Unavailable."""
    found = shutil.which("just") or shutil.which("just", path=os.path.dirname(sys.executable))
    if found is None:
        raise Unavailable(
            "just is not installed where the hub runs",
            hint="pip install 'crewhall[just]' in the hall's environment, or install the system's package just.",
        )
    return os.path.abspath(found)  # the child is in another directory


class _Just:
    """Queries just about a justfile; no recipe runs."""

    def __init__(self, top: Top, check: Check, stop: Stop | None) -> None:
        self._top, self._check, self._stop = top, check, stop
        self._justfile = justfiles(top, check)[0]

    def query(self, *options: str) -> str:
        """Run just with these options and return its output. Raises LimitExceeded, InvalidState with the problem."""
        way = self._top.way
        words = _words(way, _by(way, self._top, self._justfile), *options)
        limits: dict[str, Any] = {"seconds": LIST_SECONDS, "most_bytes": LIST_BYTES, "stop": self._stop}
        ended = run(words, cwd=way, env=program_environment(os.environ), keep=[self._top.descriptor], **limits)
        if ended.left_out:
            raise LimitExceeded(
                f"{self._justfile} has too many recipes", hint=f"just lists more than {LIST_BYTES} bytes of them."
            )
        if ended.code != 0:
            said = self._problem(ended.err.decode("utf-8", "replace").replace(way, self._top.root))
            raise InvalidState(f"just can't read {self._justfile}: {said}", hint="Mend the justfile, then try again.")
        return ended.out.decode("utf-8", "replace")

    def _problem(self, words: str) -> str:
        """The problem and its line, if `check` allows the file; never the lines of the file that just quotes."""
        place = PLACE.search(words)
        if place is None:
            return UNREADABLE_IMPORT
        path = os.path.join(os.path.dirname(self._justfile), place[1])
        try:
            with self._top.file(path) as found:
                self._check(found.path, b"".join(pieces(found)))
        except Failure:
            return UNREADABLE_IMPORT
        return " ".join(words[: place.end()].split())[:PROBLEM_CHARACTERS]


def recipe_words(top: Top, name: str, check: Check) -> list[str]:
    """The command that runs a recipe which `recipes` has named, for another to start. Raises what `justfiles` does."""
    return _words(top.root, justfiles(top, check)[0], name)


def _by(way: str, top: Top, path: str) -> str:
    """A path in the root, as a child finds it that begins there."""
    return os.path.join(way, os.path.relpath(path, top.root))


def _words(way: str, justfile: str, *more: str) -> list[str]:
    return [program(), "--justfile", justfile, "--working-directory", way, *more]


@contextlib.contextmanager
def _in_path(just: str, variables: Iterable[str]) -> Iterator[dict[str, str]]:
    """The environment of a recipe, which may call just itself; of the hall's own programs it gets no other."""
    env = program_environment(os.environ, variables)
    if shutil.which("just"):
        yield env
        return
    with tempfile.TemporaryDirectory(prefix="crewhall-just-") as directory:
        os.symlink(just, os.path.join(directory, "just"))
        yield env | {"PATH": f"{env.get('PATH', os.defpath)}:{directory}"}


def _in_module(module: Mapping[str, Any], path: str, listed: set[str]) -> Iterator[Recipe]:
    """The recipes of a module and of those in it, then the other names that it has for them."""
    own = [_recipe(path + name, told) for name, told in module["recipes"].items() if path + name in listed]
    inner = [
        recipe
        for name, told in module.get("modules", {}).items()
        for recipe in _in_module(told, f"{path}{name}::", listed)
    ]
    yield from own + inner
    names = list(_last_names(module))
    for name, alias in module["aliases"].items():
        # Of a recipe in another module the dump tells its last name alone: another one may have that, too.
        if names.count(alias["target"]) > 1 or name.startswith("_") or "private" in alias.get("attributes", ()):
            continue
        meant = next((recipe for recipe in own + inner if recipe.name.split("::")[-1] == alias["target"]), None)
        if meant is not None:
            yield replace(meant, name=path + name)


def _last_names(module: Mapping[str, Any]) -> Iterator[str]:
    """The names of all recipes in a module and in those in it, private ones too."""
    yield from module["recipes"]
    for inner in module.get("modules", {}).values():
        yield from _last_names(inner)


def _recipe(name: str, told: Mapping[str, Any]) -> Recipe:
    parameters = told["parameters"]
    needs = [one["name"] for one in parameters if one["default"] is None and one["kind"] != "star"]
    return Recipe(name, told["doc"], tuple(one["name"] for one in parameters), tuple(needs))
