"""Which tasks may be run, and how much of what one printed is shown."""

import codecs
import re
from collections.abc import Sequence

from crewhall.errors import InvalidInput, NotFound
from crewhall.outside.just import Recipe
from crewhall.spelling import did_you_mean
from crewhall.token_budget import LETTERS, fits

TOKENS = 18_000  # of an output, so that no answer has more than 20,000
NAMED = 20  # tasks that a refusal names


def refuse_unlisted(recipes: Sequence[Recipe], name: str) -> None:
    """Raise NotFound for what is not exactly a public recipe's name, InvalidInput for a recipe that needs arguments."""
    recipe = next((recipe for recipe in recipes if recipe.name == name), None)
    if recipe is None:
        raise NotFound(f"there is no public task '{name}'", hint=_nearest([recipe.name for recipe in recipes], name))
    if recipe.needs:
        raise InvalidInput(
            f"task '{name}' needs arguments: {', '.join(recipe.needs)}",
            hint="Tasks are run without any. Write a recipe that calls it with fixed ones, or give them defaults.",
        )


def _nearest(names: Sequence[str], name: str) -> str:
    if meant := did_you_mean(name, names, cutoff=0.5):
        return meant
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"There are {', '.join(names[:NAMED])}{more}." if names else "The justfile has no public recipe."


def fit_output(out: bytes, left_out: int) -> tuple[str, int]:
    """An output as text that fits a result, and how many bytes are cut from its middle."""
    most = min(len(out), TOKENS * LETTERS)
    while True:
        text, gone = _without_middle(out, most, left_out)
        if fits(text, TOKENS):
            return text, gone
        most = most * 3 // 4


def _without_middle(out: bytes, most: int, left_out: int) -> tuple[str, int]:
    if not left_out and most == len(out):
        return out.decode("utf-8", "replace"), 0
    head = out[: most // 2]
    tail = re.sub(rb"\A[\x80-\xbf]{1,3}", b"", out[len(out) - (most - most // 2) :])  # the rest of a letter
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    first = decoder.decode(head)
    gone = left_out + len(out) - len(head) - len(tail) + len(decoder.getstate()[0])
    return f"{first}\n[{gone} bytes are left out here]\n{tail.decode('utf-8', 'replace')}", gone
