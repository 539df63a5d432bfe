"""Suggestions for a misspelt name. Standard library only: the command line starts with this."""

import difflib
from collections.abc import Iterable

AT_THE_END = ", did you mean '{}'?"  # of a message
LONGEST = 100  # letters of a name that may be a misspelt one; to compare takes time with their number


def did_you_mean(
    name: str, known: Iterable[str], form: str = "Did you mean '{}'?", *, most: int = 1, cutoff: float = 0.6
) -> str:
    """A question with the known names nearest to this one, or an empty text if none is near."""
    near = difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff) if len(name) <= LONGEST else []
    return form.format(", ".join(near)) if near else ""
