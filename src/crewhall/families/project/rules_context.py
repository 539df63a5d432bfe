"""
A worktree's context in a budget of tokens: what its sources told, in whole lines from the first.

    all of it fits?  ── yes ──▶ as it is
         └─ no ──▶ shares by weight; what one does not need the others get, and what is left over the first ones
    not even a frame for each? ── the last sources are named without a section

What is counted is the answer as JSON carries it, exactly.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from crewhall.families.project.model_context import Missing, ProjectContext, Section
from crewhall.outside.tokens import count
from crewhall.token_budget import cost, fit_text, shares

LINE = 300  # characters of a line that are shown
REASONS = (60, 10, 0)  # tokens of a reason: as many as the budget allows
LEAST = 8  # tokens that a section should have for its text
TRIES = 6
NO_ROOM = "no room"
SCRIPT_CHARACTER = "[^\x00-\u02ff\u2000-\u206f]"  # of a script, or a picture, whose parts a joiner may join
# What moves a terminal's cursor, breaks a line, turns the reading direction, is not seen, or is no letter at all.
ODD = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
    f"|(?<!{SCRIPT_CHARACTER})[\u200c\u200d]|[\u200c\u200d](?!{SCRIPT_CHARACTER})|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]"
)


@dataclass(frozen=True)
class SourceText:
    """A source's text, in lines that are safe to show."""

    name: str
    weight: int
    lines: tuple[str, ...]
    more: int = 0
    rest: str | None = None

    def section(self, shown: int) -> Section:
        text = "\n".join(self.lines[:shown])
        return Section(name=self.name, text=text, tokens=cost(text), left_out=self.left_out(shown))

    def left_out(self, shown: int) -> str | None:
        """In words, what is not among so many lines."""
        total = len(self.lines) + self.more
        left = total - shown
        lines_left_out = None if left == 0 else f"{left} of {total} lines" if shown else f"all {total} lines"
        return "; ".join(part for part in (lines_left_out, self.rest) if part) or None


@dataclass(frozen=True)
class Frame:
    """An answer without its texts: the path, who gets a section, and who is missing why."""

    path: str | None
    texts: tuple[SourceText, ...]
    missing: tuple[Missing, ...]
    most: int

    def fill(self, shown: Mapping[str, int]) -> ProjectContext:
        """The result with so many lines of each source, and its exact number of tokens."""
        sections = [each.section(shown.get(each.name, 0)) for each in self.texts]
        whole = ProjectContext(
            path=self.path, sections=sections, missing=list(self.missing), tokens=self.most, max_tokens=self.most
        )
        others = count(json.dumps(whole.model_dump(mode="json"), ensure_ascii=False)) - _digits(self.most)
        # Three digits are a token, so that the number's own cost is known before the number is.
        tokens = next(others + own for own in (1, 2, 3) if _digits(others + own) == own)
        return whole.model_copy(update={"tokens": tokens})


def _digits(number: int) -> int:
    return (len(str(number)) + 2) // 3


def plain(line: str) -> str:
    """The line as it may be shown: without control characters, and its beginning if it is very long."""
    if len(line) > LINE:
        line = f"{line[:LINE]}… ({len(line) - LINE} more letters)"
    return visible(line).rstrip()


def visible(text: str) -> str:
    """The text with names in place of what can't be shown."""
    return text if text.isascii() and text.isprintable() else ODD.sub(_escape, text)


def _escape(odd: re.Match[str]) -> str:
    number = ord(odd[0])
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a name that is not UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65_536 else f"\\U{number:08x}"


def fit(path: str, texts: Sequence[SourceText], missing: Sequence[Missing], most: int) -> ProjectContext:
    """As much of the sources' texts as fits into so many tokens."""
    frame = _frame(path, tuple(texts), tuple(missing), most)
    bare = frame.fill({})
    left = most - bare.tokens
    costs = {each.name: _costs(each.lines, left) for each in frame.texts}
    if sum(map(sum, costs.values())) <= left + left // 10:
        whole = frame.fill({each.name: len(each.lines) for each in frame.texts})
        if whole.tokens <= most:  # parts may cost more together than one by one, or less
            return whole
    for _ in range(TRIES):
        context = frame.fill(_line_counts(frame.texts, costs, left))
        if context.tokens <= most:
            return context
        left -= context.tokens - most + LEAST
    return bare


def _frame(path: str, texts: tuple[SourceText, ...], missing: tuple[Missing, ...], most: int) -> Frame:
    """The fullest frame that leaves room for texts; the path and the reasons shrink before a section is given up."""
    for tokens, where in product(REASONS, (path, None)):
        frame = Frame(where, texts, tuple(_shorten(each, tokens) for each in missing), most)
        if frame.fill({}).tokens + LEAST * len(texts) <= most:
            return frame
    return _narrower(frame, most)


def _shorten(missing: Missing, tokens: int) -> Missing:
    return missing.model_copy(update={"reason": fit_text(missing.reason, tokens)})


def _narrower(frame: Frame, most: int) -> Frame:
    """A frame whose last sources are named among the missing, until it fits; two dozen names always do."""
    all_texts, others = frame.texts, frame.missing
    while frame.texts and frame.fill({}).tokens + LEAST * len(frame.texts) > most:
        first = frame.texts[:-1]
        given_up = [Missing(name=each.name, reason=NO_ROOM) for each in all_texts[len(first) :]]
        frame = replace(frame, texts=first, missing=(*given_up, *others))
    return frame


def _costs(lines: Sequence[str], most: int) -> list[int]:
    """What each line costs in a text, until they are well more than that together."""
    costs: list[int] = []
    most += most // 10
    for line in lines:
        if most < 0:
            break
        costs.append(_cost(line))
        most -= costs[-1]
    return costs


def _cost(line: str) -> int:
    """As a long text's count has it, so that a line is counted once for both."""
    return count(json.dumps(f"\n{line}", ensure_ascii=False)[1:-1])


def _line_counts(texts: Sequence[SourceText], costs: Mapping[str, Sequence[int]], left: int) -> dict[str, int]:
    """How many lines of each source fit."""
    wants = {each.name: sum(costs[each.name]) for each in texts}
    given = shares(wants, {each.name: each.weight for each in texts}, left)
    shown, over = {}, left
    for name, most in given.items():
        shown[name], spent = _lines_within(costs[name], most)
        over -= spent
    for each in texts:  # a line that is too long for a share leaves room: the first sources get it
        more, spent = _lines_within(costs[each.name][shown[each.name] :], over)
        shown[each.name] += more
        over -= spent
    return shown


def _lines_within(costs: Sequence[int], most: int) -> tuple[int, int]:
    """How many of the first lines cost at most so much together, and what they cost."""
    spent = 0
    for number, one in enumerate(costs):
        if spent + one > most:
            return number, spent
        spent += one
    return len(costs), spent
