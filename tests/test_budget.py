"""What fits a budget: shares, texts cut where a sentence ends, objects and lists, each with what is left out of it."""

# ruff: noqa: RUF001  (sentences of Chinese and Japanese end with their own marks)

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crewhall.token_budget import (
    CostedItem,
    affordable,
    cost,
    fit_fields,
    fit_items,
    fit_text,
    fit_value,
    fits,
    shares,
    want,
    with_cost,
)
from tests.outside.samples import prose, real_cost
from tests.sizes import size

WEIGHTS = {"a": 15, "b": 55, "c": 20, "d": 10}
ANY = st.characters(exclude_categories=("Cs", "Cn"))
TEXTS = st.one_of(
    st.text(ANY, max_size=200),
    st.builds(lambda unit, times: unit * times, st.text(ANY, min_size=1, max_size=6), st.integers(1, 200)),
    st.sampled_from(["english", "chinese", "japanese"]).map(prose),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(ANY, max_size=20), inner, max_size=6),
    max_leaves=20,
)
EXTRA = 6  # tokens that parts may cost more together than one by one, for each part; the whole answer is counted anew


# Shares


@pytest.mark.parametrize(
    ("wants", "total", "gets"),
    [
        ((1000, 1000, 1000, 1000), 100, (15, 55, 20, 10)),
        ((5, 1000, 1000, 1000), 100, (5, 61, 22, 11)),  # what one does not need, the others get
        ((0, 0, 1000, 0), 100, (0, 0, 100, 0)),
        ((10, 20, 5, 5), 100, (10, 20, 5, 5)),
        ((1000, 0, 0, 1000), 100, (60, 0, 0, 40)),
        ((5, 5, 5, 5), 0, (0, 0, 0, 0)),
        ((5, 5, 5, 5), -50, (0, 0, 0, 0)),
        ((0, 0, 0, 0), 100, (0, 0, 0, 0)),
    ],
)
def test_shares_go_by_weight_and_what_one_does_not_need_the_others_get(
    wants: tuple[int, ...], total: int, gets: tuple[int, ...]
) -> None:
    given_out = shares(dict(zip(WEIGHTS, wants, strict=True)), WEIGHTS, total)
    assert tuple(given_out.values()) == gets


@given(st.lists(st.integers(0, 5000), min_size=4, max_size=4), st.integers(-100, 20_000))
def test_no_share_is_more_than_is_wanted_and_all_together_are_the_total_or_all_that_is_wanted(
    wants: list[int], total: int
) -> None:
    wanted = dict(zip(WEIGHTS, wants, strict=True))
    got = shares(wanted, WEIGHTS, total)
    assert all(0 <= got[name] <= wanted[name] for name in got)
    least = min(sum(wants), max(0, total))
    assert least - len(WEIGHTS) <= sum(got.values()) <= least


# Texts


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("One is done. Two is done. Three is not done yet at all.", 9, "One is done. Two is done."),
        ("One is done! Is two done? Three is not done yet at all.", 9, "One is done! Is two done?"),
        ("one line\nanother line\na third line which is too long", 8, "one line\nanother line"),
        ('He said: "It works." Then he left for good and did not return.', 9, 'He said: "It works."'),
        ("他说：“可以走了。”然后他就离开了，再也没有回来。", 10, "他说：“可以走了。”"),
        ("A sentence that ends.\nAnother that is broken\ninto lines", 9, "A sentence that ends."),
        ("version 3.11.7 of the interpreter is what runs here", 8, "version 3.11.7"),  # no end of a sentence
        ("第一步已经完成。第二步也已经完成。第三步还没有开始，需要等待。", 14, "第一步已经完成。第二步也已经完成。"),
        (
            "一つ目は終わった。二つ目も終わった！三つ目はまだ始まっていない。",
            18,
            "一つ目は終わった。二つ目も終わった！",
        ),
        ("words without any ending go on and on and on", 6, "words without any ending go"),
        ("short", 1, "short"),
        ("anything", 0, ""),
        ("anything", -5, ""),
        ("", 5, ""),
    ],
)
def test_a_text_is_cut_where_a_sentence_or_else_a_word_ends(text: str, most: int, kept: str) -> None:
    assert fit_text(text, most) == kept


@settings(max_examples=size(50, 150), deadline=None)
@given(TEXTS, st.integers(0, 400))
def test_a_cut_text_is_a_beginning_that_fits_and_is_not_cut_for_nothing(text: str, most: int) -> None:
    kept = fit_text(text, most)
    assert text.startswith(kept)
    assert real_cost(kept) - 2 <= most + EXTRA
    if want(text, most + 2) <= most + 2:
        assert kept == text
    plain = cost(text) * 12 > len(text) + 24  # not of blanks and rules, which count by their letters
    assert kept == text or not plain or cost(text) - 2 > most - 4 - len(text) // 64, "a few for the joints"


@pytest.mark.parametrize("language", ["english", "chinese", "japanese"])
def test_prose_ends_with_a_sentence_and_uses_its_room(language: str) -> None:
    text = prose(language)
    for most in (100, 200, 350):
        kept = fit_text(text, most)
        assert kept.rstrip('”」’"')[-1] in ".!?。！？", kept[-20:]
        assert real_cost(kept) > most / 2


