"""
The one reader of command-line words. Each command says which options take a value, and words its own refusals.

    --port 3001 --json --home=/tmp up   ─▶   (--port, "3001")  (--json, None)  (--home, "/tmp")  (up, None)
    send -- --json                      ─▶   (send, None)  (--json, None), and the last is no option

Standard library only: the bridge starts with this.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from crewhall.errors import InvalidInput

HINT = "crewhall --help shows the commands."


class Word(NamedTuple):
    """A word of a command line, or an option together with its value."""

    text: str  # as it was typed, without a value that came as the next word
    name: str  # the text up to a `=`; empty after `--`, so that it names no option
    value: str | None  # after the `=`, or the next word; None without either
    is_text: bool = False  # it stands after `--`

    @property
    def is_option(self) -> bool:
        return self.text.startswith("--") and not self.is_text


def read_words(words: Iterable[str], takes_value: Callable[[str, str], bool]) -> Iterator[Word]:
    """The words from left to right. `takes_value` decides whether an option (its name) takes the next word.

    The first `--` that no option takes is left out: what follows it is text, whatever it looks like.
    """
    waiting = deque(words)
    while waiting:
        text = waiting.popleft()
        if text == "--":
            yield from (Word(one, "", None, is_text=True) for one in waiting)
            return
        name, equals, value = text.partition("=")
        if equals:
            yield Word(text, name, value)
        elif text.startswith("-") and waiting and takes_value(name, waiting[0]):
            yield Word(text, name, waiting.popleft())
        else:
            yield Word(text, name, None)


def read_options(words: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """The values of `--name value` words, by the key that `known` has for each. Raises InvalidInput for other words."""
    options: dict[str, str] = {}
    for word in read_words(words, lambda name, _: name in known):
        if word.name not in known:
            raise InvalidInput(f"unexpected argument '{word.name or word.text}'", hint=HINT)
        if word.value is None:
            raise InvalidInput(f"{word.name} needs a value", hint=HINT)
        options[known[word.name]] = word.value
    return options


def one_word(words: Iterable[str], title: str) -> str:
    """The only word. Raises InvalidInput, which calls it by its title, for none, several or an option."""
    found = list(read_words(words, lambda name, following: False))
    for word in found:
        if word.is_option:
            raise InvalidInput(f"unexpected argument '{word.text}'", hint=HINT)
    if len(found) != 1:
        raise InvalidInput(f"give one {title}", hint=HINT)
    return found[0].text
