"""The line before the judge: so many at once, the first come first, the same question once at a time."""

import threading
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.errors import Cancelled, LimitExceeded
from crewhall.fair_queue import LONGEST, FairQueue, Party
from crewhall.stop import Stop
from tests.conftest import eventually

ADA = Party("ada")


class Guest:
    """Somebody in a thread who wants a turn, alone or of a party, and has it until they are told to leave."""

    def __init__(self, queue: FairQueue, question: str, stop: Any = None, party: str = "") -> None:
        self.question = question
        self.stop: Any = stop or Stop()
        self.told: list[str] = []
        self.has_waited: bool | None = None
        self.error: Exception | None = None
        self._leave = threading.Event()
        self._queue = queue
        self._thread = threading.Thread(target=self._come, args=(Party(party or f"p{id(self)}"),), daemon=True)
        self._thread.start()

    def _come(self, party: Party) -> None:
        try:
            with self._queue.turn(
                self.question, self.stop, lambda place, waited: self.told.append(place), party
            ) as has_waited:
                self.has_waited = has_waited
                self._leave.wait(20)
        except Exception as error:
            self.error = error

    @property
    def is_in(self) -> bool:
        return self.has_waited is not None and self._thread.is_alive()

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def guests(queue: FairQueue, *questions: str) -> list[Guest]:
    """They come one after the other."""
    found: list[Guest] = []
    for question in questions:
        found.append(Guest(queue, question))
        eventually(lambda: found[-1].is_in or found[-1].told)
    return found


def are_in(some: list[Guest]) -> bool:
    return all(guest.is_in for guest in some)


@pytest.mark.parametrize("at_once", [1, 2])
def test_so_many_at_once_and_the_first_come_first(at_once: int) -> None:
    queue = FairQueue(at_once, "review")
    all_of_them = guests(queue, *"abcde")
    for done, guest in enumerate(all_of_them):
        now = all_of_them[done : done + at_once]
        eventually(partial(are_in, now))
        assert [one.is_in for one in all_of_them[done:]] == [True] * len(now) + [False] * (5 - done - len(now))
        assert queue.counts == (len(now), 5 - done - len(now))
        guest.leave()
    assert queue.counts == (0, 0)
    assert [guest.has_waited for guest in all_of_them] == [False] * at_once + [True] * (5 - at_once)


def test_each_is_told_where_it_stands_whenever_that_changes() -> None:
    queue = FairQueue(1, "review")
    first, second, third = guests(queue, *"abc")
    assert (first.told, second.told) == ([], ["yours is next in line, 1 running"])
    assert third.told == ["1 before yours in line, 1 running"]
    first.leave()
    eventually(lambda: third.told[-1] == "yours is next in line, 1 running")
    second.leave()
    eventually(lambda: third.is_in)
    third.leave()


def test_the_same_question_waits_for_its_answer_and_holds_nobody_up() -> None:
    queue = FairQueue(3, "review")
    first, same, other = guests(queue, "a", "a", "b")
    assert first.is_in and other.is_in and not same.is_in
    assert same.told == ["the same review is running: yours gets its answer"]
    first.leave()
    eventually(lambda: same.is_in)
    assert same.has_waited
    for guest in (same, other):
        guest.leave()


def test_who_gives_up_in_line_frees_its_place() -> None:
    queue = FairQueue(1, "review")
    first, second, third = guests(queue, *"abc")
    second.stop.cancel()
    eventually(lambda: queue.counts == (1, 1))
    assert isinstance(second.error, Cancelled) and not second.is_in
    eventually(lambda: third.told[-1] == "yours is next in line, 1 running")
    first.leave()
    eventually(lambda: third.is_in)
    third.leave()


def test_a_turn_that_fails_is_over() -> None:
    queue = FairQueue(1, "review")
    with pytest.raises(ZeroDivisionError), queue.turn("a", Stop(), lambda *_: None, ADA):
        raise ZeroDivisionError
    assert queue.counts == (0, 0)


def test_a_line_has_an_end() -> None:
    queue, stop = FairQueue(1, "review"), Stop()
    first = Guest(queue, "first")
    eventually(lambda: first.is_in)
    waiting = [Guest(queue, str(number), stop) for number in range(LONGEST)]
    eventually(lambda: queue.counts == (1, LONGEST))
    with (
        pytest.raises(LimitExceeded, match=f"{LONGEST} reviews wait"),
        queue.turn("more", Stop(5), lambda *_: None, ADA),
    ):
        pass
    stop.cancel()
    for guest in (*waiting, first):
        guest.leave()
    assert queue.counts == (0, 0)


