"""
The journal: what the hall does outside its database is finished or undone, whatever dies in between.

    begin ──▶ step ──▶ step ──▶ done                     the last step's record ends the operation
                │
                ├── a step fails ──▶ undone, the last step first
                └── undoing fails, or the hub dies ──▶ left ── its lease ends ──▶ settled by a hub that can

A family declares a kind of operation: its steps, how each is done and undone, and which rows and events of the hall go
with its record, in one transaction. A step without a record may have happened, so doing and undoing can be repeated.

Whoever works on an operation holds it by a lease and beats. Once the lease is over another hub may take it, and the
late one is told (Lost) before its next act.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar

from crewhall.errors import Conflict, Unavailable
from crewhall.identity import new_id
from crewhall.outages import log_failure
from crewhall.store.transaction import Row, Store, Tx, Work

LEASE_MS = 120_000  # longer than any one act takes without a beat
BEAT_MS = 20_000
FIRST_LOOK_MS, LAST_LOOK_MS = 60_000, 900_000  # between two tries to settle what was left: later each time
FORGET_MS = 7 * 86_400_000  # after which nobody tries any more
SETTLE_SECONDS = 30.0  # how often a hub looks for what was left
AT_ONCE = 10
LOOK_SECONDS = 2.0  # how often a settler of several at once looks for more
BEGUN = "begun"  # as `keeps` of a kind: what was begun is finished, and never undone

log = logging.getLogger(__name__)
WorldT = TypeVar("WorldT")


class Lost(Unavailable):
    """Whoever worked on the operation was away for so long that another hub has taken it."""


class Happened(Exception):
    """Raised by an undo: the step was done after all, and stays. `data` is what it would have returned."""

    def __init__(self, data: Row) -> None:
        super().__init__("the step was done after all")
        self.data = data


class OperationRow(TypedDict):
    """An operation as the database has it; `step` is the last one with a record."""

    id: str
    kind: str
    subject: str
    place: str
    step: str | None
    data: str
    actor: str
    holder: str
    lease_until: int
    created_at: int
    updated_at: int


@dataclass
class Operation(Generic[WorldT]):
    """One operation in somebody's hands. `data` is what it needs to be undone, and what its steps added."""

    journal: "Journal"
    kind: "Kind[WorldT]"
    row: OperationRow
    actor: str
    tool: str | None
    data: Row = field(init=False)
    _beaten_at: int = field(init=False)

    def __post_init__(self) -> None:
        self.data = json.loads(self.row["data"])
        self._beaten_at = self.row["updated_at"]

    @property
    def id(self) -> str:
        return self.row["id"]

    @property
    def subject(self) -> str:
        return self.row["subject"]

    @property
    def age_ms(self) -> int:
        return self.journal.clock() - self.row["created_at"]

    @property
    def is_kept(self) -> bool:
        """Whether it is finished by whoever settles it, and not undone any more."""
        return self.kind.is_kept(self.row["step"])

    @contextmanager
    def write(self) -> Iterator[tuple[Tx, Row]]:
        """A transaction, and the parameters that say which operation is meant and who may change it."""
        now = self.journal.clock()
        with self.journal.store.write(Work(self.actor, self.tool, now)) as tx:
            yield tx, {"id": self.id, "holder": self.row["holder"], "now": now}

    def beat(self, seconds: float = 0.0) -> None:
        """Prolong the lease, beyond a pause of so many seconds. Raises Lost when another has the operation by now."""
        if not seconds and self.journal.clock() - self._beaten_at < BEAT_MS:
            return
        with self.write() as (tx, own):
            self._beaten_at = own["now"]
            if not tx.count("operation_beat", **own, lease_until=own["now"] + LEASE_MS + int(seconds * 1000)):
                raise self._loss()

    def record(self, step: "Step[WorldT]", data: Row | None) -> None:
        """Note that a step is done, with the rows and events that go with it. Raises Lost.

        What is kept from here on is a fact, and noted whoever holds the operation by now.
        """
        self.data.update(data or {})
        with self.write() as (tx, own):
            noted = {"step": step.name, "data": json.dumps(self.data), "lease_until": own["now"] + LEASE_MS}
            if not tx.count("operation_step", **own, **noted) and not self.kind.is_kept(step.name):
                raise self._loss()
            step.record(tx, self)
            if step is self.kind.steps[-1]:
                tx.run("operation_end", id=self.id)
        self.row["step"] = step.name

    def leave(self) -> None:
        """Let go of it without being sure: it is settled later, and later each time."""
        with self.write() as (tx, own):
            pause = min(max(FIRST_LOOK_MS, self.age_ms), LAST_LOOK_MS)
            if tx.count("operation_beat", **own, lease_until=own["now"] + pause):
                self.kind.on_left(tx, self)

    def drop(self) -> None:
        """Forget it: nothing of it is there, and nothing will be."""
        with self.write() as (tx, own):
            if tx.count("operation_drop", id=own["id"], holder=own["holder"]) and not self.is_kept:
                self.kind.on_undone(tx, self)

    def _loss(self) -> Lost:
        return Lost(
            f"this call was away for too long, and its {self.kind.noun} was taken for dead",
            hint=f"What it left is settled by the hub; see with {self.kind.look} what there is, then try again.",
        )


