"""How much of an output is shown."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.families.project.rules_just import TOKENS, fit_output
from crewhall.outside.tokens import count


@settings(max_examples=50, deadline=None)
@given(out=st.binary(max_size=60) | st.text(max_size=30).map(str.encode), left_out=st.integers(0, 9))
def test_a_short_output_is_shown_whole_but_for_what_was_left_out(out: bytes, left_out: int) -> None:
    text, gone = fit_output(out, left_out)
    if not left_out:
        assert (text, gone) == (out.decode("utf-8", "replace"), 0)
        return
    assert left_out <= gone <= left_out + 6  # halves of letters at the cut
    assert f"\n[{gone} bytes are left out here]\n" in text


@pytest.mark.parametrize("letter", ["x", "ä", "字", "\0", "7 ", "😀"])
def test_no_output_is_too_long_for_an_answer(letter: str) -> None:
    out = (letter * 100_001).encode()
    text, gone = fit_output(out, 5)
    assert count(json.dumps(text, ensure_ascii=False)) <= TOKENS
    line = f"\n[{gone} bytes are left out here]\n"
    assert text.replace(line, "") == letter * (len(text.replace(line, "")) // len(letter))
    assert len(text.replace(line, "").encode()) + gone == len(out) + 5
