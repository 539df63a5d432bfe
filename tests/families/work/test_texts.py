"""Long texts in short answers: what is cut fits, what is left out is counted, whatever the text is."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.bounded import CARGO_BYTES, cut, cut_middle, fair_share, json_text, short_list, take_fitting
from crewhall.errors import InvalidInput
from crewhall.families.work.repository.model import Repository

NASTY = ["a", '"', "\\", "\n", "\x01", "\x1f", "\x7f", "é", "漢", "😀", "\u2028", "\ud7ff"]
texts = st.text(st.sampled_from(NASTY), max_size=300) | st.text(max_size=100)
cargo = st.dictionaries(
    st.text(max_size=5), st.recursive(st.none() | st.integers() | texts, st.lists, max_leaves=5), max_size=4
)


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


@given(texts, st.integers(0, 400))
def test_a_text_is_cut_to_its_bytes_and_the_rest_is_counted(text: str, each: int) -> None:
    out = cut({"t": text, "kept": 1}, ("t",), (), each=each)
    assert size(out["t"]) - 2 <= max(each, 0) and text.startswith(out["t"]) and out["kept"] == 1
    left = len(text) - len(out["t"])
    assert out["left_out"] == ({"t": left} if left else None)
    assert bool(left) == (size(text) - 2 > each), "what fits is whole"


@given(texts, st.integers(12, 400))
def test_a_cut_wastes_little_of_its_bytes(text: str, each: int) -> None:
    kept = cut({"t": text}, ("t",), (), each=each)["t"]
    assert kept == text or size(kept) - 2 > each - 12 or size(kept) - 2 >= each * 2 // 3


@given(st.lists(texts, max_size=5), st.lists(cargo, max_size=3), st.integers(0, 1500))
def test_all_texts_of_a_thing_stay_within_its_total(words: list[str], things: list[Any], total: int) -> None:
    fields: dict[str, Any] = {f"t{n}": text for n, text in enumerate(words)}
    fields |= {f"c{n}": json_text("c", thing) for n, thing in enumerate(things)} | {"none": None}
    out = cut(
        fields, [f"t{n}" for n in range(len(words))], [*(f"c{n}" for n in range(len(things))), "none"], total=total
    )
    left_out = out["left_out"] or {}
    spent = sum(size(out[name]) - 2 for name in fields if name.startswith("t"))
    for number, thing in enumerate(things):
        name = f"c{number}"
        if name in left_out:
            assert out[name] is None and left_out[name] == len(fields[name])
        else:
            assert out[name] == thing
            spent += size(thing)
    assert spent <= total and out["none"] is None
    for name in (name for name in fields if name.startswith("t")):
        assert left_out.get(name, 0) == len(fields[name]) - len(out[name])


@given(st.lists(texts, max_size=12), st.integers(2, 500))
def test_a_list_of_texts_is_cut_to_its_bytes_and_what_is_missing_is_counted(words: list[str], most: int) -> None:
    kept = short_list(words, most)
    assert kept == words[: len(kept)] and (not kept or size(kept) <= most)
    assert len(kept) == len(words) or size(words[: len(kept) + 1]) > most - 2
    out = cut({"l": words}, ("l",), (), each=most)
    left = len(words) - len(out["l"])
    assert out["left_out"] == ({"l": left} if left else None) and (size(out["l"]) <= max(most, 2))


def test_an_object_is_measured_as_it_is_sent() -> None:
    numbers = json_text("c", {"n": [1] * 3_000})
    out = cut({"c": numbers}, (), ("c",), total=7_000)
    assert out["c"] is None and out["left_out"] == {"c": len(numbers)}
    assert size(cut({"c": numbers}, (), ("c",), total=10_000)["c"]) <= 10_000


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(0, 3000))
def test_long_ones_share_what_short_ones_leave(sizes: list[int], total: int) -> None:
    limit = fair_share(sizes, total)
    spent = sum(min(one, limit) for one in sizes)
    assert spent <= total
    if sum(sizes) > total:
        assert spent > total - len(sizes), "nothing is wasted"
    else:
        assert all(one <= limit for one in sizes)


@given(st.lists(st.integers(0, 300), max_size=20), st.integers(1, 2000))
def test_as_many_items_fit_as_fit_and_one_at_least(lengths: list[int], most: int) -> None:
    items = [Repository(id='"', path="/" + "漢" * n, name="\x01", created_at=0, updated_at=0) for n in lengths]
    kept = take_fitting(items, most)
    assert kept == items[: len(kept)] and (kept or not items)

    def whole(count: int) -> int:
        return size([one.model_dump() for one in items[:count]])

    assert len(kept) <= 1 or whole(len(kept)) <= most + 2
    assert len(kept) == len(items) or whole(len(kept) + 1) > most


def test_an_object_is_kept_within_its_bytes_not_its_letters() -> None:
    assert json_text("plan", {"a": "é", "b": [1]}) == '{"a":"é","b":[1]}'
    json_text("plan", {"a": "x" * (CARGO_BYTES - 8)})
    for text in ("x" * (CARGO_BYTES - 7), "漢" * (CARGO_BYTES // 3)):
        with pytest.raises(InvalidInput, match=f"plan is .* bytes of JSON, and {CARGO_BYTES} are allowed"):
            json_text("plan", {"a": text})


@given(cargo)
def test_what_is_stored_comes_back_as_it_was(thing: dict[str, Any]) -> None:
    assert cut({"c": json_text("c", thing)}, (), ("c",), each=10**9) == {"c": thing, "left_out": None}


@settings(deadline=None)
@given(st.text(max_size=400), st.integers(20, 300))
def test_a_text_cut_in_the_middle_keeps_both_ends(text: str, most: int) -> None:
    shown = cut_middle(text, most)
    if len(text) <= most:
        assert shown == text
    else:
        begin, end = shown.split(" […] ", 1)
        assert len(shown) == most and text.startswith(begin) and text.endswith(end) and len(end) > len(begin)
