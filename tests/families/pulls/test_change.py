"""Names of branches, tiers, dry runs, and when two changes are the same."""

import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crewhall.config import careful
from crewhall.errors import Forbidden, InvalidInput
from crewhall.families.pulls.model import ChangeType
from crewhall.families.pulls.rules_change import (
    branch_name,
    branches_by_number,
    digest,
    refuse_base,
    refuse_prefix,
    refuse_tier,
    slug,
    stem,
    tier_from,
)
from tests.outside.repos import git
from tests.sizes import size

# Names of branches


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Add jellyfin health", "add-jellyfin-health"),
        ("  --Fix:  the `café`'s __ naïve\tcheck!! ", "fix-the-cafe-s-naive-check"),
        ("Straße \uff26\uff35\uff2c\uff2c \u2163 🄰 İ", "strasse-full-iv-a-i"),
        ("../../etc/passwd.lock", "etc-passwd-lock"),
        ("", "change-e3b0c442"),
        ("a" * 60, "a" * 50),
        ("a" * 24 + " " + "b" * 60, "a" * 24 + "-" + "b" * 25),
        ("a" * 25 + " " + "b" * 60, "a" * 25),
        ("a" * 50 + " b", "a" * 50),
        ("a" * 40 + " " + "b" * 9 + " c", "a" * 40 + "-" + "b" * 9),
    ],
)
def test_a_title_becomes_a_slug(title: str, expected: str) -> None:
    assert slug(title) == expected


def test_titles_without_plain_letters_are_told_apart() -> None:
    names = {slug("字"), slug("語"), slug("…"), slug("\ud800")}
    assert len(names) == 4 and all(re.fullmatch(r"change-[0-9a-f]{8}", name) for name in names)


@settings(max_examples=size(70, 200), deadline=None)
@given(st.text(max_size=80) | st.text(alphabet="ab -2", min_size=45, max_size=60))
def test_a_slug_is_short_plain_and_its_own_slug(title: str) -> None:
    found = slug(title)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found) and len(found) <= 50
    assert slug(found) == found


def test_a_change_has_the_seeds_branch_and_further_ones_a_number() -> None:
    assert branch_name("claude-ops", "check", "Add jellyfin health") == "claude-ops/check/add-jellyfin-health"
    assert branch_name("p", "fix", "Disk", 2) == "p/fix/disk-2"
    assert branch_name("p", "fix", "a" * 50, 12) == f"p/fix/{'a' * 47}-12"


titles = st.text(alphabet="ab -21", max_size=54) | st.text(max_size=10)


@settings(max_examples=size(70, 200), deadline=None)
@given(titles, st.lists(st.integers(1, 120), unique=True, max_size=8))
@example("a" * 48 + "-2", [1, 2])
def test_every_number_has_a_name_of_its_own_that_is_known_again(title: str, numbers: list[int]) -> None:
    names = {n: branch_name("p", "skill", title, n) for n in numbers}
    assert all(len(name.removeprefix("p/skill/")) <= 50 for name in names.values())
    assert len(set(names.values())) == len(names)
    assert branches_by_number("p", "skill", title, names.values()) == names


def test_branches_of_other_changes_are_not_this_ones() -> None:
    others = ["p/fix/disk", "q/check/disk", "p/check/disks", "p/check/disk-", "p/check/disk-02", "p/check/disk-1"]
    others += ["p/check/disk-2x", "p/check/disk-٣", "p/check/disk-2-2", "check/disk", "p/check/disk-2\n", "", "-2"]
    mine = {1: "p/check/disk", 7: "p/check/disk-7"}
    assert branches_by_number("p", "check", "Disk", [*others, *mine.values()]) == mine


def is_branch(where: Path, name: str) -> bool:
    return git(where, "check-ref-format", "--branch", name, check=False) == name


ODD = ["a", "Z9", "é", "-", ".", "/", "@", "{", "..", ".lock", "~", "^", ":", "?", "*", "[", "\\", " ", "\x7f", "HEAD"]


@settings(max_examples=size(40, 120), deadline=None)
@given(
    prefix=st.lists(st.sampled_from(ODD), max_size=4).map("".join), change_type=st.sampled_from(get_args(ChangeType))
)
@example(prefix="@", change_type="fix")
@example(prefix="a.lock/b", change_type="fix")
@example(prefix="a./b.", change_type="fix")
@example(prefix="a/.b", change_type="fix")
@example(prefix="a//b", change_type="fix")
@example(prefix="/a", change_type="fix")
@example(prefix="a/", change_type="fix")
@example(prefix="-a", change_type="fix")
@example(prefix="@{-1}", change_type="fix")
def test_a_prefix_is_refused_exactly_when_git_refuses_its_branches(
    tmp_path_factory: pytest.TempPathFactory, prefix: str, change_type: str
) -> None:
    try:
        refuse_prefix(prefix)
        is_refused = False
    except InvalidInput:
        is_refused = True
    where = tmp_path_factory.getbasetemp()
    assert is_branch(where, branch_name(prefix, change_type, "Some title.lock", 2)) is not is_refused


