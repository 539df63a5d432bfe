"""
What fits a budget of tokens: shares of it, texts cut at the ends of sentences, objects and lists with what is left out.

    wants   workflow 300   task 9000   prior 2000   beside 100        budget 8000: 15, 55, 20 and 10 of 100
    gets    workflow 300   task 5600   prior 2000   beside 100        what one does not need, the others get

All counts are of the text as JSON carries it, since that is what a model reads.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crewhall.outside.tokens import count, measure

MOST = 20_000  # tokens of any answer
LETTERS = 12  # at the most for a token: only blanks and rules have more, and they are not worth more
SLACK, JOINTS = 5, 4  # in a hundred, and in a short text, that `measure` may find too many
DEPTH = 4  # levels of an object that are cut; what lies deeper is kept whole or left out
LEAST = 8  # tokens below which a part of an object is not worth its place
CLOSING = r"[\"')\]\u2019\u201d\u300d\u300f\uff09]*"  # what may stand behind the end of a sentence and belongs to it
ENDING = re.compile(
    rf"[.!?\u2026]{CLOSING}(?=\s)|[\u3002\uff01\uff1f]{CLOSING}|\n\s*\n"
)  # of a sentence, Chinese ones too
LINE = re.compile(r"\n")
HALF = re.compile(r"(?<!\\)(\\++)(?:u[0-9a-f]{0,3})?\Z")
NAME_TOKENS = 50


@dataclass(frozen=True)
class CostedItem:
    """An item of an answer, and the tokens that it costs there."""

    item: Any
    tokens: int


def cost(value: Any) -> int:
    """The tokens of a value as JSON carries it."""
    return count(json.dumps(value, ensure_ascii=False))


def want(value: Any, most: int) -> int:
    """The tokens of a value, about, or one more than the most when it is longer. What is over is not looked at."""
    text = json.dumps(value, ensure_ascii=False)
    letters, tokens = measure(text, most)
    return max(tokens, len(text) // LETTERS) if letters == len(text) else most + 1


def fits(value: Any, most: int) -> bool:
    """Whether a value has at most so many tokens, exactly, and whatever its letters are."""
    text = json.dumps(value, ensure_ascii=False)
    letters, _ = measure(text, most + most * SLACK // 100 + JOINTS)
    return letters == len(text) and count(text) <= most


def room_beside(others: Mapping[str, Any]) -> int:
    """The tokens that an answer with these fields has left for one more, whose value is empty there."""
    return MOST - cost(others) - JOINTS


def shares(wants: Mapping[str, int], weights: Mapping[str, int], total: int) -> dict[str, int]:
    """What each gets of the total: no more than it wants, and by weight where there is not enough."""
    given = dict.fromkeys(wants, 0)
    hungry = {name for name in wants if wants[name] > 0}
    left = max(0, total)
    while hungry:
        weight = sum(weights[name] for name in hungry)
        fair = {name: left * weights[name] // weight for name in hungry}
        content = {name for name in hungry if wants[name] <= fair[name]}
        for name in content or hungry:
            given[name] = min(wants[name], fair[name])
        if not content:
            break
        left -= sum(given[name] for name in content)
        hungry -= content
    return given


def fit_text(text: str, most: int) -> str:
    """As much of a text's beginning as fits in so many tokens, up to the end of a sentence, or of a word."""
    if _is_short(text, most) or want(text, most + 2) <= most + 2:  # the quotes are not the text's
        return text
    return _whole_sentences(fit_letters(text, most))


def fit_letters(text: str, most: int) -> str:
    """As many letters of a text's beginning as fit in so many tokens."""
    told = json.dumps(text[: max(0, most) * LETTERS], ensure_ascii=False)[1:-1]
    return _whole_letters(told[: measure(told, most)[0]])


def _is_short(text: str, most: int) -> bool:
    """Whether a text plainly fits: no letter has more tokens than bytes."""
    return len(text) <= most and len(json.dumps(text, ensure_ascii=False).encode()) - 2 <= most


