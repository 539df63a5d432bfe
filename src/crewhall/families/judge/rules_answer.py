"""
What Claude said, as a ruling: exactly one object that fits the shape, or none. Never a pass by accident.

    {"task_id": …}                            the ruling
    Here it is: ```json {"task_id": …} ```    the ruling, though there are words around it that say nothing
    two objects that differ, a broken one, one of another task, a PASS that blocks      none
    a PASS with other words around it         none: they may tell of a PASS that a file has, and say FAIL
"""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from crewhall.families.judge.model import Ruling, Verdict
from crewhall.outside.strict_json import DECODER

LONGEST = 1_000_000  # characters of an answer
TRIES = 2_000  # places at which an object might begin
MOST_PROBLEMS = 10  # that are told
MEANT = re.compile(r"\{\s*(?:[\"'}]|\w+\s*:)")  # as an object, whatever comes of it; `{this}` is none
POLITE = 200  # characters of courtesy
FENCES = re.compile(r"```(?:json)?")
# Words of courtesy, as models have them around an answer, and no others: a quotation is told of in other words.
BEFORE = re.compile(
    r"(?:(?:sure|okay|ok|certainly)\W+)?(?:i(?:'ve| have) (?:completed|finished|done) (?:the|my) review\W+)?"
    r"(?:here(?:'s| it is| is)(?: my| the)?(?: final)?(?: (?:json|verdict|review|report|result|ruling|answer))*"
    r"(?:,? as requested|,? below)?)?[\s:.,!*-]*",
    re.IGNORECASE,
)
BEHIND = re.compile(
    r"[\s.!*-]*(?:(?:let me know if you (?:need anything else|have any questions)|done|thanks|thank you)[\s.!]*)?",
    re.IGNORECASE,
)
Span = tuple[Any, int, int]


class UnreadableAnswer(Exception):
    """The reply holds no ruling; the message says why."""


def ruling_in(text: str, shape: type[Ruling], task_id: str | None) -> Ruling:
    """The one ruling that a text holds; a verdict is of this task. Raises UnreadableAnswer."""
    if len(text) > LONGEST:
        raise UnreadableAnswer(f"the answer has {len(text)} letters")
    spans = list(_objects(text))
    if not spans:
        raise UnreadableAnswer("there is no JSON object in the answer")
    if any(one != spans[0][0] for one, _, _ in spans):
        raise UnreadableAnswer(f"there are {len(spans)} different objects in the answer")
    try:
        ruling = shape.model_validate(spans[0][0])
    except ValidationError as error:
        raise UnreadableAnswer("; ".join(problems(error))) from None
    if isinstance(ruling, Verdict) and ruling.task_id != task_id:
        raise UnreadableAnswer(f"the report is for task '{ruling.task_id[:100]}', and the contract's is '{task_id}'")
    if ruling.is_good and not _is_alone(text, spans):
        raise UnreadableAnswer(f"it says {ruling.word}, and more beside that: it may be a quotation")
    return ruling


def _is_alone(text: str, spans: "list[Span]") -> bool:
    """Whether nothing is said beside the objects but words of courtesy."""
    ends = [0, *(place for _, start, end in spans for place in (start, end)), len(text)]
    first, *between, last = (FENCES.sub("", text[start:end]) for start, end in zip(ends[::2], ends[1::2], strict=True))
    first, last = first.strip(), last.strip()
    if len(first) + len(last) > POLITE or "".join(between).strip():
        return False
    return BEFORE.fullmatch(first) is not None and BEHIND.fullmatch(last) is not None


def problems(error: ValidationError) -> list[str]:
    """What is wrong, field by field; of a list the first that is."""
    messages: dict[tuple[str, ...], str] = {}
    for one in error.errors(include_url=False, include_input=False):
        field = tuple(part for part in one["loc"] if isinstance(part, str) and "[" not in part)
        place = ".".join(str(part) for part in one["loc"] if "[" not in str(part))  # a side of a union
        messages.setdefault(field, f"{place}: {_plain_message(one['msg'])}" if place else _plain_message(one["msg"]))
    return list(messages.values())[:MOST_PROBLEMS]


def _plain_message(message: str) -> str:
    message = "input should be an object" if "valid dictionary" in message else message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:200]


def _objects(text: str) -> "Iterator[Span]":
    """The JSON objects in a text, and where each is; none that is inside another. Raises UnreadableAnswer.

    What is inside a broken one is not looked at: that may be a quotation, and the broken one the answer.
    """
    start = text.find("{")
    for _ in range(TRIES):
        if start < 0:
            return
        try:
            one, end = DECODER.raw_decode(text, start)
            yield one, start, end
            start = end
        except (ValueError, RecursionError):
            if MEANT.match(text, start):
                raise UnreadableAnswer(f"what begins at letter {start + 1} is no JSON object") from None
            start += 1
        start = text.find("{", start)
    raise UnreadableAnswer("there are too many braces in the answer")