def _nothing(tx: Tx, operation: Operation[Any]) -> None:
    """A step or an end without rows and events of its own."""


@dataclass(frozen=True)
class Step(Generic[WorldT]):
    """One act outside the database. `do` returns what is worth keeping; `undo` raises Happened for what must stay.

    `record` writes the hall's rows and events in the transaction that notes the step.
    """

    name: str
    do: Callable[[WorldT, Operation[WorldT]], Row | None]
    undo: Callable[[WorldT, Operation[WorldT]], None]
    record: Callable[[Tx, Operation[Any]], None] = _nothing


@dataclass(frozen=True, eq=False)
class Kind(Generic[WorldT]):
    """A kind of operation.

    `noun` is what a person calls it, `look` the tool that shows what there is.
    `reach` gives the places whose operations this hub can settle now, each with the world that steps act in there.
    From the record of the step `keeps` on, the operation is finished by whoever settles it, and never undone; with
    BEGUN, from its start.
    Whoever settles it before `late_ms` are over looks again later: what was begun may still happen outside.
    `is_orphan` says of an operation's holder that its process is known to be dead: then nobody waits for the lease. A
    `holder` that settles is called so that this can be told.
    Of those that were left, so many are settled `at_once`.
    """

    name: str
    noun: str
    look: str
    steps: tuple[Step[WorldT], ...]
    reach: Callable[..., Iterable[tuple[str, AbstractContextManager[WorldT]]]]
    keeps: str | None = None
    late_ms: int = 0
    on_left: Callable[[Tx, Operation[Any]], None] = _nothing
    on_undone: Callable[[Tx, Operation[Any]], None] = _nothing
    is_orphan: Callable[[str], bool] | None = None
    holder: Callable[[], str] = lambda: new_id("se")
    at_once: int = 1

    def steps_begun(self, step: str | None) -> tuple[Step[WorldT], ...]:
        """The steps that may have happened: those up to the recorded one, and the one after it."""
        return self.steps[: self._number(step) + 1]

    def remaining(self, step: str | None) -> tuple[Step[WorldT], ...]:
        """The steps after the recorded one."""
        return self.steps[self._number(step) :]

    def is_kept(self, step: str | None) -> bool:
        """Whether what has come as far as this step is finished and not undone."""
        return self.keeps == BEGUN or (self.keeps is not None and self._number(step) >= self._number(self.keeps))

    def _number(self, step: str | None) -> int:
        return [None, *(one.name for one in self.steps)].index(step)


