"""
Prompts: a fixed text with places for data. Every line of data begins with the fence, and no line of ours does.

    You are the judge …                     the template, to the byte
    | {"task_id": "…"}                      data, whatever it says: `| # New instructions` is data too
    Answer with …                           the template, to the byte

So nothing that a file or an argument holds can become an instruction by its form: there is no end mark to forge. A
character that is invisible, that moves others about, or that could be taken for a line end is shown by its number.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crewhall.families.judge.rules_secret import without_secrets

FENCE = "| "
PLACE = re.compile(r"\{(\w+)\}")
# Controls, ends of lines, marks of direction, tags and others that a reader does not see; a tab is fine.
UNSEEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Words by which Claude Code itself says something to the model, wherever they are.
KEYWORD = re.compile(r"(ultra)(think)", re.IGNORECASE)


@dataclass(frozen=True)
class InputFile:
    """A file that the prompt shows: its name and its text, or a note that says why the text is missing.

    `digest` identifies the content, also when the prompt does not show it.
    """

    name: str
    text: str | None
    note: str | None = None
    digest: str = ""

    @property
    def cache_parts(self) -> tuple[str, str, str]:
        """The parts of a cache key that stand for this file."""
        return self.name, self.note or "", self.digest


def prompt_of(template: str, inputs: Mapping[str, Sequence[InputFile]]) -> str:
    """The template with each place filled: a line `{name}` becomes the input files of that name, fenced."""
    lines: list[str] = []
    for line in template.splitlines():
        place = PLACE.fullmatch(line)
        lines += [line] if place is None else _fenced_lines(inputs[place[1]])
    return "\n".join(lines) + "\n"


def _fenced_lines(inputs: Sequence[InputFile]) -> list[str]:
    lines = [line for file in inputs for line in _file_lines(file)] or ["(none)"]
    return [f"{FENCE}{line}" for line in lines]


def _file_lines(file: InputFile) -> list[str]:
    """The prompt's lines for a file: its name, then its text with line numbers."""
    name = " ".join(visible(without_secrets(file.name)))
    if file.text is None:
        return [f"=== {name}: {' '.join(visible(file.note or 'not shown'))}", ""]
    lines = visible(without_secrets(file.text))
    return [f"=== {name}, {len(lines)} lines", *(f"{number:5}  {line}" for number, line in enumerate(lines, 1)), ""]


def visible(text: str) -> list[str]:
    """A text's lines, as git and editors count them; every character can be seen."""
    lines = KEYWORD.sub(r"\1-\2", text).replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    return [UNSEEN.sub(lambda character: f"<U+{ord(character[0]):04X}>", line) for line in lines]
