"""Fences: text of strangers in a prompt, so that nothing in it reads as an instruction or ends its block."""

import re

FENCE = "| "


# Controls, ends of lines, marks of direction, tags and others that a reader does not see; a tab is fine.
UNSEEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


# Words by which Claude Code itself says something to the model, wherever they are.
KEYWORD = re.compile(r"(ultra)(think)", re.IGNORECASE)


def visible(text: str) -> list[str]:
    """A text's lines, as git and editors count them; every character can be seen."""
    lines = KEYWORD.sub(r"\1-\2", text).replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    return [UNSEEN.sub(lambda character: f"<U+{ord(character[0]):04X}>", line) for line in lines]


def fence(text: str) -> str:
    """The text between fence lines that do not occur in it, so that nothing in it ends the block."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    line = "`" * max(3, longest + 1)
    return f"{line}\n{text}\n{line}"