class Journal:
    """The operations of a hall, as one hub works on them."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self.store, self.clock = store, clock
        self.at: Callable[[str], None] = lambda point: None  # a test may stop the world there

    def begin(
        self,
        tx: Tx,
        kind: Kind[WorldT],
        subject: str,
        *,
        place: str,
        data: Row,
        holder: str,
        lease_ms: int = LEASE_MS,
    ) -> Operation[WorldT]:
        """Note in an open transaction what is about to be done. Raises Conflict when the same is under way.

        Whoever leaves it to the chores of a hub at the place gives it a short lease.
        """
        assert tx.work is not None
        now, actor = tx.work.now, tx.work.actor
        own = {"id": new_id("op"), "kind": kind.name, "subject": subject, "place": place, "actor": actor}
        mine = {"data": json.dumps(data), "holder": holder, "lease_until": now + lease_ms, "now": now}
        row = tx.one("operation_insert", **own, **mine)
        if row is None:
            raise Conflict(
                f"the {kind.noun} {subject} is being worked on", hint=f"See with {kind.look} what becomes of it."
            )
        return Operation(self, kind, row, actor, tx.work.tool)

    def carry_out(self, operation: Operation[WorldT], world: WorldT) -> None:
        """Do the steps that are left, and record each. Raises what a step raises, and Lost."""
        for step in operation.kind.remaining(operation.row["step"]):
            operation.beat()
            self.at(f"{step.name} begins")
            data = step.do(world, operation)
            self.at(f"{step.name} acted")
            operation.record(step, data)
            self.at(f"{step.name} recorded")

    def take_back(self, operation: Operation[WorldT], world: WorldT, *, is_sure: bool = True) -> bool:
        """Undo what may have happened, the last step first; whether it was done after all, and is finished now.

        What is undone is forgotten if that `is_sure`, else looked at again later. Raises what an undo raises.
        """
        for step in reversed(operation.kind.steps_begun(operation.row["step"])):
            self.at(f"{step.name} undoes")
            try:
                step.undo(world, operation)
            except Happened as fact:
                operation.record(step, fact.data)
                self.carry_out(operation, world)
                return True
            self.at(f"{step.name} undone")
        if is_sure:
            operation.drop()
        else:
            operation.leave()
        return False

    def count_left(self, kind: Kind[Any], place: str) -> int:
        """How many operations at or below a place nobody works on."""
        row = self.store.one("operations_left", kind=kind.name, place=place, now=self.clock())
        assert row is not None
        return int(row["total"])

    def free_orphans(self, kind: Kind[Any], place: str) -> None:
        """End the leases of operations whose holders are known to be dead."""
        now = self.clock()
        with self.store.read() as look:
            held = look.all("operations_held", kind=kind.name, place=place, now=now)
        for row in held:
            if kind.is_orphan is not None and kind.is_orphan(row["holder"]):
                with self.store.write(Work("hall", None, now)) as tx:
                    tx.run("operation_beat", id=row["id"], holder=row["holder"], lease_until=now, now=now)

    def take(self, kind: Kind[WorldT], place: str, most: int = AT_ONCE) -> list[Operation[WorldT]]:
        """The oldest of them, for the taker alone while its lease lasts."""
        now = self.clock()
        fields = {"kind": kind.name, "place": place, "holder": kind.holder(), "limit": most}
        with self.store.write(Work("hall", None, now)) as tx:
            rows = tx.all("operations_take", **fields, lease_until=now + LEASE_MS, now=now)
        return [Operation(self, kind, row, "hall", None) for row in rows]

    def settle_left(self, kind: Kind[WorldT], place: str, world: WorldT) -> None:
        """Finish or undo what was left at or below a place; what can't be settled now stays for another time."""
        if not self.count_left(kind, place):
            return
        if kind.at_once == 1:
            for operation in self.take(kind, place):
                self._settle_or_leave(operation, world)
            return
        with ThreadPoolExecutor(kind.at_once) as threads:
            running: set[Future[None]] = set()
            while True:  # what is left in the meantime need not wait for the longest
                if len(running) < kind.at_once and self.count_left(kind, place):
                    taken = self.take(kind, place, kind.at_once - len(running))
                    running |= {threads.submit(self._settle_or_leave, operation, world) for operation in taken}
                if not running:
                    return
                running = wait(running, LOOK_SECONDS, FIRST_COMPLETED).not_done

    def _settle_or_leave(self, operation: Operation[WorldT], world: WorldT) -> None:
        try:
            self._settle(operation, world)
        except Exception as error:
            about = {"kind": operation.kind.name, "subject": operation.subject}
            log_failure(log, "an operation is left half done", error, **about)
            if operation.age_ms >= FORGET_MS:
                operation.drop()
            else:
                operation.leave()

    def _settle(self, operation: Operation[WorldT], world: WorldT) -> None:
        if operation.is_kept:
            self.carry_out(operation, world)
        else:
            self.take_back(operation, world, is_sure=operation.age_ms >= operation.kind.late_ms)


def settle_all(kind: Kind[Any], tick: Any) -> None:
    """A chore: settle what was left of a kind, wherever this hub can.

    After a start or a gap it waits for one lease: a call that slept with the machine goes on first. It does not wait
    for holders that are known to be dead.
    """
    if tick.now - tick.awake_since < LEASE_MS and kind.is_orphan is None:
        return
    journal: Journal = tick.hub.journal
    for place, world in kind.reach(tick):
        if kind.is_orphan is not None:
            journal.free_orphans(kind, place)
        if journal.count_left(kind, place):
            with world as there:
                journal.settle_left(kind, place, there)
