"""The context engine: sources asked at once, none of which keeps another back; and what a hub keeps of answers."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count as count_up
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.app import Call, Hub
from crewhall.cache import AnswerCache, mark
from crewhall.errors import Cancelled, InvalidInput, Unavailable
from crewhall.families.all import registry
from crewhall.families.project.context import SECONDS, SLOTS
from crewhall.families.project.tools_context import get_project_context
from crewhall.outside.files import Top
from crewhall.outside.tokens import count
from crewhall.stop import Stop
from crewhall.tool import Family, Registry, SourceLines
from tests.conftest import eventually, settings_for
from tests.families.project.contexts import context_caller, lines, reason

pytestmark = pytest.mark.slow


class SourceHub:
    """A hub whose sources a test makes up."""

    def __init__(self, home: Path) -> None:
        self.family = Family("lab", "For tests.", "crewhall.families.project")
        self.family.tool("get_project_context", pace="long")(get_project_context)
        self.home = home
        self.hubs: list[Hub] = []

    def source(self, name: str, handler: Callable[..., SourceLines]) -> None:
        self.family.source(name, priority=len(self.family.sources), weight=10)(handler)

    def hub(self) -> Hub:
        self.hubs.append(Hub(settings_for(str(self.home / "hall.db"), self.home), Registry([self.family])))
        return self.hubs[-1]


@pytest.fixture
def source_hub(tmp_path: Path) -> Iterator[SourceHub]:
    source_hub = SourceHub(tmp_path)
    yield source_hub
    for hub in source_hub.hubs:
        hub.close()


def test_a_source_that_is_stuck_refuses_or_has_a_bug_keeps_no_other_back(
    source_hub: SourceHub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    let_go = threading.Event()

    def stuck(call: Call, top: Top) -> SourceLines:
        let_go.wait(30)
        return SourceLines(["too late"])

    def refusing(call: Call, top: Top) -> SourceLines:
        raise Unavailable("the moon is not up", hint="Wait.")

    source_hub.source("first", lambda call, top: SourceLines(["one", "two"], more=3))
    source_hub.source("stuck", stuck)
    source_hub.source("refusing", refusing)
    source_hub.source("broken", lambda call, top: SourceLines([str(1 // 0)]))
    source_hub.source("last", lambda call, top: SourceLines([top.root]))
    try:
        body = context_caller(source_hub.hub())(tmp_path, stop=Stop(1.0))
    finally:
        let_go.set()
    assert lines(body, "first") == ["one", "two"] and body["sections"][0]["left_out"] == "3 of 5 lines"
    assert lines(body, "last") == [str(tmp_path)] and body["path"] == str(tmp_path)
    assert reason(body, "stuck") == "it took too long"
    assert reason(body, "refusing") == "the moon is not up"
    assert reason(body, "broken") == "it failed; the hub's log says why" and "ZeroDivisionError" in caplog.text


def test_sources_that_stay_stuck_do_not_pile_up_and_their_places_come_back(
    source_hub: SourceHub, tmp_path: Path
) -> None:
    let_go, begun = threading.Event(), []

    def stuck(call: Call, top: Top) -> SourceLines:
        begun.append(1)
        let_go.wait(30)
        return SourceLines([])

    source_hub.source("stuck", stuck)
    hub = source_hub.hub()
    hub._states[SLOTS] = threading.BoundedSemaphore(2)
    with ThreadPoolExecutor(5) as pool:
        bodies = list(pool.map(lambda _: context_caller(hub)(tmp_path, stop=Stop(0.5)), range(5)))
    assert {reason(body, "stuck") for body in bodies} == {"it took too long"} and len(begun) == 2
    let_go.set()
    assert eventually(lambda: context_caller(hub)(tmp_path)["sections"])


def test_a_call_that_is_cancelled_ends_at_once_and_so_do_its_sources(source_hub: SourceHub, tmp_path: Path) -> None:
    stop, ended, let_go = Stop(), threading.Event(), threading.Event()

    def patient(call: Call, top: Top) -> SourceLines:
        stop.cancel()
        try:
            call.stop.wait(30)
        finally:
            ended.set()
        return SourceLines([])

    source_hub.source("patient", patient)
    source_hub.source("deaf", lambda call, top: SourceLines([str(let_go.wait(30))]))
    began = time.monotonic()
    with pytest.raises(Cancelled):
        context_caller(source_hub.hub())(tmp_path, stop=stop)
    assert time.monotonic() - began < SECONDS - 1  # nobody waited for the one that does not listen
    let_go.set()
    assert ended.wait(10)


def test_sources_are_asked_side_by_side(source_hub: SourceHub, tmp_path: Path) -> None:
    meeting = threading.Barrier(4, timeout=10)
    for number in range(4):
        source_hub.source(f"s{number}", lambda call, top: SourceLines([str(meeting.wait())]))
    assert len(context_caller(source_hub.hub())(tmp_path)["sections"]) == 4


def test_some_sources_by_name_in_their_own_order_and_unknown_ones_refused(
    source_hub: SourceHub, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        source_hub.source(name, lambda call, top: SourceLines(["x"]))
    ask = context_caller(source_hub.hub())
    body = ask(tmp_path, sources=["c", "a", "c"])
    assert [one["name"] for one in body["sections"]] == ["a", "c"] and body["missing"] == []
    with pytest.raises(InvalidInput, match="there is no source 'd'") as refused:
        ask(tmp_path, sources=["a", "d"])
    assert refused.value.hint == "There are a, b, c."
    with pytest.raises(InvalidInput):
        ask(tmp_path, max_tokens=499)


def test_the_argument_names_every_source_that_there_is() -> None:
    tool = next(tool for tool in registry().tools if tool.name == "get_project_context")
    described = tool.arguments.model_json_schema()["properties"]["sources"]
    names = [source.name for source in registry().sources]
    assert f"Only these: {', '.join(names)}." in json.dumps(described)


@pytest.fixture(scope="module")
def text_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hub, list[list[str]]]]:
    """A hub with eight sources that tell what the list has for them."""
    source_hub = SourceHub(tmp_path_factory.mktemp("told"))
    told: list[list[str]] = []
    for number in range(8):
        source_hub.source(f"s{number}", lambda call, top, number=number: SourceLines(told[number], more=number))
    yield source_hub.hub(), told
    source_hub.hubs[0].close()


TEXT = st.text(max_size=60)  # half letters, which no source should give, among them


@settings(max_examples=40, deadline=None)
@given(contents=st.lists(st.lists(TEXT, max_size=30), min_size=8, max_size=8), most=st.integers(500, 3000))
def test_any_contents_in_any_budget_by_the_door(
    text_hub: tuple[Hub, list[list[str]]], contents: list[list[str]], most: int
) -> None:
    hub, told = text_hub
    told[:] = contents
    body, again = (context_caller(hub)(Path("/tmp"), max_tokens=most) for _ in range(2))
    assert body == again and body["max_tokens"] == most
    assert body["tokens"] == count(json.dumps(body, ensure_ascii=False)) <= most
    assert [one["name"] for one in body["sections"]] == sorted(one["name"] for one in body["sections"])


def test_an_answer_is_kept_while_what_it_depends_on_is_the_same() -> None:
    kept, made = AnswerCache(most=2), []

    def ask(name: str, depends: Any) -> int:
        return kept.get_or_make((name, "x"), depends, lambda: made.append(name) or len(made))  # type: ignore[func-returns-value]

    assert [ask("a", 1), ask("a", 1), ask("a", 2), ask("a", 2), ask("a", 1)] == [1, 1, 2, 2, 3]
    assert [ask("a", None), ask("a", None), ask("a", 1)] == [4, 5, 6]  # what can't be told is made each time
    assert [ask("b", 1), ask("a", 1), ask("c", 1), ask("a", 1), ask("b", 1)] == [7, 6, 8, 6, 9]  # the unused goes


def test_many_threads_of_a_call_get_one_answer_or_one_failure() -> None:
    kept, made, go = AnswerCache(), [], threading.Event()

    def make() -> int:
        made.append(1)
        assert go.wait(10)
        return 7

    with kept.call_scope("call"), ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(kept.make_once, ("call", "status"), make, Stop(10)) for _ in range(4)]
        eventually(lambda: made)
        go.set()
        assert [one.result() for one in asked] == [7] * 4 and made == [1]
        for make_it in (lambda: 1 // 0, lambda: 1):  # the second one gets the failure of the first
            with pytest.raises(ZeroDivisionError):
                kept.make_once(("call", "bug"), make_it, Stop(10))


def test_one_who_comes_when_the_call_is_over_leaves_nothing_behind() -> None:
    kept, numbers = AnswerCache(), count_up()

    def ask() -> int:
        return kept.make_once(("call", "x"), lambda: next(numbers), Stop(10))

    with kept.call_scope("call"):
        assert [ask(), ask()] == [0, 0]
    assert [ask(), ask()] == [1, 2]
    with kept.call_scope("call"):
        assert ask() == 3


def test_a_mark_tells_files_apart_and_none_is_given_for_what_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    missing = mark([str(file)])
    assert missing is not None
    file.write_text("new")
    os.utime(file, ns=(0, 0))
    assert mark([str(file)]) is None  # whatever it says of itself
    monkeypatch.setattr("crewhall.cache.SETTLED_NS", 0)
    seen = {missing}
    for number, text in enumerate(("one", "two", "three")):
        file.write_text(text)
        os.utime(file, ns=(0, number))
        seen.add(mark([str(file)]))
    os.utime(file, ns=(0, 0))
    file.rename(tmp_path / "old")
    (tmp_path / "other").write_text("three")
    os.utime(tmp_path / "other", ns=(0, 0))
    seen |= {mark([str(tmp_path / "old")]), mark([str(tmp_path / "other")])}
    assert len(seen) == 6 and None not in seen
    (tmp_path / "link").symlink_to("other")
    before = mark([str(tmp_path / "link")])
    (tmp_path / "other").write_text("four")
    assert None not in (before, mark([str(tmp_path / "link")])) and before != mark([str(tmp_path / "link")])
