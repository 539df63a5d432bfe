"""
The run of a question: a cached report, or a run of the CLI when its turn comes.

    MenuQuestion ── cached? ──▶ the same report again
                      └── queue ── cached by now? ── the CLI ── store ──▶ report files

When its turn comes, the question is made again: Claude judges the files as they are then.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain

from crewhall.app import Call
from crewhall.errors import Failure, InvalidInput
from crewhall.families.judge.family import REVIEWS
from crewhall.families.judge.question import MenuQuestion, ReviewResult, ReviewRun, tree_at
from crewhall.families.judge.report_files import empty_during, write
from crewhall.families.judge.report_store import find_cached, store
from crewhall.families.judge.rules_report import report_files
from crewhall.fence import visible
from crewhall.outside.claude import ClaudeReply, Cli, ask, program
from crewhall.outside.files import way_to
from crewhall.stop import Stop

PROGRESS_SECONDS = 5.0  # between two reports of progress
Make = Callable[[], MenuQuestion]


class ProgressStop(Stop):
    """A call's stop that also reports, whenever it is checked, how long the CLI has been running."""

    def __init__(self, call: Call, limit: float) -> None:
        super().__init__()
        self._call, self._limit = call, limit
        self._began, self._reported = time.monotonic(), 0.0
        self._every = min(PROGRESS_SECONDS, call.settings["tool.progress"] / 2)

    def check(self) -> None:
        self._call.stop.check()
        seconds = time.monotonic() - self._began
        if seconds >= self._reported + self._every:
            self._reported = seconds
            message = f"Claude has been at it for {seconds:.0f} s of at most {self._limit:.0f} s"
            self._call.progress(time.perf_counter() - self._call.started_at, None, message)

    def wait(self, seconds: float) -> None:
        self.check()
        self._call.stop.wait(seconds)


def answer(call: Call, make: Make) -> ReviewResult:
    """The result of a question; its report files are written.

    Raises Unavailable without the CLI, Cancelled, LimitExceeded for too long a queue.
    """
    question = make()
    program(cli_of(call, question))
    _refuse_odd(question)
    result = _find_or_run(call, make, question)
    if question.reports is None or result.row["ruling"] is None:
        return result
    return replace(result, problem=write(call, question.reports, report_files(result.row)))


def _find_or_run(call: Call, make: Make, question: MenuQuestion) -> ReviewResult:
    run = _prepare(call, make, question)
    cache_key = None if question.is_fresh else run.cache_key
    cached = find_cached(call, run, cache_key)
    if cached is not None:
        return cached
    report = partial(_report_position, call)
    with call.state(REVIEWS).turn(cache_key or call.id, call.stop, report, call.party) as has_waited:
        if has_waited:  # files may be others by now
            run = _prepare(call, make, question)
            cache_key = None if question.is_fresh else run.cache_key
        cached = find_cached(call, run, cache_key)  # who asked the same before us may have the answer
        if cached is not None:
            return cached
        return store(call, _run(call, make, run))


def _prepare(call: Call, make: Make, question: MenuQuestion) -> ReviewRun:
    """A run of the question as it is now. The tree is read first, so that a later change shows as one."""
    tree = tree_at(call, question.directory)
    return ReviewRun(make(), tree, cli_of(call, question))


def _run(call: Call, make: Make, run: ReviewRun) -> ReviewRun:
    """The run with Claude's reply, and with whether its files or its tree changed during it."""
    reply = _run_cli(call, run.cli, run.question)
    try:
        has_moved = make().inputs != run.question.inputs
    except Failure:  # the contract is gone, or another
        call.stop.check()
        has_moved = True
    tree = tree_at(call, run.question.directory)
    return replace(run, reply=reply, has_moved=has_moved, has_tree_moved=tree != run.tree)


def _run_cli(call: Call, cli: Cli, question: MenuQuestion) -> ClaudeReply:
    """Run the CLI in the question's directory. Report files that the CLI itself writes, also late ones, are removed."""
    reports = nullcontext() if question.reports is None else empty_during(call, question.reports)
    inside, path = question.directory.inside, question.directory.path
    with reports, question.directory.open() as root, root.hold() as top, top.directory(inside) as directory:
        stop, where = ProgressStop(call, question.seconds), way_to(directory, path)
        return ask(cli, question.prompt, cwd=where, seconds=question.seconds, stop=stop)


def cli_of(call: Call, question: MenuQuestion | None = None) -> Cli:
    settings = call.settings
    schema = "" if question is None else question.item.schema
    skips, passes = settings["judge.skip_permissions"], settings["programs.variables"]
    return Cli(settings["judge.command"], settings["judge.model"], skips, schema, passes)


def _refuse_odd(question: MenuQuestion) -> None:
    """Raise InvalidInput for a directory whose name has line ends and the like: the CLI tells its model where it is.

    Nor may a report take the place of what it is about.
    """
    directory = question.directory.path
    shown = visible(directory)
    if shown != [directory]:
        raise InvalidInput(f"the directory '{' '.join(shown)}' has an odd name", hint="Rename it, or name another.")
    if both := question.report_paths & {file.name for file in chain(*question.inputs.values())}:
        raise InvalidInput(f"'{min(both)}' is where the report goes", hint="Name another report_dir, or another file.")


def _report_position(call: Call, position: str, waited: float) -> None:
    call.progress(waited, None, position)
