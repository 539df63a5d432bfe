"""Which names of a directory are shown, how many at once, and what is said beside them."""

import json
import re
from collections.abc import Sequence

from crewhall.token_budget import affordable, fit_items, with_cost

PAGE_BYTES = 60_000  # of the entries of a list, which are some 20,000 tokens
ENTRY_BYTES = 45  # of an entry beside its name
Entry = dict[str, str | int | None]
NO_TEXT = re.compile("[\ud800-\udfff]")


def readable(names: list[str]) -> list[str]:
    """The names that are text; the os module tells bytes that are not UTF-8 by halves of surrogate pairs."""
    return names if "".join(names).isascii() else [name for name in names if not NO_TEXT.search(name)]


def page(names: Sequence[str], offset: int, limit: int) -> Sequence[str]:
    """As many of the names as are asked for and an answer may have room for, one at least."""
    room, end = PAGE_BYTES, offset
    for name in names[offset : offset + limit]:
        room -= len(name.encode()) + ENTRY_BYTES
        if room < 0 and end > offset:
            break
        end += 1
    return names[offset:end]


def fit_entries(entries: list[Entry], room: int) -> list[Entry]:
    """The first entries that fit in so many tokens; few ones do, since no letter has more tokens than its escape."""
    if len(json.dumps(entries)) <= room:
        return entries
    return fit_items(affordable(map(with_cost, entries), room), room)


def note_of(not_text: int, ignored: int, shown: int, problem: str | None) -> str | None:
    """What is special about a list, if anything."""
    notes = [
        f"Git can't tell what it ignores: {problem}." if problem else "",
        f"Left out: {not_text} whose names are not UTF-8." if not_text else "",
        "Git ignores all that is here; include_ignored lists it." if ignored and not shown else "",
    ]
    return " ".join(filter(None, notes)) or None