def _whole_letters(told: str) -> str:
    """The text that the beginning of a JSON string tells; half a letter at its end, such as `\\u00`, is left out."""
    half = HALF.search(told)
    if half and len(half[1]) % 2:
        told = told[: half.end(1) - 1]
    text: str = json.loads(f'"{told}"')
    return text


def _whole_sentences(head: str) -> str:
    """The text without its last sentence, line or word, unless much would go by that."""
    for ending in (ENDING, LINE):
        if ends := [found.end() for found in ending.finditer(head, len(head) // 2)]:
            return head[: ends[-1]].rstrip()
    words = head.rsplit(None, 1)
    return words[0] if len(words) == 2 and len(words[0]) > len(head) * 3 // 4 else head


def fit_value(value: Any, most: int, depth: int = DEPTH) -> Any:
    """As much of a JSON value as fits in so many tokens; None when none of it does."""
    if want(value, most) <= most:
        return value
    if isinstance(value, str):
        return fit_text(value, most - 2) or None
    if depth == 0 or not isinstance(value, list | dict):
        return None
    parts = value if isinstance(value, dict) else dict(enumerate(value))
    return _fit_parts(parts, most - 2, depth, is_list=isinstance(value, list))


def _fit_parts(parts: dict[Any, Any], most: int, depth: int, *, is_list: bool) -> Any:
    """The parts of an object or a list that fit; long ones share what short ones leave. The last go first."""
    heads = {key: 2 if is_list else cost(key) + 3 for key in parts}
    while parts and sum(heads[key] + LEAST for key in parts) > most:
        parts = dict(list(parts.items())[: len(parts) * 3 // 4])
    names = {str(key): key for key in parts}
    wants = {name: want(parts[key], most) for name, key in names.items()}
    given = shares(wants, dict.fromkeys(names, 1), most - sum(heads[key] for key in parts))
    fitted = {key: fit_value(parts[key], given[name], depth - 1) for name, key in names.items()}
    kept = {key: one for key, one in fitted.items() if one is not None or parts[key] is None}
    return (list(kept.values()) if is_list else kept) or None


def fit_fields(fields: Mapping[str, Any], most: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Texts, objects and lists side by side in so many tokens, and how much of which is left out."""
    wants = {name: 0 if value is None else want(value, most) for name, value in fields.items()}
    given = shares(wants, dict.fromkeys(fields, 1), most)
    fitted = {
        name: value if wants[name] <= given[name] else _fit_field(value, given[name]) for name, value in fields.items()
    }
    left_out = {name: _length(fields[name]) - _length(fitted[name]) for name in fields}
    return fitted, {name: length for name, length in left_out.items() if length > 0}


def _fit_field(value: Any, most: int) -> Any:
    """As `fit_value` has it; but a list, which is one of paths, keeps its items whole."""
    if isinstance(value, list):
        return fit_items(affordable(map(with_cost, value), most - 2), most - 2) or None
    return fit_value(value, most)


def _length(value: Any) -> int:
    """The characters of a text, or of an object's JSON as `text_read` gives it; the items of a list."""
    if value is None or isinstance(value, str | list):
        return len(value or "")
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def with_cost(item: Any) -> CostedItem:
    """An item of a list with its cost in tokens, the comma before it included."""
    return CostedItem(item, cost(item) + 1)


def with_cost_within(item: Any, most: int) -> CostedItem | None:
    """The item with its approximate cost, or None if that is more than so many tokens."""
    tokens = want(item, most)
    return CostedItem(item, tokens + 1) if tokens <= most else None


def affordable(items: Iterable[CostedItem], most: int) -> list[CostedItem]:
    """The first items, up to the one with which they cost more than that together. It draws no more of them."""
    drawn: list[CostedItem] = []
    for item in items:
        drawn.append(item)
        most -= item.tokens
        if most < 0:
            break
    return drawn


def fit_items(items: Iterable[CostedItem], most: int) -> list[Any]:
    """The items from the first that fit together in so many tokens."""
    kept: list[Any] = []
    for one in items:
        most -= one.tokens
        if most < 0:
            break
        kept.append(one.item)
    return kept