def test_much_of_a_text_is_never_given_up_for_the_end_of_a_sentence() -> None:
    text = "Yes. " + "and so it went on without a stop " * 100
    assert len(fit_text(text, 200)) > 600


# Whole values


def test_what_is_longer_is_not_counted_to_its_end_and_what_fits_nearly_exactly() -> None:
    blanks = " " * 50_000
    assert want(blanks, 1000) == 50_002 // 12 > cost(blanks), "blanks are not worth their letters"
    assert want("word " * 100_000, 1000) == 1001
    assert fits(blanks, cost(blanks)) and not fits(blanks, cost(blanks) - 1), "and the truth"
    assert want("word " * 10, 100) == cost("word " * 10)
    assert not fits("word " * 100_000, 1000) and not fits("x", 0) and not fits("x", -9)


@settings(max_examples=size(30, 100), deadline=None)
@given(TEXTS, st.integers(-3, 3))
@example(":..::::::..::.:::.:::::::..:::" + "." * 95, 0)
def test_a_value_fits_when_its_tokens_do(text: str, beside: int) -> None:
    assert fits({"k": text}, cost({"k": text}) + beside) == (beside >= 0)


@settings(max_examples=size(50, 150), deadline=None)
@given(VALUES, st.integers(0, 300))
def test_what_is_kept_of_an_object_fits_and_is_of_the_same_make(value: Any, most: int) -> None:
    kept = fit_value(value, most)
    assert kept is None or type(kept) is type(value)
    if want(value, most) <= most:
        assert kept == value
    if kept is not None:
        parts = json.dumps(kept, ensure_ascii=False).count(",") + 2
        assert real_cost(kept) <= most + EXTRA * parts
        within(kept, value)


def within(kept: Any, whole: Any) -> None:
    """What is kept is the beginning of what was there; of objects and lists, parts of it in their order."""
    if isinstance(whole, str):
        assert whole.startswith(kept)
    elif isinstance(whole, dict):
        assert [key for key in whole if key in kept] == list(kept)
        for key in kept:
            within(kept[key], whole[key])
    elif isinstance(whole, list):
        assert len(kept) <= len(whole)
    else:
        assert kept == whole


def test_short_parts_of_an_object_are_kept_whole_and_long_ones_share_the_rest() -> None:
    value = {"approach": "carefully", "steps": ["look", "try. " * 200], "files": ["a.py"], "note": "think. " * 200}
    kept = fit_value(value, 150)
    assert kept["approach"] == "carefully" and kept["files"] == ["a.py"] and kept["steps"][0] == "look"
    assert kept["steps"][1].startswith("try. try.") and kept["note"].startswith("think. think.")
    assert 0.5 < len(kept["steps"][1]) / len(kept["note"]) < 1.4
    assert 100 < real_cost(kept) <= 150


@pytest.mark.parametrize(
    "value", [{"k" * 5000: 1}, {str(key): key for key in range(5000)}, [[]] * 5000, [[[[[["x"]]]]]] * 99]
)
def test_objects_of_any_make_are_cut_to_some_parts_or_to_none(value: Any) -> None:
    kept = fit_value(value, 60)
    assert kept is None or real_cost(kept) <= 60


# Fields, and what is left out of them


def test_fields_tell_the_characters_they_lack_and_a_list_its_items() -> None:
    fields = {"text": "Done it. " * 200, "object": {"a": "b" * 3000, "c": 1}, "paths": ["src/x.py"] * 300, "none": None}
    fitted, left_out = fit_fields(fields, 150)
    assert set(left_out) == {"text", "object", "paths"} and fitted["none"] is None
    assert len(fitted["text"]) + left_out["text"] == len(fields["text"] or "")
    assert len(compact(fitted["object"])) + left_out["object"] == len(compact(fields["object"]))
    assert len(fitted["paths"]) + left_out["paths"] == 300
    assert set(fitted["paths"]) == {"src/x.py"}, "a path is there whole or not at all"
    assert real_cost(fitted) <= 150 + 20


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries({"text": TEXTS | st.none(), "paths": st.lists(st.text(ANY, min_size=1), max_size=30)}),
    st.integers(-10, 300),
)
def test_what_is_shown_and_what_is_left_out_are_the_whole(fields: dict[str, Any], most: int) -> None:
    fitted, left_out = fit_fields(fields, most)
    for name, value in fields.items():
        assert len(fitted[name] or "") + left_out.get(name, 0) == len(value or "")
    paths = fitted["paths"] or []
    assert paths == fields["paths"][: len(paths)]


# Items of a list


def test_items_are_costed_until_they_would_not_fit_and_no_further() -> None:
    asked: list[int] = []

    def items() -> Any:
        for number in range(1000):
            asked.append(number)
            yield {"id": number, "text": "word " * 20}

    found = affordable(map(with_cost, items()), 200)
    assert len(asked) == len(found) < 15 and sum(one.tokens for one in found) > 200
    assert all(one.tokens == cost(one.item) + 1 for one in found)


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(-10, 300))
def test_the_first_items_that_fit_together_are_kept(sizes: list[int], most: int) -> None:
    kept = fit_items([CostedItem({"n": number}, tokens) for number, tokens in enumerate(sizes)], most)
    assert kept == [{"n": number} for number in range(len(kept))]
    assert sum(sizes[: len(kept)]) <= max(0, most)
    assert len(kept) == len(sizes) or sum(sizes[: len(kept) + 1]) > most
