"""
The judge's two report files in somebody's directory: those of the last review that came to a verdict, or none.

What lies there from before is taken away when a review begins, and what a late child may have written when one fails:
a file that says PASS is never older than the question.
"""

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from crewhall.app import Call
from crewhall.errors import Failure, InvalidState
from crewhall.families.judge.paths import InputDirectory
from crewhall.families.judge.rules_report import JSON, MD
from crewhall.families.project.rules_file import refuse_secret_name
from crewhall.outside.files import opened
from crewhall.outside.writing import made, put, take_away

WRITING = threading.Lock()  # a pair of files is written or removed as one
WRITTEN: Counter[str] = Counter()  # how often, by directory, since this process began


@dataclass(frozen=True)
class Place:
    """A directory for reports: as its caller named it, and its path from the root."""

    parent: InputDirectory
    named: str
    path: str

    @property
    def own(self) -> frozenset[str]:
        """The files, as paths from the root."""
        return frozenset(os.path.normpath(os.path.join(self.path, name)) for name in (MD, JSON))

    @property
    def directory(self) -> str:
        return os.path.join(self.parent.root, self.path)

    def told(self, name: str) -> str:
        """A file's path in its caller's words."""
        return os.path.join(self.named, name)


def place_for(call: Call, directory: InputDirectory, report_dir: str) -> Place:
    """The directory for a review's reports, which is made if need be.

    Raises PathOutsideRoot, Forbidden for what is git's own, and what else the sandbox raises.
    """
    fit = partial(refuse_secret_name, allow=call.settings["project.allow"])
    with opened(directory.root) as top, made(top, directory.resolve(report_dir), fit) as found:
        return Place(directory, report_dir, found.path)


@contextlib.contextmanager
def empty_during(place: Place) -> Iterator[None]:
    """No report lies there when the block begins, nor one that somebody else than the hub has written meanwhile.

    Raises InvalidState when one from before can't be removed.
    """
    with WRITING:
        before = WRITTEN[place.directory]
        if not _clear(place):
            raise InvalidState(
                f"a report from before can't be removed from '{place.named[:200]}'",
                hint="Remove it, or name another report_dir.",
            )
    try:
        yield
    finally:
        with WRITING:
            if WRITTEN[place.directory] == before:  # else another review's report is there, and stays
                _clear(place)


def _clear(place: Place) -> bool:
    """Take the reports away that are there; False when one of them can't be removed."""
    with contextlib.suppress(Failure), opened(place.parent.root) as top, top.directory(place.path) as found:
        gone = [take_away(found, name) for name in (MD, JSON)]
        return all(gone)
    return True


def write(place: Place, files: Mapping[str, bytes]) -> str | None:
    """Write the files, both of one review; why it did not work, if so. The directory is looked for anew."""
    with WRITING:
        WRITTEN[place.directory] += 1
        try:
            with opened(place.parent.root) as top, top.directory(place.path) as found:
                for name, data in files.items():
                    put(found, name, data)
        except Failure as failure:
            _clear(place)  # one of two would be half a report
            return f"the reports were not written: {failure.message}"
    return None
