"""What other programs know of a worktree: the recipes of just, the containers of Docker."""

from collections.abc import Hashable
from functools import partial

from crewhall.app import Call
from crewhall.cache import mark
from crewhall.errors import NotFound
from crewhall.families.project.family import ANSWERS, project
from crewhall.families.project.rules_file import refuse_secret
from crewhall.outside.docker import SECONDS, containers_of, log_of
from crewhall.outside.files import Top
from crewhall.outside.just import Recipe, program, recipes
from crewhall.outside.justfiles import Check, justfiles
from crewhall.stop import Part
from crewhall.tool import SourceLines

RECIPES = 200
CONTAINERS, LOG_LINES = 6, 20


@project.source("just", priority=90, weight=5)
def just(call: Call, top: Top) -> SourceLines:
    """The recipes of the justfile, with their parameters and what is said of them."""
    check = partial(refuse_secret, allow=call.settings["project.allow"])
    listed = call.state(ANSWERS).get_or_make(
        (top.root, "just"), _depends(top, check), lambda: recipes(top, check, call.stop)
    )
    if not listed:
        raise NotFound("the justfile has no public recipe", hint="Write one.")
    return SourceLines([_line(recipe) for recipe in listed[:RECIPES]], max(0, len(listed) - RECIPES))


def _depends(top: Top, check: Check) -> Hashable:
    """What the list of recipes depends on; None when that is more than one file. Raises what `recipes` raises."""
    paths = justfiles(top, check)
    depends = mark(paths)
    return (program(), paths[0], depends, top.proof) if len(paths) == 1 and depends is not None else None


def _line(recipe: Recipe) -> str:
    words = " ".join([recipe.name, *recipe.parameters])
    return words if recipe.doc is None else f"{words}  # {recipe.doc}"


@project.source("containers", priority=110, weight=8)
def containers(call: Call, top: Top) -> SourceLines:
    """The containers that were started from here by Docker Compose, with the last lines of their logs."""
    stop = Part(call.stop, SECONDS)
    started = containers_of(top.root, stop)
    if not started:
        raise NotFound("no container was started from here by Docker Compose", hint="`docker compose up` starts them.")
    lines = [f"{one.name}  {one.told}" for one in started]
    for one in started[:CONTAINERS]:
        lines += [f"== {one.name}, the end of its log ==", *log_of(one, LOG_LINES, stop)]
    return SourceLines(
        lines, 0, f"the logs of {len(started) - CONTAINERS} containers" if len(started) > CONTAINERS else None
    )
