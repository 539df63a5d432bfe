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
from crewhall.fence import FENCE, visible

PLACE = re.compile(r"\{(\w+)\}")


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