def test_nobody_takes_all_places_but_the_owner() -> None:
    queue = FairQueue(2, "review")
    first, second = Guest(queue, "a", party="ada"), Guest(queue, "b", party="ada")
    eventually(lambda: queue.counts == (1, 1))
    other = Guest(queue, "c", party="bob")
    eventually(lambda: other.is_in)
    assert queue.counts == (2, 1), "one of ada's waits though bob's came later"
    for guest in (other, first, second):
        eventually(lambda guest=guest: guest.is_in)  # type: ignore[misc]
        guest.leave()
    owner = Party("operator", is_owner=True)
    with queue.turn("a", Stop(5), lambda *_: None, owner), queue.turn("b", Stop(5), lambda *_: None, owner):
        assert queue.counts == (2, 0)


def test_the_first_of_each_party_comes_before_the_second_of_any() -> None:
    queue = FairQueue(1, "review")
    first = Guest(queue, "first", party="ada")
    eventually(lambda: first.is_in)
    waiting = []
    for question, party in (("a2", "ada"), ("a3", "ada"), ("b1", "bob"), ("b2", "bob"), ("c1", "eve")):
        waiting.append(Guest(queue, question, party=party))
        eventually(lambda: waiting[-1].told)
    came = [first]
    for _ in waiting:
        came[-1].leave()
        eventually(lambda: queue.counts[0] == 1)
        came += [guest for guest in waiting if guest.is_in]
    came[-1].leave()
    assert [guest.question for guest in came] == ["first", "a2", "b1", "c1", "a3", "b2"]


def test_a_party_has_a_share_of_the_line() -> None:
    queue, stop = FairQueue(1, "review"), Stop()
    share = ADA.share(LONGEST)
    first = Guest(queue, "first")
    eventually(lambda: first.is_in)
    waiting = [Guest(queue, str(number), stop, party="ada") for number in range(share)]
    eventually(lambda: queue.counts == (1, share))
    with pytest.raises(LimitExceeded, match="25 reviews of yours wait"), queue.turn("a", Stop(5), lambda *_: None, ADA):
        pass
    other = Guest(queue, "other", party="bob")
    eventually(lambda: other.told)
    first.leave()
    stop.cancel()
    eventually(lambda: other.is_in)
    for guest in (*waiting, other):
        guest.leave()


class Paced:
    """A stop by which the test says when its guest looks again, and when it gives up."""

    def __init__(self) -> None:
        self.is_parked, self._look = threading.Event(), threading.Event()
        self._is_over = False

    def wait(self, seconds: float, /) -> None:
        self.is_parked.set()
        assert self._look.wait(20)
        self._look.clear()
        if self._is_over:
            raise Cancelled("no more", hint="none")

    def look(self, guest: Guest, *, give_up: bool = False) -> None:
        """Let it look once; it waits again, is in, or has given up when this returns."""
        self._is_over = give_up
        self.is_parked.clear()
        self._look.set()
        settle(guest)


def settle(guest: Guest) -> None:
    eventually(lambda: guest.stop.is_parked.is_set() or guest.is_in or guest.error)


MOVES = st.lists(
    st.tuples(st.sampled_from(["come", "come", "look", "leave", "give up"]), st.integers(0, 9)), max_size=25
)


@settings(max_examples=25, deadline=None)
@given(at_once=st.integers(1, 3), moves=MOVES)
def test_whoever_looks_when_the_rules_hold(at_once: int, moves: list[tuple[str, int]]) -> None:
    queue = FairQueue(at_once, "review")
    inside: list[Guest] = []
    waiting: list[Guest] = []  # in the order in which they came

    def look(guest: Guest, ahead: list[Guest]) -> None:
        before = {one.question for one in inside}
        if guest.is_in:
            waiting.remove(guest)
            inside.append(guest)
            assert guest.question not in before, "the same question runs once at a time"
            overtaken = {one.question for one in ahead} - before - {guest.question}
            assert len(inside) + len(overtaken) <= at_once, "who came before has a place as well"

    for move, number in moves:
        if move == "come":
            guest = Guest(queue, "abcd"[number % 4], Paced())
            waiting.append(guest)
            settle(guest)
            look(guest, waiting[:-1])
        elif move == "leave" and inside:
            inside.pop(number % len(inside)).leave()
        elif waiting and move in ("look", "give up"):
            guest = waiting[number % len(waiting)]
            ahead = waiting[: waiting.index(guest)]
            guest.stop.look(guest, give_up=move == "give up")
            if guest.error is not None:
                waiting.remove(guest)
            else:
                look(guest, ahead)
        assert queue.counts == (len(inside), len(waiting))
    while waiting:  # when all have looked, none waits without a reason
        for guest in list(waiting):
            ahead = waiting[: waiting.index(guest)]
            guest.stop.look(guest)
            look(guest, ahead)
        running = {guest.question for guest in inside}
        assert len(inside) == at_once or all(guest.question in running for guest in waiting)
        inside.pop(0).leave()
    for guest in inside:
        guest.leave()
    assert queue.counts == (0, 0)
