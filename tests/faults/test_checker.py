"""The checker of the lab finds what it is there for: each of these histories has one thing wrong."""

from dataclasses import replace

import pytest

from tests.faults.caller import outcome_of
from tests.faults.checker import Event, disorder, missed, repeated, strange
from tests.faults.kinds import gap
from tests.faults.record import Record

CLAIMED = Event(1, 0, "ag_1", "task.claimed", "tk_1", None, None, '{"agent_id": "ag_1", "epoch": 1}')
BEGUN = Event(2, 0, "ag_1", "task.updated", "tk_1", "pending", "in_progress", None)
DONE = Event(3, 0, "ag_1", "task.updated", "tk_1", "in_progress", "completed", None)
OTHERS = replace(CLAIMED, seq=4, actor="ag_2", data='{"agent_id": "ag_2", "epoch": 2}')
EXPIRED = Event(3, 0, "hall", "task.expired", "tk_1", "in_progress", "pending", None)
REFUSED = Record("ag_1", 0, 0, "task_claim", 1.0, 2.0, "refused", "STALE_CLAIM")


@pytest.mark.parametrize("events", [[CLAIMED, BEGUN, DONE], [CLAIMED, BEGUN, EXPIRED, OTHERS], []])
def test_a_task_may_be_done_or_pass_to_another(events: list[Event]) -> None:
    assert list(disorder(events)) == []


@pytest.mark.parametrize(
    "events",
    [
        [CLAIMED, OTHERS],
        [CLAIMED, BEGUN, replace(DONE, actor="ag_2")],
        [CLAIMED, DONE],
        [CLAIMED, BEGUN, EXPIRED, DONE],
        [CLAIMED, BEGUN, DONE, replace(DONE, seq=4)],
    ],
    ids=["held by two", "another's", "not begun", "late", "twice"],
)
def test_steps_that_do_not_follow_are_found(events: list[Event]) -> None:
    assert list(disorder(events))


def test_what_a_follower_missed_or_saw_twice_is_found() -> None:
    wanted = [(1, "a", "x"), (2, "b", "x"), (4, "c", "y")]
    assert list(missed(wanted, wanted)) == list(repeated(wanted)) == []
    assert len(list(missed(wanted, wanted[:2]))) == 1
    assert len(list(missed(wanted, [*wanted[:2], (3, "d", "y"), wanted[2]]))) == 1, "it was taken back"
    assert len(list(repeated([wanted[0], wanted[2], wanted[1]]))) == 1
    assert len(list(repeated([*wanted, wanted[2]]))) == 1


def test_answers_that_no_client_should_get_are_found() -> None:
    assert list(strange([REFUSED, replace(REFUSED, outcome="ok", code="")])) == []
    assert len(list(strange([replace(REFUSED, code="FORBIDDEN"), replace(REFUSED, code="INTERNAL")]))) == 2


def test_a_gap_reaches_to_the_ends_of_the_fault() -> None:
    assert gap([], 10.0, 18.0) == 8.0
    assert gap([9.0, 11.0, 17.5, 20.0], 10.0, 18.0) == 6.5


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"id": "ms_1"}, "ok"),
        ({"success": False, "already_claimed_by": "ag_2"}, "refused"),
        ({"code": "STALE_CLAIM"}, "refused"),
        ({"code": "UNAVAILABLE", "hint": "Nothing of this call was kept. See that …"}, "not kept"),
        ({"code": "UNAVAILABLE", "hint": "It may have happened: look before you repeat it."}, "unknown"),
        ({"code": "", "message": "TimeoutError: timed out"}, "unknown"),
    ],
)
def test_an_answer_says_whether_it_was_done(body: dict[str, object], outcome: str) -> None:
    assert outcome_of(body) == outcome