@pytest.mark.parametrize("prefix", ["", "a\0b", "a\nb", "\ud800", "a" * 151, "é" * 76])
def test_a_prefix_that_cannot_even_be_asked_about_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidInput, match="branches cannot begin with"):
        refuse_prefix(prefix)


# Tiers


@pytest.mark.parametrize(
    ("tier", "files", "message"),
    [
        (1, 1, "tier 1 agents cannot create PRs; minimum tier is 2"),
        (1, 9, "tier 1 agents cannot create PRs; minimum tier is 2"),
        (2, 3, None),
        (2, 4, "tier 2 agents may modify at most 3 files per PR (got 4); consider escalating to tier 3"),
        (3, 300, None),
    ],
)
def test_a_tier_limits_what_a_pull_may_hold(tier: int, files: int, message: str | None) -> None:
    if message is None:
        refuse_tier(tier, files)
        return
    with pytest.raises(Forbidden) as refused:
        refuse_tier(tier, files)
    assert refused.value.message == message
    assert "CLAUDEOPS_TIER" in refused.value.hint and "never an argument" in refused.value.hint


@pytest.mark.parametrize(("text", "tier"), [("1", 1), ("2", 2), ("3", 3), (" 3 ", 3), ("2\n", 2)])
def test_a_tier_is_read(text: str, tier: int) -> None:
    assert tier_from(text) == tier


MALFORMED = ["", " ", "0", "4", "-1", "02", "2.0", "+3", "٣", "³", "3\n3", "3 3", "3\0", "three", "${CLAUDEOPS_TIER}"]


@pytest.mark.parametrize("text", [None, *MALFORMED])
def test_a_tier_that_is_missing_or_malformed_is_the_lowest(text: str | None) -> None:
    assert tier_from(text) == 1


@pytest.mark.parametrize("text", [False, "", "  ", "false", "0", " false\n"])
def test_a_dry_run_is_off(text: str | bool) -> None:
    assert not careful(text)


@pytest.mark.parametrize("text", [True, "true", "1", "False", "no", "off", "00", "x"])
def test_a_dry_run_is_on(text: str | bool) -> None:
    assert careful(text)


@given(title=st.text(max_size=90), n=st.integers(1, 9999))
def test_every_branch_of_a_change_begins_with_its_stem(title: str, n: int) -> None:
    assert branch_name("p", "fix", title, n).startswith(stem("p", "fix", title))


@pytest.mark.parametrize("name", ["main", "release/1.2", "a.b", "ümlaut"])
def test_a_base_branch_is_a_branch(name: str) -> None:
    refuse_base(name)


@pytest.mark.parametrize(
    "name", ["", "main.", "@", "-x", "a b", "a..b", "a/", "/a", "x.lock", "a~1", "HEAD^", "a:b", "a\\b"]
)
def test_what_cannot_be_a_branch_is_no_base(name: str) -> None:
    with pytest.raises(InvalidInput):
        refuse_base(name)


# Digests

few = st.text(alphabet="a1:-", max_size=3)
lists = st.lists(st.tuples(few, few, few.map(str.encode)), max_size=3)


@settings(max_examples=size(70, 200), deadline=None)
@given(st.none() | few, lists, st.none() | few, lists)
def test_two_changes_have_one_digest_exactly_when_they_are_the_same_in_any_order(
    base: str | None, files: list[tuple[str, str, bytes]], other: str | None, others: list[tuple[str, str, bytes]]
) -> None:
    assert digest(base, files) == digest(base, files[::-1])
    assert (digest(base, files) == digest(other, others)) is (base == other and sorted(files) == sorted(others))


def test_a_digest_tells_parts_apart_that_run_together() -> None:
    every = [
        digest("a", [("b", "c", b"d")]),
        digest("ab", [("", "c", b"d")]),
        digest("a", [("bc", "", b"d")]),
        digest("a", [("b", "cd", b"")]),
        digest("a", [("b", "c", b"d1:b1:c1:d")]),
        digest("a", [("b", "c", b"d"), ("b", "c", b"d")]),
        digest("", []),
        digest(None, []),
    ]
    assert len(set(every)) == len(every) and all(re.fullmatch(r"[0-9a-f]{64}", one) for one in every)
