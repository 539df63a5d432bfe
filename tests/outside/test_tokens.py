"""The count of tokens against a real tokenizer: the same number for any text, in time that grows with its length."""

import json
import subprocess
import sys
import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crewhall.outside import tokens
from crewhall.outside.tokens import count
from tests.outside.samples import SAMPLES, prose, real_count
from tests.sizes import size

RUNS = [
    "a",
    "ab",
    "aab",
    "é",
    "漢",
    "字漢",
    " ",
    "=",
    "-=",
    "\n",
    "\t ",
    "1",
    "😀",
    "e\u0301",
    "ก",
    "\x01",
    "'s",
    "/\n",
]
LETTERS = st.characters(exclude_categories=("Cs", "Cn"))  # a letter newer than this Python counts as a sign
SPOKEN = st.sampled_from(
    [*RUNS, "the ", "Don't ", "WE'LL ", "snake_case", "CamelCase", "\r\n", "</b>", "<|endoftext|>"]
)
TEXTS = st.one_of(
    st.text(LETTERS, max_size=300),
    st.lists(SPOKEN, max_size=80).map("".join),
    st.builds(lambda unit, times: unit * times, st.text(LETTERS, min_size=1, max_size=4), st.integers(1, 300)),
    st.lists(st.builds(lambda unit, times: unit * times, SPOKEN, st.integers(1, 90)), max_size=8).map("".join),
)


@settings(max_examples=size(130, 400), deadline=None)
@given(TEXTS)
@example("")
@example("<|endofprompt|>")
def test_any_text_has_as_many_tokens_as_a_real_tokenizer_gives_it(text: str) -> None:
    assert count(text) == real_count(text)


@pytest.mark.parametrize("unit", RUNS)
def test_a_long_text_without_a_break_has_them_too(unit: str) -> None:
    for times in (127, 128, 129, 1000, 4001):
        text = unit * times
        joints = len(text) // tokens.ENDLESS
        assert real_count(text) <= count(text) <= real_count(text) + 2 * joints
        assert joints or count(text) == real_count(text)


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_estimate_is_exact_on_texts_of_every_kind(sample: str) -> None:
    text = SAMPLES[sample]()
    assert len(text.encode()) > 1_400
    assert count(text) == real_count(text), "within 10 % is what was asked for"


def test_each_letter_of_a_living_script_counts_as_a_real_tokenizer_has_it() -> None:
    for start in (*range(0, 0x3000, 0x400), 0x4C00, *range(0x9C00, 0xAC00, 0x400), *range(0xF800, 0x20000, 0x400)):
        block = [chr(one) for one in range(start, start + 0x400) if not 0xD800 <= one < 0xE000]
        known = [letter for letter in block if unicodedata.category(letter) != "Cn"]
        text, newer = ("".join(f"a{one}1{one}{one} " for one in some) for some in (known, block))
        assert count(text) == real_count(text), f"U+{start:04X} to U+{start + 0x3FF:04X}"
        assert count(newer) >= real_count(newer), "of letters that this Python does not know, no less than there are"


def test_the_time_grows_with_the_length_of_a_text_not_with_its_square() -> None:
    short, long = (least_seconds(length) for length in (4_000, 64_000))
    assert long < 16 * 4 * short, (short, long)


def least_seconds(letters: int) -> float:
    """Seconds for a text of one piece, the least of some; each of another letter, so that none is remembered."""
    count("warm")
    found = []
    for letter in "bcdfg":
        began = time.thread_time()
        count(f"{letter}a" * (letters // 2))
        found.append(time.thread_time() - began)
    return min(found)


def test_what_is_remembered_is_bounded_and_gives_the_same_number_again() -> None:
    whole = prose("english")
    texts = [whole[start:] for start in range(tokens.FEW + 10)]
    first = [count(text) for text in texts]
    assert [count(text) for text in texts] == first == [real_count(text) for text in texts]
    for number in range(3):
        assert count(f"{number}" * 5_000) == real_count(f"{number}" * 5_000)
    assert tokens._long.cache_info().currsize <= tokens.FEW
    assert tokens._short.cache_info().currsize <= tokens.REMEMBERED


@settings(max_examples=size(30, 100), deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_a_long_text_in_json_has_as_many_although_its_lines_are_counted_one_by_one(lines: list[str]) -> None:
    text = json.dumps(
        "\n".join(["a word", *lines] * (1 + tokens.LONG // (8 + sum(map(len, lines))))), ensure_ascii=False
    )
    assert tokens.count(text) == real_count(text)


LOAD = """
import threading
from crewhall.outside import tokens
for _ in range(3):
    tokens.load()
for thread in threading.enumerate():
    if thread.name == "vocabulary":
        thread.join()
assert tokens._ranks.cache_info().currsize == tokens._load_vocabulary.cache_info().misses == 1
"""


def test_the_vocabulary_can_be_had_beforehand_and_is_loaded_once() -> None:
    subprocess.run([sys.executable, "-c", LOAD], check=True)
