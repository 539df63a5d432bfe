"""
A question on its way: found among what is kept, or put to Claude in its turn.

    Question ── kept? ──▶ the same report again
                  └── wait in line ── kept by now? ── the CLI ── kept ──▶ its files

A question is made anew when its turn comes: what is read then is what is judged.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain

from crewhall.app import Call
from crewhall.errors import Failure, InvalidInput
from crewhall.families.judge.question import Answered, Asked, Question, tree_at
from crewhall.families.judge.report_files import empty_during, write
from crewhall.families.judge.report_store import keep, kept
from crewhall.families.judge.rules_prompt import visible
from crewhall.families.judge.rules_report import report_files
from crewhall.outside.claude import Cli, Said, ask, program
from crewhall.outside.files import opened, way_to

TELL = 5.0  # seconds between two reports of progress
Make = Callable[[], Question]


class Telling:
    """A call's stop that also tells, whenever it is asked, for how long the answer has been waited for."""

    def __init__(self, call: Call, limit: float) -> None:
        self._call, self._limit = call, limit
        self._began, self._said = time.monotonic(), 0.0
        self._every = min(TELL, call.settings["tool.progress"] / 2)

    def check(self) -> None:
        self._call.stop.check()
        seconds = time.monotonic() - self._began
        if seconds >= self._said + self._every:
            self._said = seconds
            told = f"Claude has been at it for {seconds:.0f} s of at most {self._limit:.0f} s"
            self._call.progress(time.perf_counter() - self._call.started_at, None, told)

    def wait(self, seconds: float, /) -> None:
        self.check()
        self._call.stop.wait(seconds)


def answer(call: Call, make: Make) -> Answered:
    """What came of a question; its files are written.

    Raises Unavailable without the CLI, Cancelled, LimitExceeded for too long a line.
    """
    question = make()
    program(cli_of(call, question))
    _refuse_odd(question)
    answered = _answered(call, make, question)
    if question.reports is None or answered.row["ruling"] is None:
        return answered
    return replace(answered, problem=write(question.reports, report_files(answered.row)))


def _answered(call: Call, make: Make, question: Question) -> Answered:
    asked = _looked_at(call, make, question)
    cache_key = None if question.is_fresh else asked.cache_key
    found = kept(call, asked, cache_key)
    if found is not None:
        return found
    with call.hub.judging.turn(cache_key or call.id, call.stop, partial(_tell_place, call)) as has_waited:
        if has_waited:  # files may be others by now
            asked = _looked_at(call, make, question)
            cache_key = None if question.is_fresh else asked.cache_key
        found = kept(call, asked, cache_key)  # who asked the same before us may have the answer
        if found is not None:
            return found
        return keep(call, _said(call, make, asked))


def _looked_at(call: Call, make: Make, question: Question) -> Asked:
    """The question as it is now. The tree is looked at first: what changes meanwhile is seen to have changed."""
    tree = tree_at(call, question.directory)
    return Asked(make(), tree, cli_of(call, question))


def _said(call: Call, make: Make, asked: Asked) -> Asked:
    """What Claude said, and whether it was about what is there by now."""
    said = _ask(call, asked.cli, asked.question)
    try:
        has_moved = make().inputs != asked.question.inputs
    except Failure:  # the contract is gone, or another
        call.stop.check()
        has_moved = True
    tree = tree_at(call, asked.question.directory)
    return replace(asked, said=said, has_moved=has_moved, has_tree_moved=tree != asked.tree)


def _ask(call: Call, cli: Cli, question: Question) -> Said:
    """Ask Claude, in that very directory. A report that the CLI wrote by itself, also too late, is nobody's word."""
    reports = nullcontext() if question.reports is None else empty_during(question.reports)
    with reports, opened(question.directory.root) as top, top.directory(question.directory.inside) as found:
        telling, where = Telling(call, question.seconds), way_to(found, question.directory.path)
        return ask(cli, question.prompt, cwd=where, seconds=question.seconds, stop=telling)


def cli_of(call: Call, question: Question | None = None) -> Cli:
    settings = call.settings
    schema = "" if question is None else question.item.schema
    return Cli(settings["judge.command"], settings["judge.model"], settings["judge.skip_permissions"], schema)


def _refuse_odd(question: Question) -> None:
    """Raise InvalidInput for a directory whose name has line ends and the like: the CLI tells its model where it is.

    Nor may a report take the place of what it is about.
    """
    directory = question.directory.path
    shown = visible(directory)
    if shown != [directory]:
        raise InvalidInput(f"the directory '{' '.join(shown)}' has an odd name", hint="Rename it, or name another.")
    if both := question.report_paths & {file.name for file in chain(*question.inputs.values())}:
        raise InvalidInput(f"'{min(both)}' is where the report goes", hint="Name another report_dir, or another file.")


def _tell_place(call: Call, position: str, waited: float) -> None:
    call.progress(waited, None, position)
