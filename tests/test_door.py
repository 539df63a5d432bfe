"""The door: what it lets through, what it refuses, and what it writes down."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crewhall.app import Hub, refuse_unstorable
from crewhall.errors import Cancelled, Forbidden, InvalidInput, NotFound, TimedOut, Unavailable
from crewhall.identity import OPERATOR
from crewhall.stop import Stop
from crewhall.store import calls
from crewhall.tool import Family, Registry
from tests.conftest import Agent, Clock, eventually
from tests.edges.sample_family import SampleFamily
from tests.sizes import size

sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(categories=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(categories=None)), inner),
)


def rows(hub: Hub) -> list[dict[str, Any]]:
    with hub.store.read() as tx:
        return tx.all("calls", tool=None, actor=None, success=None, at=2**53, id="", limit=100)


def test_every_call_is_in_the_log_reads_and_refusals_too(hub: Hub, clock: Clock) -> None:
    ada = Agent(hub)
    clock.advance(1)
    ada.call("agent_get", id=ada.id)
    clock.advance(1)
    with pytest.raises(NotFound):
        ada.call("agent_get", id="ag_nobody")
    clock.advance(1)
    with pytest.raises(Forbidden):
        ada.call("agent_token_create", name="eve")
    clock.advance(1)
    ada.call("agent_heartbeat")
    hub.calls.close()  # it writes now what it would write in half a second
    logged = rows(hub)
    assert len(logged) == 5
    told = [(row["tool"], row["actor"], row["success"], row["error"]) for row in reversed(logged)]
    assert told == [
        ("agent_token_create", "operator", 1, None),
        ("agent_get", ada.id, 1, None),
        ("agent_get", ada.id, 0, "NOT_FOUND"),
        ("agent_token_create", ada.id, 0, "FORBIDDEN"),
        ("agent_heartbeat", ada.id, 1, None),
    ]
    assert [row["at"] for row in reversed(logged)][-1] == clock.now


def test_a_changes_row_is_in_its_own_transaction(hub: Hub) -> None:
    hub.calls.close()  # nothing is written behind the calls any more
    hub.call("agent_register", {"name": "a", "runtime": "codex"}, OPERATOR)
    assert [(row["tool"], row["success"]) for row in rows(hub)] == [("agent_register", 1)]


def test_a_call_that_fails_after_its_commit_is_logged_as_failed_once(make_hub: Callable[..., Hub]) -> None:
    family = Family("late", "", "crewhall.families.work")

    @family.tool("late_fail", changes=True)
    def late_fail(call: Any) -> None:
        """Commit, then fail."""
        with call.begin() as tx:
            tx.event("late.written", "x")
        raise Unavailable("the host is gone", hint="Look.")

    hub = make_hub(Registry([family]))
    with pytest.raises(Unavailable):
        hub.call("late_fail", {}, OPERATOR)
    hub.calls.close()
    assert [(row["success"], row["error"]) for row in rows(hub)] == [(0, "UNAVAILABLE")]


def test_a_bug_is_logged_as_internal_and_raised_as_itself(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(SampleFamily().registry)
    with pytest.raises(ZeroDivisionError):
        hub.call("lab_break", {}, OPERATOR)
    hub.calls.close()
    assert rows(hub)[0]["error"] == "INTERNAL"


@sqlite
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"naem": "a", "runtime": "codex"}, "missing argument 'name'; unknown argument 'naem', did you mean 'name'?"),
        ({"name": "a", "runtime": "codex", "zzzzz": 1}, "unknown argument 'zzzzz'"),
        ({"name": "", "runtime": "codex"}, "argument 'name': string should have at least 1 character"),
        ({"name": "a", "runtime": "vi"}, "argument 'runtime': input should be 'claude_code', 'codex'"),
        ({"name": True, "runtime": "codex"}, "argument 'name': input should be a valid string"),
        (
            {"name": "a", "runtime": "codex", "capabilities": "x"},
            "argument 'capabilities': input should be a valid list",
        ),
        (
            {"name": "a", "runtime": "codex", "capabilities": [1]},
            "argument 'capabilities.0': input should be a valid st",
        ),
        ({"name": "a", "runtime": "codex", "role": None}, "argument 'role'"),
    ],
)
def test_wrong_arguments_are_named(hub: Hub, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        hub.call("agent_register", arguments, OPERATOR)
    assert message in refused.value.message
    assert refused.value.hint.startswith("agent_register needs name, runtime and takes role, capabilities")


@sqlite
def test_an_unknown_tool_names_the_nearest(hub: Hub) -> None:
    with pytest.raises(NotFound) as refused:
        hub.call("agent_lst", {}, OPERATOR)
    assert refused.value.hint == "Did you mean 'agent_list'?"


@sqlite
def test_the_operator_must_say_for_whom_it_acts(hub: Hub) -> None:
    with pytest.raises(InvalidInput, match="missing argument 'agent_id'"):
        hub.call("agent_heartbeat", {}, OPERATOR)


@sqlite
def test_a_reading_client_changes_nothing(hub: Hub) -> None:
    reader = OPERATOR.reading_only()
    assert hub.call("agent_list", {}, reader)["total"] == 0
    with pytest.raises(Forbidden, match="read-only profile"):
        hub.call("agent_register", {"name": "a", "runtime": "codex"}, reader)


@given(JSON)
def test_whatever_passes_the_door_can_be_stored_and_sent(value: Any) -> None:
    import json

    try:
        refuse_unstorable({"argument": value})
    except InvalidInput:
        return
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    assert "\\u0000" not in text and json.loads(text.encode("utf-8").decode("utf-8")) == value


@pytest.mark.parametrize("bad", ["\0", "a\0b", "\ud800", float("nan"), float("inf")])
def test_unfit_values_are_refused_wherever_they_hide(bad: Any) -> None:
    for hidden in (bad, [bad], {"k": bad}, {"a": [{"b": [bad]}]}):
        with pytest.raises(InvalidInput):
            refuse_unstorable({"x": hidden})
    if isinstance(bad, str):
        with pytest.raises(InvalidInput):
            refuse_unstorable({bad: 1})


def test_nesting_has_an_end() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="deeper than 64"):
        refuse_unstorable({"x": deep})


def test_a_stop_wakes_who_waits() -> None:
    stop, woken = Stop(), threading.Event()

    def wait() -> None:
        with pytest.raises(Cancelled):
            stop.wait(60)
        woken.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    stop.cancel()
    assert woken.wait(5)
    waiter.join()
    with pytest.raises(Cancelled):
        stop.wait(60)


def test_a_stop_ends_at_its_time() -> None:
    stop = Stop(0.02)
    stop.check()
    with pytest.raises(TimedOut):
        stop.wait(60)


def test_a_cancel_before_the_commit_undoes_and_after_it_is_ignored(hub: Hub) -> None:
    arguments = {"name": "a", "runtime": "codex"}
    stop = Stop()
    hub.before_commit = stop.cancel
    with pytest.raises(Cancelled):
        hub.call("agent_register", arguments, OPERATOR, stop=stop)
    hub.before_commit = lambda: None
    assert hub.call("agent_list", {}, OPERATOR)["total"] == 0
    assert hub.call("event_list", {}, OPERATOR)["newest"] == 0


def test_old_events_and_calls_are_pruned_and_numbers_go_on(make_hub: Callable[..., Hub], clock: Clock) -> None:
    hub = make_hub(clock=clock, events__keep_days=1, calls__keep_days=1)
    agent = hub.call("agent_register", {"name": "a", "runtime": "codex"}, OPERATOR)["id"]
    clock.advance(86_400 * 2)
    hub.chores.run_due()
    assert hub.call("event_list", {}, OPERATOR)["events"] == [] and rows(hub) == []
    hub.call("agent_update", {"id": agent, "status": "busy"}, OPERATOR)
    assert [event["seq"] for event in hub.call("event_list", {}, OPERATOR)["events"]] == [2]


def test_one_hub_at_a_time_does_the_chores(make_hub: Callable[..., Hub], clock: Clock) -> None:
    first, second = (make_hub(clock=clock, events__keep_days=1) for _ in range(2))
    first.call("agent_register", {"name": "a", "runtime": "codex"}, OPERATOR)
    clock.advance(86_400 - 5)
    first.chores.run_due()
    clock.advance(10)
    second.chores.run_due()
    assert len(second.call("event_list", {}, OPERATOR)["events"]) == 1, "the first hub has the chore"
    clock.advance(1_200)
    second.chores.run_due()
    assert second.call("event_list", {}, OPERATOR)["events"] == [], "its lease is over"


@settings(max_examples=size(10, 25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.text(min_size=1, max_size=60), metadata=st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_what_an_agent_tells_comes_back_as_it_was(hub: Hub, name: str, metadata: dict[str, Any]) -> None:
    arguments = {"name": name, "runtime": "custom", "metadata": metadata}
    try:
        made = hub.call("agent_register", arguments, OPERATOR)
    except InvalidInput:
        return
    kept = hub.call("agent_get", {"id": made["id"]}, OPERATOR)
    assert (kept["name"], kept["metadata"]) == (name, metadata)


def test_the_call_log_survives_what_it_cannot_write(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BATCH_SECONDS", 0.05)
    hub.calls.put({"id": "x"})
    eventually(lambda: hub.calls.dropped == 1)
    hub.call("agent_list", {}, OPERATOR)
    assert eventually(lambda: rows(hub))[0]["tool"] == "agent_list"


def test_a_follower_of_a_rare_topic_keeps_up(make_hub: Callable[..., Hub], clock: Clock) -> None:
    hub = make_hub(clock=clock, events__keep_days=1)
    hub.call("agent_register", {"name": "a", "runtime": "codex"}, OPERATOR)
    for number in range(3):
        hub.call("repository_register", {"path": f"/{number}"}, OPERATOR)
    first = hub.call("event_list", {"topic": "agent"}, OPERATOR)
    assert (len(first["events"]), first["cursor"]) == (1, 4)
    assert hub.call("event_list", {"topic": "repository", "limit": 2}, OPERATOR)["cursor"] == 3
    clock.advance(86_400 * 2)
    hub.call("agent_register", {"name": "b", "runtime": "codex"}, OPERATOR)
    hub.chores.run_due()
    later = hub.call("event_list", {"topic": "agent", "after": first["cursor"]}, OPERATOR)
    assert [event["seq"] for event in later["events"]] == [5]
