"""The pure rules of family work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.bounded import LIST_BYTES, json_text, page
from crewhall.errors import InvalidInput, LimitExceeded
from crewhall.families.work.agent.rules import METADATA_BYTES, refuse_more_agents, status_after_beat
from crewhall.families.work.repository.model import Repository
from crewhall.families.work.repository.rules import repository_path


@pytest.mark.parametrize(
    ("given_path", "kept"),
    [
        ("/a", "/a"),
        ("/a/", "/a"),
        ("//a//b", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/", "/"),
        ("/../..", "/"),
        ("/ü é", "/ü é"),
    ],
)
def test_a_path_has_one_spelling(given_path: str, kept: str) -> None:
    assert repository_path(given_path) == kept


@pytest.mark.parametrize("path", ["a", "./a", "~/a", "", "C:\\a", "file:///a"])
def test_a_path_that_is_not_absolute_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput):
        repository_path(path)


@given(st.text())
def test_spelling_a_path_twice_changes_nothing(text: str) -> None:
    once = repository_path("/" + text)
    assert repository_path(once) == once and once.startswith("/") and ".." not in once.split("/")


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [
        ("online", None, "online"),
        ("busy", None, "busy"),
        ("offline", None, "online"),
        ("offline", "busy", "busy"),
        ("busy", "online", "online"),
    ],
)
def test_a_beating_agent_is_never_offline(before: str, asked: str | None, after: str) -> None:
    assert status_after_beat(before, asked) == after


def test_the_hall_is_full_at_its_limit_and_not_before() -> None:
    refuse_more_agents(9, 10)
    with pytest.raises(LimitExceeded):
        refuse_more_agents(10, 10)


def test_cargo_counts_bytes_not_letters() -> None:
    json_text("metadata", {"t": "é" * 7_000}, METADATA_BYTES)
    with pytest.raises(InvalidInput, match=f"{METADATA_BYTES} are allowed"):
        json_text("metadata", {"t": "é" * 8_000}, METADATA_BYTES)


@given(st.lists(st.integers(1, 4000), max_size=40), st.integers(0, 40))
def test_pages_join_to_the_whole_list_and_each_keeps_its_bytes(sizes: list[int], step: int) -> None:
    items = [
        Repository(id=str(n), path="/" + "x" * size, name="n", created_at=0, updated_at=0)
        for n, size in enumerate(sizes)
    ]
    seen: list[Repository] = []
    offset: int | None = 0
    limit = step + 1
    while offset is not None:
        fitting, following = page(items[offset : offset + limit], len(items), offset)
        assert len(fitting) <= 1 or sum(len(item.model_dump_json()) for item in fitting) <= LIST_BYTES
        seen += fitting
        assert following is None or following > offset
        offset = following
    assert seen == items
