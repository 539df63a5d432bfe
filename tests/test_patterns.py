"""No regular expression of the product takes long: re holds up all other threads."""

import re
from collections.abc import Sequence

import pytest

from crewhall.families.pulls.rules_scope import ANY_CHARACTER, PLAIN_CHARACTER, _glob
from crewhall.families.review.rules_match import lexicon
from tests.pumps import Found, patterns_given, patterns_held, slow

# What is put together while the product runs: examples, or why none is needed.
MADE: dict[str, Sequence[re.Pattern[str]]] = {
    "families.pulls.rules_scope._glob": [_glob("*a*?a*a", character) for character in (ANY_CHARACTER, PLAIN_CHARACTER)],
    "families.review.rules_match.lexicon": tuple(lexicon().kinds.values()),
    "families.review.rules_match.kinds": (),  # names, taken to the letter
    "families.crew.rules.numbered_id": (),  # the same, and a number of six digits
    "families.work.message.rules._parts": (),  # numbers of some digits
    "families.pulls.rules_scope.": (),  # in NOT_PLAIN, which is tried
    "families.judge.rules_secret._net": (),  # in NETS, which are tried
    "fakehosts.faults.fits": (),  # whoever sets up a pretended host writes it
    "fakehosts.routes.add": (),  # read by a pretended host alone
}


def test_no_pattern_takes_for_ever() -> None:
    given, made = patterns_given()
    assert set(made) == set(MADE), "give an example of each pattern that is put together, and of no other"
    examples = [Found(place, pattern, "fullmatch") for place, some in MADE.items() for pattern in some]
    every = {(one.pattern, one.way): one for one in [*patterns_held(), *given, *examples]}
    assert len(every) > 150
    assert slow(list(every.values())) == {}, "make a repeat possessive, or let two that follow each other differ"


@pytest.mark.parametrize(
    ("pattern", "way"),
    [
        (r"^mod\b[ \t]*\??[ \t]*\w+", "search"),  # justfiles, until it froze a hub
        (r"##[ \t]+(.*?)[ \t]*#*", "fullmatch"),
        (r"\s+$", "search"),
        (r"(a|aa)+$", "match"),
        (r"(?:\w+\.)*x", "search"),
    ],
)
def test_a_pattern_that_takes_for_ever_is_found(pattern: str, way: str) -> None:
    assert slow([Found("here", re.compile(pattern, re.MULTILINE), way)], patience=1.0)


def test_a_pattern_that_does_not_is_let_be() -> None:
    assert slow([Found("here", re.compile(r"(?<![\w.])\w++(?:\.\w++)*+[ \t]*+x"), "search")]) == {}
