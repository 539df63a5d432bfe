"""
Twenty reviews, played from scripts: in how many rounds each ends, and how.

A round is what the coder changes and says, and what the reviewer finds. Items go by names, for which the hall's ids are
filled in. What blocks begins with `!`; `name=` names an item of before, `name:` gives a new one its name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.families.crew.conftest import Site
from tests.families.review.conftest import Loop
from tests.outside.repos import commit
from tests.sizes import size

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]

ZERO = "`total` in total.py divides by the number of rows, which may be zero."
ZERO_AGAIN = "ZeroDivisionError: `total` has no guard against zero rows in total.py."
ZERO_THIRD = "Calling `total` without rows ends in a division by zero (total.py)."
LEAK = "`read_all` in read.py never closes the file it opens."
LEAK_AGAIN = "File handle leak: `read_all` in read.py should use a context manager."
NAME = "`x2` is a vague name; call it `rows_per_page`."
FINE, MORE = "Consider a docstring for `total`.", "Perhaps sort the imports."


@dataclass(frozen=True)
class Round:
    """`changes` are files that the coder commits before it asks, `says` is what it says of items."""

    finds: tuple[str, ...]
    changes: tuple[str, ...] = ()
    says: dict[str, str] = field(default_factory=dict)
    resolved: tuple[str, ...] = ()
    type: str = "needs_work"


@dataclass(frozen=True)
class History:
    """How a review goes, and how it must end: the number of blocking items after each round, and what comes then."""

    name: str
    rounds: tuple[Round, ...]
    blocking: tuple[int, ...]
    end: str  # converged, approved, refused at the limit, waived by a person


def needs(*finds: str, **more: Any) -> Round:
    return Round(finds, **more)


def suggests(*finds: str, **more: Any) -> Round:
    return Round(finds, type="suggestions", **more)


FIX = ("total.py",)
HISTORIES = [
    History("approves at once", (suggests(),), (0,), "converged"),
    History("one problem, fixed", (needs(f"!zero: {ZERO}"), suggests(changes=FIX)), (1, 0), "converged"),
    History("fixed, then only taste", (needs(f"!zero: {ZERO}"), suggests(FINE, changes=FIX)), (1, 0), "converged"),
    History(
        "repeats itself in other words, unfixed",
        (needs(f"!zero: {ZERO}"), needs(f"!{ZERO_AGAIN}"), needs(f"!{ZERO_THIRD}")),
        (1, 1, 1),
        "refused at the limit",
    ),
    History(
        "repeats a fixed problem in other words",
        (needs(f"!zero: {ZERO}"), suggests(changes=FIX), needs(f"!{ZERO_AGAIN}")),
        (1, 0, 1),
        "refused at the limit",
    ),
    History(
        "finds ever smaller things",
        (needs(f"!zero: {ZERO}"), needs(f"!{NAME}", changes=FIX), needs(f"!{MORE}", changes=FIX)),
        (1, 1, 1),
        "refused at the limit",
    ),
    History(
        "finds ever smaller things, each fixed where it is",
        (needs(f"!zero: {ZERO}"), needs(f"!{LEAK}", changes=FIX), suggests(FINE, changes=("read.py",))),
        (1, 1, 0),
        "converged",
    ),
    History(
        "smaller things that do not block",
        (needs(f"!zero: {ZERO}", FINE), suggests(MORE, changes=FIX)),
        (1, 0),
        "converged",
    ),
    History(
        "contradicts its last round",
        (
            needs("!`limit` in total.py is too small; raise it."),
            needs("!`limit` in total.py is too large; lower it.", changes=FIX),
        ),
        (1, 1),
        "under way",
    ),
    History(
        "never names ids, and the coder fixes",
        (needs(f"!{ZERO}", f"!{LEAK}"), suggests(FINE, changes=("total.py", "read.py"))),
        (2, 0),
        "converged",
    ),
    History(
        "never names ids, and the coder fixes half",
        (needs(f"!{ZERO}", f"!{LEAK}"), needs(f"!{LEAK_AGAIN}", changes=FIX), suggests(changes=("read.py",))),
        (2, 1, 0),
        "converged",
    ),
    History(
        "forgets what the coder did not fix",
        (needs(f"!zero: {ZERO}", f"!leak: {LEAK}"), suggests(FINE, changes=FIX)),
        (2, 1),
        "under way",
    ),
    History(
        "names what is left, and what is fixed",
        (
            needs(f"!zero: {ZERO}", f"!leak: {LEAK}"),
            needs("!leak=It is still open.", changes=FIX, resolved=("zero",)),
            suggests(changes=("read.py",), resolved=("leak",)),
        ),
        (2, 1, 0),
        "converged",
    ),
    History(
        "the coder disputes, the reviewer accepts",
        (needs(f"!zero: {ZERO}"), suggests(says={"zero": "disputed"}, resolved=("zero",))),
        (1, 0),
        "converged",
    ),
    History(
        "the coder disputes, the reviewer insists",
        (needs(f"!zero: {ZERO}"), needs("!zero=The list can be empty.", says={"zero": "disputed"})),
        (1, 1),
        "under way",
    ),
    History(
        "the coder disputes, and nobody answers",
        (needs(f"!zero: {ZERO}"), suggests(FINE, changes=FIX, says={"zero": "disputed"})),
        (1, 1),
        "under way",
    ),
    History(
        "the coder says it is fixed elsewhere",
        (needs(f"!zero: {ZERO}"), suggests(changes=("caller.py",), says={"zero": "fixed"})),
        (1, 0),
        "converged",
    ),
    History(
        "a reviewer takes its own demand back",
        (needs(f"!zero: {ZERO}"), suggests("zero=Not in this change.")),
        (1, 0),
        "converged",
    ),
    History(
        "a person waives what the reviewer repeats",
        (needs(f"!zero: {ZERO}"), needs(f"!{ZERO_AGAIN}"), needs("!zero=Still there.", says={"zero": "waived"})),
        (1, 1, 0),
        "converged",
    ),
    History(
        "a waived item in other words blocks again",
        (needs(f"!zero: {ZERO}"), needs(f"!{ZERO_AGAIN}", says={"zero": "waived"})),
        (1, 1),
        "under way",
    ),
]
PLAYED = size(7, len(HISTORIES))


class Player:
    """Plays a history with a hall."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.names: dict[str, str] = {}

    def play(self, one: Round) -> list[str]:
        """The items that block after a round."""
        for name in one.changes:
            path = self.loop.tree / name
            path.write_text(f"{path.read_text() if path.exists() else ''}#\n")
            commit(self.loop.tree, f"change {name}")
        for name, word in one.says.items():
            if word == "waived":
                self.loop.site.call("review_waive", item_id=self.names[name], reason="Rows are never empty.")
        says = [self.say(name, word) for name, word in one.says.items() if word != "waived"]
        reviewer = self.loop.request(items=says)
        given = [self.given(text) for text in one.finds]
        named = [(match[1], at) for at, text in enumerate(one.finds) if (match := re.match(r"!?(\w+): ", text))]
        resolved = [self.names[name] for name in one.resolved]
        more = {"actionable_items": given, "resolved_items": resolved, "feedback_type": one.type}
        sent = self.loop.send(reviewer, **more)
        self.loop.run_chores()
        items = self.loop.site.call("review_get", instance_id=self.loop.coder)["rounds"][0]["item_list"]
        self.names |= {name: items[at]["id"] for name, at in named}
        assert sent["converged"] == (not sent["blocking_items"])
        left: list[str] = sent["blocking_items"]
        return left

    def say(self, name: str, word: str) -> dict[str, str]:
        return {"item_id": self.names[name], "state": word, "note": "The list is never empty."}

    def given(self, text: str) -> dict[str, Any]:
        blocks, words = text.startswith("!"), text.removeprefix("!")
        known = re.match(r"(\w+)=(.*)", words)
        if known:
            return {"text": known[2], "item_id": self.names[known[1]], "blocking": blocks}
        words = re.sub(r"^\w+: ", "", words) if re.match(r"\w+: `", words) else words
        file = re.search(r"\w+\.py", words)
        return {"text": words, "file": file and file[0], "blocking": blocks}


@pytest.mark.parametrize("history", HISTORIES[:: max(1, len(HISTORIES) // PLAYED)], ids=lambda one: one.name)
def test_a_review_ends_as_it_should(make_site: Callable[..., Site], history: History) -> None:
    loop = Loop(make_site())
    loop.work()
    player = Player(loop)
    found = tuple(len(player.play(one)) for one in history.rounds)
    assert found == history.blocking
    if history.end == "converged":
        assert "call create_pull_request" in loop.by(loop.coder, "message_list")["messages"][0]["body"]
    elif history.end == "refused at the limit":
        refused = loop.refusal(loop.coder, "request_review")
        assert refused.code == "REVIEW_LIMIT_EXCEEDED"
        blocking = [one for one in refused.body("")["packet"]["open_items"] if one["blocking"]]
        assert len(blocking) == history.blocking[-1]
        command = refused.body("")["packet"]["actions"][0]["command"]
        assert command.startswith(f"crewhall review waive {blocking[0]['id']}")
    else:
        assert loop.status() == "started" and found[-1] > 0
