"""
Paths that agents reserve: how they are spelled, and whether two of them can mean the same file.

    src/app.py       a file. Where another path leads through it, it is a directory
    src/             a directory, and all inside
    src/**/*.py      a glob: * and ? within a name, ** over names, [a-z] or [!a-z] one letter
    app/[id]/x.ts    brackets may be a part of a name as well: both readings count
"""

import operator
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, islice
from typing import TypeVar

from crewhall.errors import InvalidInput, LimitExceeded
from crewhall.paths import is_below

PATH_BYTES, NAME_BYTES = 1000, 255  # of a path inside a repository, of one name in it
MOST_RESERVED = 500  # paths, by one agent at a time
LOOKS = 2_000_000  # pairs of letters that are compared for one answer
WHOLE = "**"  # the path of all that is in a repository
WILD, NOT_PLAIN = re.compile(r"[*?\[]"), re.compile(r"[*?]")
LAST = 0x10FFFF

ItemT = TypeVar("ItemT")
Letters = tuple[tuple[int, int], ...]  # from, to
ANY_LETTER: Letters = ((0, LAST),)


# Spelling


def reserved_path(path: str, tops: Iterable[str]) -> str:
    """The one spelling of a path inside a repository; a slash at its end says that it is a directory.

    An absolute path is one below the top of a working tree. Raises InvalidInput for one that is elsewhere.
    """
    if not path:
        raise InvalidInput("a path is empty", hint="Give a path from the repository's root; '.' is all of it.")
    inside = _below(path, tops) if path.startswith("/") else path
    names: list[str] = []
    for name in inside.split("/"):
        if name == "..":
            _step_out(path, names)
        elif name not in ("", ".") and not (name == WHOLE and names[-1:] == [WHOLE]):
            names.append(name)
    _refuse_long(path, names)
    if not names:
        return WHOLE
    is_directory = inside.rpartition("/")[2] in ("", ".", "..") and names[-1] != WHOLE
    return "/".join(names) + ("/" if is_directory else "")


def _below(path: str, tops: Iterable[str]) -> str:
    known = [top.rstrip("/") for top in tops]
    for top in known:
        if is_below(path, top):
            return path[len(top) + 1 :]
    where = " and ".join(top or "/" for top in known) or "a repository that is known"
    raise InvalidInput(
        f"path '{path[:200]}' is not inside {where}",
        hint="Give paths from the repository's root, such as src/app.py, or repository_path for another repository.",
    )


def _step_out(path: str, names: list[str]) -> None:
    if not names or WILD.search(names[-1]):
        raise InvalidInput(
            f"'..' in path '{path[:200]}' leads out of the repository, or out of what a glob stands for",
            hint="Give the path from the repository's root, without '..'.",
        )
    names.pop()


def _refuse_long(path: str, names: Sequence[str]) -> None:
    if len("/".join(names).encode()) > PATH_BYTES or any(len(name.encode()) > NAME_BYTES for name in names):
        raise InvalidInput(
            f"path '{path[:100]}…' is too long: {PATH_BYTES} bytes are allowed from the root, {NAME_BYTES} for a name",
            hint="Reserve a directory above it, or a shorter glob.",
        )


def refuse_more_reserved(there: int, added: int) -> None:
    """Raise LimitExceeded when an agent would have reserved more than one may."""
    if there + added > MOST_RESERVED:
        raise LimitExceeded(
            f"you would have {there + added} paths reserved, and {MOST_RESERVED} are allowed",
            hint="Reserve a directory or a glob in their place, or release some: file_release.",
        )


# Meeting


@dataclass(frozen=True)
class Pattern:
    """A path as it is spelled, taken apart as far as telling whether it meets another needs."""

    path: str

    @cached_property
    def is_plain(self) -> bool:
        """Whether it names one thing, by one reading of its brackets at least."""
        return not NOT_PLAIN.search(self.path)

    @cached_property
    def whole(self) -> str:
        return self.path.rstrip("/") + "/"

    @cached_property
    def begins(self) -> str:
        """How everything begins that it means."""
        wild = WILD.search(self.path)
        return "/" + (self.path if wild is None else self.path[: wild.start()])

    @cached_property
    def ends(self) -> str:
        """How everything ends that it means."""
        path = "/" + self.path
        return "" if path.endswith("/") else path[1 + max(path.rfind(letter) for letter in "*?[]") :]

    @cached_property
    def last(self) -> str:
        """How the last name begins of everything that it means."""
        name = self.path.rpartition("/")[2]
        return WILD.split(name, maxsplit=1)[0]

    @cached_property
    def names(self) -> list[str | None]:
        """Its names; None stands for any run of names."""
        names = self.path.split("/")
        return [None if name in ("", WHOLE) else name for name in names]


def meet(ours: str, theirs: str) -> bool:
    """Whether two spelled paths can mean the same file."""
    return _meets(Pattern(ours), Pattern(theirs))


def _meets(one: Pattern, other: Pattern) -> bool:
    seen = _at_a_glance(one, other)
    return _cross(one.names, other.names, _same_name) if seen is None else seen


