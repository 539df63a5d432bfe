"""
Names that no agent may take: those of the hall's own actors, and all that look like them or like an id.

    name ─▶ skeleton: what a reader sees, in small ASCII letters; `?` for a letter of another script ─▶ reserved?
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import count, islice

from crewhall.errors import InvalidInput
from crewhall.families.work.agent.model import AgentNamed
from crewhall.families.work.model import NAME_LETTERS
from crewhall.fence import UNSEEN

RESERVED = ("operator", "hall")  # actors that are no agents
ID = re.compile(r"ag_.*|[a-z?]{2}_[0-9a-z?]{12}")
TURNED = re.compile("[\u202a-\u202e\u2066-\u2069]")  # controls by which a text reads from right to left
CAPITALS = str.maketrans("I", "l")  # which in many faces is an l
UNKNOWN = "?"
DIGITS = "ol23456789"  # as a reader sees them
# Letters of other scripts, and others, that look like these, in the small form that casefold gives: Cyrillic, Greek,
# Armenian, Coptic, Cherokee, Lisu, small capitals, strokes and hooks.
ALIKE = {
    "a": "\u0430\u03b1\u0251\u2c81\u13aa\ua4ee\u1d00\u2202\u237a",
    "e": "\u0435\u0454\u04bd\u03b5\u2c89\u13ac\ua4f0\u1d07\u025b\u212e",
    "g": "\u0261\u0581\u050d\u13c0\ua4d6\u0262",
    "h": "\u04bb\u043d\u03b7\u0570\u2c8f\u13bb\u13c2\ua4e7\u029c\u0127",
    "l": "1|!\u04cf\u0456\u03b9\u2c93\u13de\ua4e1\ua4f2\u029f\u0142\u019a\u0269\u0131\ua781\u01c0\u0627\u05df\u2223",
    "o": "0\u043e\u03bf\u03c3\u0585\u2c9f\u10ff\ua4f3\u1d0f\u00f8\u25cb\u25ef\u00b0",
    "p": "\u0440\u03c1\u2ca3\u13e2\ua4d1\u1d18\u01a5\u00fe",
    "r": "\u0433\u044f\u2c85\u13a1\u13d2\ua4e3\u0280\u1d26\uab47\uab48\u027c\u027d\u027e",
    "t": "\u0442\u03c4\u2ca7\u13a2\ua4d4\u1d1b\u0167\u2020",
    "_": "\u02cd\u23bd",
}
DRESSED = re.compile("(?:LATIN [A-Z]+|SYMBOL) LETTER ([A-Z])(?: WITH|$)")  # with strokes, in boxes and circles
LETTERS = {ord(alike): letter for letter, all_alike in ALIKE.items() for alike in all_alike}


def refuse_reserved_name(name: str) -> None:
    """Raise InvalidInput for a name that reads like one of the hall's own actors, or like an id."""
    seen = _reserved_in(name)
    if seen is not None:
        raise InvalidInput(
            f"the name {name!a} reads like {seen}",
            hint="Choose another name: operator and hall are the hall's own, and only the hall gives ids.",
        )


def _reserved_in(name: str) -> str | None:
    """What of the hall's own a name reads like, in words."""
    for seen in skeletons(name):
        taken = next((word for word in RESERVED if _reads_like(seen, word)), None)
        if taken is not None or ID.fullmatch(seen):
            return "an id" if taken is None else f"{taken!r}, which is reserved"
    return None


def names_like(name: str, first: int, number: int) -> list[str]:
    """So many of name, name-2, name-3 …, from one of them on; each fits its limit and reads like nothing reserved."""
    is_reserved = _reserved_in(name) is not None  # a name of an older hall
    numbered = (f"{name[: NAME_LETTERS - len(end)]}{end}" for end in (f"-{number}" for number in count(2)))
    names = [name] if first == 0 else []
    free = (one for one in numbered if is_reserved or _reserved_in(one) is None)
    return names + list(islice(free, max(first - 1, 0), first + number - 1))


def must_yield(agent_id: str, named: Sequence[AgentNamed]) -> bool:
    """Whether an agent leaves its name to another one of these, which all have it.

    Who has no token yields to anyone; one of two with tokens yields to the older one.
    """
    own = next((row for row in named if row["id"] == agent_id), None)
    others = [row for row in named if row["id"] != agent_id]
    if own is None or not own["is_reserved"]:
        return bool(others)
    return any(row["is_reserved"] and _age(row) < _age(own) for row in others)


def _age(row: AgentNamed) -> tuple[int, str]:
    return row["created_at"], row["id"]


def skeletons(name: str) -> Iterator[str]:
    """What a reader may see in a name: all of it, and its letters without the marks; also from right to left."""
    seen = skeleton(name)
    for text in {seen, re.sub(r"[^\w?]+", "", seen)}:
        yield text
        if TURNED.search(name):
            yield text[::-1]


def skeleton(name: str) -> str:
    """A name without accents, blanks and what nobody sees, with small ASCII letters for all that look like them."""
    plain = unicodedata.normalize("NFKD", UNSEEN.sub("", name)).translate(CAPITALS)
    small = unicodedata.normalize("NFKD", plain.casefold()).translate(LETTERS)
    return "".join(filter(None, map(_appearance, small)))


def _appearance(character: str) -> str:
    category = unicodedata.category(character)
    if category[0] in "MZC" or character == "\u2800":  # accents, blanks, controls; the braille cell without a dot
        return ""
    if character.isascii():
        return character
    digit: int | None = unicodedata.digit(character, None)
    if digit is not None:
        return DIGITS[digit]
    dressed = DRESSED.search(unicodedata.name(character, ""))
    if dressed is not None and dressed[1].lower() in ALIKE:
        return dressed[1].lower()
    return UNKNOWN if category[0] == "L" else character


def _reads_like(seen: str, word: str) -> bool:
    """Whether a skeleton may be taken for a word: no letter differs, and at most half of them are unknown ones."""
    pairs = list(zip(seen, word, strict=False))
    same = sum(one == other for one, other in pairs)
    return len(seen) == len(word) and all(one in (other, UNKNOWN) for one, other in pairs) and 2 * same >= len(word)
