"""The life of an item: what each round makes of it, and that nothing which blocks is waved through."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.errors import InvalidInput
from crewhall.families.review.model import ItemAnswer, ItemGiven, ItemState
from crewhall.families.review.rules_item import (
    UNSETTLED,
    KnownItem,
    Mention,
    answered,
    find_items,
    has_converged,
    is_touched,
    refuse_contradiction,
    settle,
)
from crewhall.families.review.rules_match import Finding

TEXT = "`total` divides by the number of rows, which may be 0."
AGAIN = "Division by zero in `total` when there are no rows."
ids = itertools.count()


def pass_by() -> None:
    """Nobody stops."""


def known(state: ItemState = "open", **more: Any) -> KnownItem:
    fields: dict[str, Any] = {"is_blocking": True, "claim": None, "wordings": (Finding(TEXT, "a.py"),), **more}
    return KnownItem("ri_1", state, **fields)


def after(item: KnownItem, *given: ItemGiven, resolved: tuple[str, ...] = ()) -> KnownItem:
    return settle([item], find_items(given, [item], lambda: f"new-{next(ids)}", pass_by), resolved)[0]


def named(**more: Any) -> ItemGiven:
    return ItemGiven(text="It is still there.", item_id="ri_1", blocking=True, **more)


@pytest.mark.parametrize(
    ("item", "given", "resolved", "state", "blocks"),
    [
        (known(), [named()], (), "repeated", True),
        (known(), [ItemGiven(text=AGAIN, file="a.py", blocking=False)], (), "repeated", True),
        (known(is_blocking=False), [ItemGiven(text=AGAIN, file="a.py", blocking=True)], (), "repeated", True),
        (known(), [], (), "open", True),
        (known(is_touched=True), [], (), "fixed", False),
        (known(claim="fixed"), [], (), "fixed", False),
        (known(), [], ("ri_1",), "fixed", False),
        (known("disputed", claim="disputed", is_touched=True), [], (), "disputed", True),
        (known("disputed", claim="disputed"), [], ("ri_1",), "waived", False),
        (known("disputed", claim="disputed"), [named()], (), "repeated", True),
        (known("fixed"), [ItemGiven(text=AGAIN, file="a.py", blocking=False)], (), "repeated", True),
        (known("fixed"), [], (), "fixed", False),
        (known("waived"), [named()], (), "waived", False),
        (known("waived"), [ItemGiven(text=TEXT, file="a.py", blocking=True)], (), "waived", False),
    ],
)
def test_a_round_settles_an_item(
    item: KnownItem, given: list[ItemGiven], resolved: tuple[str, ...], state: str, blocks: bool
) -> None:
    now = after(item, *given, resolved=resolved)
    assert (now.state, now.blocks) == (state, blocks)


def test_a_reviewer_that_names_an_item_can_unblock_it() -> None:
    assert not after(known(), named().model_copy(update={"blocking": False})).blocks
    conceded = after(known("disputed", claim="disputed"), named().model_copy(update={"blocking": False}))
    assert conceded.state == "waived"


def test_words_that_match_what_a_person_waived_are_a_new_item() -> None:
    (mention,) = find_items(
        [ItemGiven(text=AGAIN, file="a.py", blocking=True)], [known("waived")], lambda: "new", pass_by
    )
    assert mention.found_by == "new" and not has_converged([known("waived")], [mention])


def test_one_finding_takes_an_item_and_the_next_is_new() -> None:
    twice = [ItemGiven(text=AGAIN, file="a.py", blocking=True)] * 2
    assert [one.item_id for one in find_items(twice, [known()], lambda: "new", pass_by)] == ["ri_1", "new"]


def test_an_unknown_id_and_a_contradiction_are_refused() -> None:
    with pytest.raises(InvalidInput, match="there is no item 'ri_9'") as refused:
        find_items([ItemGiven(text="x", item_id="ri_9")], [known()], lambda: "new", pass_by)
    assert "ri_1" in (refused.value.hint or "")
    with pytest.raises(InvalidInput, match="in actionable_items and in resolved_items"):
        refuse_contradiction([Mention("ri_1", "id", named())], ["ri_1"])


def test_a_coder_claims_or_disputes() -> None:
    assert answered(known(), ItemAnswer(item_id="ri_1", state="disputed")).state == "disputed"
    claimed = answered(known("disputed"), ItemAnswer(item_id="ri_1", state="fixed"))
    assert (claimed.state, claimed.claim, claimed.blocks) == ("repeated", "fixed", True)


@pytest.mark.parametrize(
    ("file", "changed", "expected"),
    [
        (None, {"b.py"}, True),
        (None, set(), False),
        ("src/a.py", {"src/a.py"}, True),
        ("a.py", {"src/a.py"}, True),
        ("./src/a.py", {"src/a.py"}, True),
        ("src/a.py", {"src/ba.py", "src/b.py"}, False),
        ("a.py", {"src/ba.py"}, False),
    ],
)
def test_only_a_change_of_its_file_can_have_fixed_an_item(file: str | None, changed: set[str], expected: bool) -> None:
    assert is_touched(file, changed) is expected


states = st.sampled_from(["open", "fixed", "disputed", "waived", "repeated"])
claims = st.sampled_from([None, "fixed", "disputed"])


@given(states, claims, st.booleans(), st.booleans(), st.sampled_from(["none", "named", "words"]), st.booleans())
def test_a_blocking_item_goes_only_with_a_reason(
    state: ItemState, claim: Any, is_blocking: bool, touched: bool, raised: str, is_resolved: bool
) -> None:
    item = known(state, claim=claim, is_blocking=is_blocking, is_touched=touched)
    given = {"none": [], "named": [named()], "words": [ItemGiven(text=AGAIN, file="a.py", blocking=False)]}[raised]
    now = after(item, *given, resolved=("ri_1",) if is_resolved and not given else ())
    if item.blocks and not now.blocks:
        is_excused = touched or claim == "fixed"
        assert not given and (is_resolved or (is_excused and state != "disputed"))
    if now.state in UNSETTLED and now.is_blocking:
        assert not has_converged([now], [])
