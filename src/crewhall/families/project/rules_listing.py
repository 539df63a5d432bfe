"""Which names of a directory are shown, how many at once, and what is said beside them."""

import re
from collections.abc import Sequence

PAGE_BYTES = 60_000  # of the entries of a list, which are some 20,000 tokens
ENTRY_BYTES = 45  # of an entry beside its name
NO_TEXT = re.compile("[\ud800-\udfff]")


def readable(names: list[str]) -> list[str]:
    """The names that are text; the os module tells bytes that are not UTF-8 by halves of surrogate pairs."""
    return names if "".join(names).isascii() else [name for name in names if not NO_TEXT.search(name)]


def page(names: Sequence[str], offset: int, limit: int) -> tuple[Sequence[str], int | None]:
    """As many of the names as are asked for and an answer has room for, one at least; where the next page begins."""
    room, end = PAGE_BYTES, offset
    for name in names[offset : offset + limit]:
        room -= len(name.encode()) + ENTRY_BYTES
        if room < 0 and end > offset:
            break
        end += 1
    return names[offset:end], end if end < len(names) else None


def note_of(not_text: int, ignored: int, shown: int, problem: str | None) -> str | None:
    """What is special about a list, if anything."""
    notes = [
        f"Git can't tell what it ignores: {problem}." if problem else "",
        f"Left out: {not_text} whose names are not UTF-8." if not_text else "",
        "Git ignores all that is here; include_ignored lists it." if ignored and not shown else "",
    ]
    return " ".join(filter(None, notes)) or None
