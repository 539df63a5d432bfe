"""
The judge's two report files in somebody's directory: those of the last review that came to a verdict, or none.

What lies there from before is taken away when a review begins, and what a late child may have written when one fails:
a file that says PASS is never older than the question.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from crewhall.app import Call
from crewhall.errors import Failure, InvalidState
from crewhall.families.judge.family import REPORT_WRITES
from crewhall.families.judge.paths import InputDirectory
from crewhall.families.judge.rules_report import JSON, MD
from crewhall.families.project.rules_file import refuse_secret_name
from crewhall.outside.writing import make_directory, put, take_away


@dataclass(frozen=True)
class ReportDirectory:
    """The directory for a review's report files: as the caller gave it, and its path from the root."""

    parent: InputDirectory
    given: str
    path: str

    @property
    def report_paths(self) -> frozenset[str]:
        """The report files, as paths from the root."""
        return frozenset(os.path.normpath(os.path.join(self.path, name)) for name in (MD, JSON))

    @property
    def absolute(self) -> str:
        return os.path.join(self.parent.root, self.path)

    def client_path(self, name: str) -> str:
        """A file's path as the client finds it: as it gave the directory, or absolute if that begins elsewhere."""
        is_findable = self.parent.is_clients or self.given.startswith("/")
        return os.path.join(self.given if is_findable else self.absolute, name)


def report_directory(call: Call, directory: InputDirectory, report_dir: str) -> ReportDirectory:
    """The directory for a review's reports; created if it is missing.

    Raises PathOutsideRoot, Forbidden for what is git's own, and what else the sandbox raises.
    """
    fit = partial(refuse_secret_name, allow=call.settings["project.allow"])
    with directory.open() as top, make_directory(top, directory.resolve(report_dir), fit) as target:
        return ReportDirectory(directory, report_dir, target.path)


@contextlib.contextmanager
def empty_during(call: Call, reports: ReportDirectory) -> Iterator[None]:
    """No report lies there when the block begins, nor one that somebody else than the hub has written meanwhile.

    Raises InvalidState when one from before can't be removed.
    """
    writes = call.state(REPORT_WRITES)
    with writes.lock:
        if not _clear(reports):
            raise InvalidState(
                f"a report from before can't be removed from '{reports.given[:200]}'",
                hint="Remove it, or name another report_dir.",
            )
        review = writes.begin(reports.absolute)
    try:
        yield
    finally:
        with writes.lock:
            writes.running.remove(review)
            if not review.is_overtaken:  # else another review's report is there, and stays
                _clear(reports)


def _clear(reports: ReportDirectory) -> bool:
    """Remove the report files; False when one of them can't be removed."""
    with contextlib.suppress(Failure), reports.parent.open() as top, top.directory(reports.path) as directory:
        gone = [take_away(directory, name) for name in (MD, JSON)]
        return all(gone)
    return True


def write(call: Call, reports: ReportDirectory, files: Mapping[str, bytes]) -> str | None:
    """Write both files of a review; the reason if that failed. The directory is opened again for it."""
    writes = call.state(REPORT_WRITES)
    with writes.lock:
        writes.note_written(reports.absolute)
        try:
            with reports.parent.open() as top, top.directory(reports.path) as directory:
                for name, data in files.items():
                    put(directory, name, data)
        except Failure as failure:
            _clear(reports)  # one of two would be half a report
            return f"the reports were not written: {failure.message}"
    return None
