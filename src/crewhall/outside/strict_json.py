"""JSON that can be read in one way only: no name twice in an object, no NaN, nothing that is nested without end."""

import json
from typing import Any


def strict_json(text: str) -> Any:
    """The value of a text that is JSON. Raises ValueError."""
    try:
        return DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    told = dict(pairs)
    if len(told) != len(pairs):
        raise ValueError("a name is there twice")
    return told


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
