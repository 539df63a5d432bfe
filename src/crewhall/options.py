"""Words of a command line: flags, options and the rest. Standard library only."""

from collections.abc import Mapping
from typing import Any

from crewhall.errors import InvalidInput


def options_of(rest: list[str], known: Mapping[str, str]) -> dict[str, Any]:
    """`--name value` words as settings. Raises InvalidInput for any other word."""
    found: dict[str, Any] = {}
    waiting = list(rest)
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if name not in known:
            raise InvalidInput(f"'{name}' has no place here", hint="crewhall --help shows the commands.")
        if not equals and not waiting:
            raise InvalidInput(f"{name} needs a value", hint="crewhall --help shows the commands.")
        found[known[name]] = value if equals else waiting.pop(0)
    return found


def one_word(rest: list[str], name: str) -> str:
    for word in rest:
        if word.startswith("--"):
            raise InvalidInput(f"'{word}' has no place here", hint="crewhall --help shows the commands.")
    if len(rest) != 1:
        raise InvalidInput(f"give one {name}", hint="crewhall --help shows the commands.")
    return rest[0]