def _at_a_glance(one: Pattern, other: Pattern) -> bool | None:
    """Whether they meet; None when it takes a closer look."""
    if (one.is_plain and other.whole.startswith(one.whole)) or (other.is_plain and one.whole.startswith(other.whole)):
        return True
    fits = (
        (one.begins.startswith(other.begins) or other.begins.startswith(one.begins))
        and (one.ends.endswith(other.ends) or other.ends.endswith(one.ends))
        and (one.last.startswith(other.last) or other.last.startswith(one.last))
    )
    return None if fits else False


def _cross(ours: Sequence[ItemT | None], theirs: Sequence[ItemT | None], agree: Callable[[ItemT, ItemT], bool]) -> bool:
    """Whether two rows of items can be the same one, where None stands for any run of items, and for none.

    `there[n]`: whether what was seen of ours so far can be the same as the first n of theirs.
    """
    there: list[bool] = [True, *accumulate((item is None for item in theirs), operator.and_)]
    for one in ours:
        after = [there[0] and one is None]
        for number, other in enumerate(theirs):
            if one is None or other is None:
                after.append(there[number + 1] or after[number])
            else:
                after.append(there[number] and agree(one, other))
        there = after
        if not any(there):
            return False
    return there[-1]


@lru_cache(maxsize=4096)
def _same_name(one: str, other: str) -> bool:
    """Whether two names can be the same one."""
    if one == other:
        return True
    if not WILD.search(one + other):
        return False
    return any(_cross(ours, theirs, _same_letter) for ours in _readings(one) for theirs in _readings(other))


def _same_letter(ours: Letters, theirs: Letters) -> bool:
    return any(low <= to and start <= high for low, high in ours for start, to in theirs)


def _readings(name: str) -> list[list[Letters | None]]:
    """The letters of a name, None for any run of them; twice where brackets may be a part of it."""
    parts = re.findall(r"\*+|\[[!^]?\]?[^\]]{1,300}+\]|.", name, re.DOTALL)
    readings = [[_letters(part) for part in parts]]
    if "[" in name:
        readings.append([_letters(part) for part in re.findall(r"\*+|.", name, re.DOTALL)])
    return readings


def _letters(part: str) -> Letters | None:
    if part[0] == "*":
        return None
    if part == "?":
        return ANY_LETTER
    if len(part) == 1:
        return ((ord(part), ord(part)),)
    is_not = part[1] in "!^"
    ranges = re.findall(r"(.)-(.)|(.)", part[2 if is_not else 1 : -1], re.DOTALL)
    letters = tuple((ord(low or one), ord(high or one)) for low, high, one in ranges)
    return _others(letters) if is_not else tuple(pair for pair in letters if pair[0] <= pair[1])


def _others(letters: Letters) -> Letters:
    """All letters but these."""
    found, start = [], 0
    for low, high in sorted(letters):
        if start < low:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, LAST)) if start <= LAST else tuple(found)


# Meeting many


class PathIndex:
    """An index of paths: only a few of them are compared with another path.

    If many long globs make that too slow, two paths count as overlapping: that is the safe answer.
    """

    def __init__(self, paths: Iterable[str], looks: int = LOOKS) -> None:
        self._patterns = sorted((Pattern(path) for path in paths), key=lambda one: one.begins)
        self._begins = [one.begins for one in self._patterns]
        self._by_begin: dict[str, list[Pattern]] = defaultdict(list)
        for one in self._patterns:
            self._by_begin[one.begins].append(one)
        self._lengths = sorted({len(begins) for begins in self._begins})
        self._wholes = sorted(one.whole for one in self._patterns)
        self._plain = tuple(one.whole for one in self._patterns if one.is_plain)
        self._ends = tuple(one.ends for one in self._patterns)
        self._backwards = sorted(ends[::-1] for ends in self._ends)
        self._lasts = tuple(sorted(one.last for one in self._patterns))
        self._left = looks

    def find_overlap(self, path: str) -> str | None:
        """One of the paths that this one overlaps, or None."""
        other = Pattern(path)
        if not (self._is_through(other) or self._ends_alike(other)):
            return None
        return next((one.path for one in self._near(other.begins) if self._meets(one, other)), None)

    def _is_through(self, other: Pattern) -> bool:
        """Whether one leads through the other."""
        return other.whole.startswith(self._plain) or (other.is_plain and _some_begin(self._wholes, other.whole))

    def _ends_alike(self, other: Pattern) -> bool:
        """Whether one ends as the other does, and one's last name begins as the other's."""
        return (other.ends.endswith(self._ends) or _some_begin(self._backwards, other.ends[::-1])) and (
            other.last.startswith(self._lasts) or _some_begin(self._lasts, other.last)
        )

    def _near(self, begins: str) -> Iterator[Pattern]:
        """Those that begin as it does, and then those that it begins as."""
        for one in islice(self._patterns, bisect_left(self._begins, begins), None):
            if not one.begins.startswith(begins):
                break
            yield one
        for length in self._lengths:
            if length < len(begins):
                yield from self._by_begin.get(begins[:length], ())

    def _meets(self, one: Pattern, other: Pattern) -> bool:
        seen = _at_a_glance(one, other)
        if seen is None and self._left > 0:
            self._left -= len(one.path) * len(other.path)
            return _cross(one.names, other.names, _same_name)
        return seen is not False


def _some_begin(texts: Sequence[str], beginning: str) -> bool:
    """Whether one of the texts, which are sorted, begins so."""
    place = bisect_left(texts, beginning)
    return place < len(texts) and texts[place].startswith(beginning)
