"""Ids and statuses of instances: pure rules."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.errors import InvalidState
from crewhall.families.crew.rules import (
    ID_PATTERN,
    NEXT,
    PREFIXES,
    SLUG,
    numbered_id,
    refuse_busy,
    refuse_status,
    slug,
    stem_for,
)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Fix the login", "fix-the-login"),
        ("  Fix -- the   LOGIN!!  ", "fix-the-login"),
        ("Größe ändern", "groe-andern"),
        ("Café au lait", "cafe-au-lait"),
        ("漢字", "task"),
        ("", "task"),
        ("---", "task"),
        ("x" * 300, "x" * SLUG),
        ("word " * 60, "word-word-word-word-word-word-word-word"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\nb\x00c", "a-b-c"),
    ],
)
def test_a_title_becomes_a_slug(title: str, expected: str) -> None:
    assert slug(title) == expected


@pytest.mark.parametrize(
    ("kind", "issue", "expected"),
    [("coding", 123, "work-123"), ("review", None, "review-fix-it"), ("planning", None, "plan-fix-it")],
)
def test_a_stem_is_the_type_and_the_issue_or_the_title(kind: str, issue: int | None, expected: str) -> None:
    assert stem_for(kind, issue, "Fix it") == expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], "work-1-a1"),
        (["work-1-a1"], "work-1-a2"),
        (["work-1-a9", "work-1-a10"], "work-1-a11"),
        (["work-1-a3"], "work-1-a4"),
        (["work-1-abc", "work-1-a", "work-12-a7", "work-1-a2-a9"], "work-1-a1"),
    ],
)
def test_a_number_is_never_given_twice(taken: list[str], expected: str) -> None:
    assert numbered_id("work-1", taken) == expected


@given(st.sampled_from(sorted(PREFIXES)), st.none() | st.integers(1, 10**9), st.text(), st.integers(0, 99_999))
def test_an_id_always_fits_the_pattern(kind: str, issue: int | None, title: str, count: int) -> None:
    stem = stem_for(kind, issue, title)
    made = numbered_id(stem, [f"{stem}-a{count}"])
    assert ID_PATTERN.fullmatch(made) and len(made) <= 100


@given(st.sampled_from(sorted(PREFIXES)), st.text())
def test_a_branch_of_any_number_leaves_an_id_that_fits(kind: str, title: str) -> None:
    stem = stem_for(kind, None, title)
    assert ID_PATTERN.fullmatch(numbered_id(stem, [f"{stem}-a999999", f"{stem}-a{10**30}", f"{stem}-a\u0663"]))


ALLOWED = {(before, after) for before, following in NEXT.items() for after in following}


@pytest.mark.parametrize(("before", "after"), [*itertools.product(NEXT, NEXT)])
def test_every_change_of_status_is_allowed_or_not(before: str, after: str) -> None:
    expected = {
        *itertools.product(("started", "waiting_review", "pr_created"), ("abandoned", "terminated")),
        *(("started", "waiting_review"), ("started", "pr_created"), ("waiting_review", "started")),
        *(("waiting_review", "pr_created"), ("pr_created", "waiting_review"), ("pr_created", "pr_merged")),
        *(("pr_created", "pr_closed"), ("pr_closed", "started"), ("pr_closed", "abandoned")),
        *(("terminated", "started"), ("terminated", "abandoned")),
    }
    assert ((before, after) in ALLOWED) == ((before, after) in expected)


def test_a_refusal_names_instance_and_status() -> None:
    refuse_status("work-1-a1", "started", ("started",), "stopped")
    with pytest.raises(InvalidState, match="work-1-a1 is abandoned") as caught:
        refuse_status("work-1-a1", "abandoned", ("started",), "stopped")
    assert caught.value.hint and caught.value.fields["instance_id"] == "work-1-a1"
    refuse_busy("work-1-a1", [])
    with pytest.raises(InvalidState, match="in the middle of instance stop") as busy:
        refuse_busy("work-1-a1", ["instance_stop"])
    assert busy.value.hint and busy.value.fields["instance_id"] == "work-1-a1"
