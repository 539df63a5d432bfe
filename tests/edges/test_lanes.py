"""No one who calls holds up the others: shares of threads, places for large bodies, streams."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from crewhall.edges.hub.lanes import MOST_STREAMS, MOST_WAITING, OWNER_STREAMS, Lane, Pacer, Streams, Turnstile
from crewhall.edges.hub.threads import Job, ThreadPerJob, Threads
from crewhall.errors import LimitExceeded, Unavailable
from crewhall.fair_queue import Party

ADA, BOB, EVE = Party("ada"), Party("bob"), Party("eve")
OWNER = Party("operator", is_owner=True)
WORKERS = {"fixed": Threads(8, "test"), "each": ThreadPerJob("test")}


class Work:
    """Jobs of several parties on a lane of eight places; each runs until it is let go."""

    def __init__(self, workers: Any) -> None:
        self.lane = Lane(8, workers)
        self.begun: list[str] = []
        self.changed = threading.Condition()
        self.allowed: set[str] = set()
        self.jobs: dict[str, Job[None]] = {}

    def start(self, name: str, party: Party) -> None:
        self.jobs[name] = self.lane.start(lambda: self._run(name), party)

    def _run(self, name: str) -> None:
        with self.changed:
            self.begun.append(name)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: name in self.allowed or "all" in self.allowed, 20)

    async def let_go(self, *names: str) -> None:
        with self.changed:
            self.allowed |= set(names)
            self.changed.notify_all()
        for name in names:
            await self.jobs[name].result()

    async def have_begun(self, *names: str) -> None:
        """Wait until exactly these have."""
        end = asyncio.get_running_loop().time() + 10
        while set(self.begun) != set(names) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.001)
        assert sorted(self.begun) == sorted(names)
        self.begun.clear()


@contextmanager
def released(work: Work) -> Iterator[None]:
    try:
        yield
    finally:
        with work.changed:
            work.allowed.add("all")
            work.changed.notify_all()


def on_a_lane(story: Callable[[Work], Coroutine[Any, Any, None]]) -> None:
    async def tell(workers: Any) -> None:
        work = Work(workers)
        with released(work):
            await story(work)
        while work.lane.counts != (0, 0):
            await asyncio.sleep(0.001)

    for workers in WORKERS.values():
        asyncio.run(tell(workers))


def test_a_party_has_a_quarter_of_the_threads_and_the_owner_half() -> None:
    async def story(work: Work) -> None:
        for number in range(9):
            work.start(f"ada{number}", ADA)
        await work.have_begun("ada0", "ada1")
        for number in range(9):
            work.start(f"own{number}", OWNER)
        await work.have_begun("own0", "own1", "own2", "own3")
        work.start("bob0", BOB)
        await work.have_begun("bob0")
        assert work.lane.counts == (7, 12)
        await work.let_go("ada0")
        await work.have_begun("ada2")

    on_a_lane(story)


def test_those_who_wait_take_turns() -> None:
    async def story(work: Work) -> None:
        for party, count in ((ADA, 5), (BOB, 3), (EVE, 3), (OWNER, 4)):
            for number in range(count):
                work.start(f"{party.name}{number}", party)
        await work.have_begun(*["ada0", "ada1", "bob0", "bob1", "eve0", "eve1", "operator0", "operator1"])
        for ended, next_one in (("operator0", "operator2"), ("bob0", "bob2"), ("ada0", "ada2"), ("ada1", "operator3")):
            await work.let_go(ended)
            await work.have_begun(next_one)
        await work.let_go("bob1")
        await work.have_begun("ada3")

    on_a_lane(story)


def test_a_line_has_an_end_and_is_nobody_elses() -> None:
    async def story(work: Work) -> None:
        for number in range(2 + MOST_WAITING):
            work.start(f"ada{number}", ADA)
        with pytest.raises(LimitExceeded, match=f"{MOST_WAITING} calls of yours wait already, and 2 run"):
            work.start("more", ADA)
        work.start("bob0", BOB)
        await work.have_begun("ada0", "ada1", "bob0")
        work.lane.dismiss(Unavailable("over", hint="none"))
        with pytest.raises(Unavailable):
            await work.jobs["ada2"].result()

    on_a_lane(story)


def test_who_gives_up_leaves_the_line() -> None:
    async def story(work: Work) -> None:
        for number in range(4):
            work.start(f"ada{number}", ADA)
        await work.have_begun("ada0", "ada1")
        assert work.lane.withdraw(work.jobs["ada2"], ADA)
        assert not work.lane.withdraw(work.jobs["ada2"], ADA) and not work.lane.withdraw(work.jobs["ada0"], ADA)
        await work.let_go("ada0")
        await work.have_begun("ada3")

    on_a_lane(story)


def test_a_thread_that_hangs_keeps_its_place() -> None:
    async def story(work: Work) -> None:
        for number in range(3):
            work.start(f"ada{number}", ADA)
        await work.have_begun("ada0", "ada1")
        work.jobs["ada0"].abandon(Unavailable("stuck", hint="none"))
        with pytest.raises(Unavailable):
            await work.jobs["ada0"].result()
        assert work.lane.counts == (2, 1)

    on_a_lane(story)


def test_large_requests_of_a_party_take_turns() -> None:
    async def story() -> None:
        turnstile, most, now = Turnstile(8), Counts(), Counts()

        async def come(party: Party) -> None:
            async with turnstile.turn(party):
                now.add(party, 1)
                most.raise_to(party, now[party])
                await asyncio.sleep(0)
                now.add(party, -1)

        await asyncio.gather(*(come(party) for party in (ADA, BOB, OWNER) for _ in range(50)))
        assert most == {ADA: 2, BOB: 2, OWNER: 4}
        coming = asyncio.create_task(come(ADA))
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        assert turnstile.is_empty

    asyncio.run(story())


def test_one_request_of_each_party_begins_in_a_round() -> None:
    async def story() -> None:
        pacer, loop, rounds = Pacer(), asyncio.get_running_loop(), 0
        began: dict[Party, list[int]] = {ADA: [], BOB: []}

        def count() -> None:
            nonlocal rounds
            rounds += 1
            if any(not task.done() for task in tasks):
                loop.call_soon(count)

        async def come(party: Party) -> None:
            await pacer.wait(party)
            began[party].append(rounds)

        tasks = [asyncio.create_task(come(party)) for party in (ADA, ADA, ADA, ADA, BOB, ADA)]
        loop.call_soon(count)
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(began[ADA]) == len(set(began[ADA])) == 4
        assert began[BOB] == began[ADA][:1], "another's begins in the same round"
        await pacer.wait(ADA)

    asyncio.run(asyncio.wait_for(story(), 10))


class Counts(dict[Party, int]):
    def add(self, party: Party, number: int) -> None:
        self[party] = self.get(party, 0) + number

    def raise_to(self, party: Party, number: int) -> None:
        self[party] = max(self.get(party, 0), number)


def test_a_party_has_so_many_streams_and_the_owner_more() -> None:
    streams = Streams()
    with ExitStack() as held:
        for party, most in ((ADA, MOST_STREAMS), (OWNER, OWNER_STREAMS)):
            for _ in range(most):
                held.enter_context(streams.hold(party))
            with pytest.raises(LimitExceeded, match=f"{most} streams open"), streams.hold(party):
                pass
        with streams.hold(BOB):
            pass
    with streams.hold(ADA):
        pass
