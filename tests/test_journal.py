"""The journal on both databases, with a kind that makes files: done, undone, finished, lost, left, taken by one."""

import queue
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub, Tick
from crewhall.errors import Conflict, Failure, Unavailable
from crewhall.families.all import registry
from crewhall.journal import (
    BEAT_MS,
    BEGUN,
    FIRST_LOOK_MS,
    FORGET_MS,
    LAST_LOOK_MS,
    LEASE_MS,
    Happened,
    Kind,
    Operation,
    Step,
    settle_all,
)
from crewhall.store.transaction import Row, Tx, Work
from crewhall.tool import Family, Registry
from tests.conftest import Clock
from tests.families.work.workflows import sql

Op = Operation["Files"]


class Files:
    """A directory in which each step makes a file; a test says what goes wrong."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.fails: set[str] = set()  # "do b", "undo a": refused with a failure
        self.stays: set[str] = set()  # files that can't be taken back
        self.log: list[str] = []

    def step(self, name: str) -> Step["Files"]:
        return Step(name, lambda files, op: files.make(name), lambda files, op: files.remove(name), self.record(name))

    def record(self, name: str) -> Callable[[Tx, Op], None]:
        return lambda tx, op: tx.event(f"file.{name}", op.subject)

    def make(self, name: str) -> Row:
        self._act(f"do {name}")
        (self.top / name).write_text("")
        return {name: "made"}

    def remove(self, name: str) -> None:
        self._act(f"undo {name}")
        if name in self.stays and (self.top / name).exists():
            raise Happened({name: "found"})
        (self.top / name).unlink(missing_ok=True)

    def _act(self, what: str) -> None:
        self.log.append(what)
        if what in self.fails:
            raise Unavailable(f"can't {what}", hint="Try again.")

    def there(self) -> str:
        return "".join(sorted(path.name for path in self.top.iterdir()))


class Bench:
    """A hub with one kind of operation: files a, b, c; once b is recorded, c is made by whoever settles it."""

    def __init__(self, make_hub: Callable[..., Hub], clock: Clock, top: Path) -> None:
        self.files, self.clock = Files(top), clock
        family = Family("bench", "For tests.", "tests")
        self.kind: Kind[Files] = family.operation(
            "files",
            noun="set of files",
            look="ls",
            steps=tuple(self.files.step(name) for name in "abc"),
            reach=lambda tick: [("here", nullcontext(self.files))],
            keeps="b",
            on_left=lambda tx, op: tx.event("files.left", op.subject),
            on_undone=lambda tx, op: tx.event("files.undone", op.subject),
        )
        self.hub = make_hub(Registry([*registry().families, family]), clock)

    def begin(self, subject: str = "it", holder: str = "me", place: str = "here") -> Op:
        with self.hub.store.write(Work("ag_1", "file_make", self.clock.now)) as tx:
            return self.hub.journal.begin(tx, self.kind, subject, place=place, data={"top": 1}, holder=holder)

    def settle(self, *, awake_since: int = 0) -> None:
        settle_all(self.kind, Tick(self.hub, self.clock.now, awake_since))

    def rows(self) -> list[Row]:
        return sql(self.hub, "SELECT * FROM operation ORDER BY id")

    def events(self) -> list[str]:
        rows = sql(self.hub, "SELECT what FROM event WHERE substr(what, 1, 4) = 'file' ORDER BY seq")
        return [row["what"].removeprefix("file").lstrip("s.") for row in rows]


@pytest.fixture
def bench(make_hub: Callable[..., Hub], clock: Clock, tmp_path: Path) -> Bench:
    (tmp_path / "files").mkdir()
    return Bench(make_hub, clock, tmp_path / "files")


def test_steps_are_done_in_order_and_the_last_record_ends_the_operation(bench: Bench) -> None:
    operation = bench.begin()
    assert (bench.rows()[0]["step"], bench.rows()[0]["lease_until"]) == (None, bench.clock.now + LEASE_MS)
    bench.hub.journal.carry_out(operation, bench.files)
    assert (bench.files.there(), bench.events(), bench.rows()) == ("abc", ["a", "b", "c"], [])
    assert operation.data == {"top": 1, "a": "made", "b": "made", "c": "made"}


def test_the_same_operation_is_begun_once_at_a_time(bench: Bench) -> None:
    operation = bench.begin()
    with pytest.raises(Conflict, match="set of files it"):
        bench.begin()
    assert bench.begin("other").id != operation.id
    bench.hub.journal.carry_out(operation, bench.files)
    assert bench.begin().subject == "it"


def test_what_begins_in_a_transaction_that_fails_was_never_begun(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError), bench.hub.store.write(Work("ag_1", None, 1)) as tx:
        bench.hub.journal.begin(tx, bench.kind, "it", place="here", data={}, holder="me")
        1 / 0  # noqa: B018
    assert bench.rows() == []


def test_a_step_and_its_events_are_recorded_together_or_not_at_all(bench: Bench) -> None:
    operation = bench.begin()

    def fail(tx: Tx, operation: Op) -> None:
        tx.event("file.a", operation.subject)
        raise ZeroDivisionError

    broken: Step[Files] = Step("a", lambda files, op: files.make("a"), lambda files, op: None, fail)
    with pytest.raises(ZeroDivisionError):
        operation.record(broken, {})
    assert (bench.rows()[0]["step"], bench.events()) == (None, [])


@pytest.mark.parametrize("failing", ["a", "b"])
def test_what_fails_is_undone_with_the_last_step_first(bench: Bench, failing: str) -> None:
    operation = bench.begin()
    bench.files.fails = {f"do {failing}"}
    with pytest.raises(Unavailable):
        bench.hub.journal.carry_out(operation, bench.files)
    bench.files.log.clear()
    assert not bench.hub.journal.take_back(operation, bench.files)
    assert bench.files.log == [f"undo {name}" for name in ("ba" if failing == "b" else "a")]
    assert (bench.files.there(), bench.rows(), bench.events()[-1]) == ("", [], "undone")


def test_what_happened_after_all_is_recorded_and_finished(bench: Bench) -> None:
    operation = bench.begin()
    bench.files.fails, bench.files.stays = {"do b"}, {"b"}
    with pytest.raises(Unavailable):
        bench.hub.journal.carry_out(operation, bench.files)
    (bench.files.top / "b").write_text("")  # the answer was lost, and the file made
    assert bench.hub.journal.take_back(operation, bench.files)
    assert (bench.files.there(), bench.events(), bench.rows()) == ("abc", ["a", "b", "c"], [])


def test_an_undo_that_fails_is_tried_again_later_and_later_each_time(bench: Bench) -> None:
    bench.begin()
    bench.files.fails = {"undo a"}
    pauses = []
    for _ in range(6):
        bench.clock.now = max(bench.clock.now, bench.rows()[0]["lease_until"])
        bench.settle()
        pauses.append(bench.rows()[0]["lease_until"] - bench.clock.now)
    assert pauses[0] >= FIRST_LOOK_MS and pauses == sorted(pauses) and pauses[-1] == LAST_LOOK_MS
    assert set(bench.events()) == {"left"}
    bench.files.fails = set()
    bench.clock.now = bench.rows()[0]["lease_until"]
    bench.settle()
    assert (bench.rows(), bench.events()[-1]) == ([], "undone")


def test_what_nobody_can_undo_is_forgotten_after_a_week(bench: Bench) -> None:
    bench.begin()
    bench.files.fails = {"undo a"}
    bench.clock.now += FORGET_MS
    bench.settle()
    assert (bench.rows(), bench.events()) == ([], ["undone"])


def test_what_is_kept_is_finished_by_whoever_settles_it(bench: Bench) -> None:
    operation = bench.begin()
    bench.files.fails = {"do c"}
    with pytest.raises(Unavailable):
        bench.hub.journal.carry_out(operation, bench.files)
    bench.clock.now += LEASE_MS
    bench.settle()
    assert (bench.files.there(), len(bench.rows())) == ("ab", 1)
    bench.files.fails = set()
    bench.clock.now = bench.rows()[0]["lease_until"]
    bench.settle()
    assert (bench.files.there(), bench.rows(), bench.events()) == ("abc", [], ["a", "b", "left", "c"])


def test_what_is_kept_and_forgotten_was_not_undone(bench: Bench) -> None:
    operation = bench.begin()
    bench.files.fails = {"do c"}
    with pytest.raises(Unavailable):
        bench.hub.journal.carry_out(operation, bench.files)
    bench.clock.now += FORGET_MS
    bench.settle()
    assert (bench.rows(), bench.events()) == ([], ["a", "b"])


def test_nothing_is_settled_before_its_lease_is_over_or_while_a_hub_wakes_up(bench: Bench) -> None:
    bench.begin()
    bench.clock.now += LEASE_MS - 1
    bench.settle()
    bench.clock.now += 1
    bench.settle(awake_since=bench.clock.now - LEASE_MS + 1)
    assert bench.files.log == []
    bench.settle(awake_since=bench.clock.now - LEASE_MS)
    assert bench.files.log == ["undo a"]


def test_whoever_beats_keeps_it_and_whoever_was_away_is_told_before_it_acts(bench: Bench) -> None:
    operation = bench.begin()
    for _ in range(10):
        bench.clock.now += BEAT_MS
        operation.beat()
    assert bench.rows()[0]["lease_until"] == bench.clock.now + LEASE_MS
    bench.clock.now += LEASE_MS
    (taken,) = bench.hub.journal.take(bench.kind, "here")
    with pytest.raises(Failure, match="taken for dead") as caught:
        bench.hub.journal.carry_out(operation, bench.files)
    assert ("ls" in caught.value.hint, bench.files.log) == (True, [])
    with pytest.raises(Failure, match="taken for dead"):
        operation.record(bench.kind.steps[0], {})
    operation.leave()
    operation.drop()
    assert [(row["id"], row["holder"]) for row in bench.rows()] == [(taken.id, taken.row["holder"])]


def test_of_many_who_take_it_one_has_it(bench: Bench) -> None:
    bench.begin()
    bench.clock.now += LEASE_MS
    start, taken = threading.Barrier(6), []

    def take() -> None:
        start.wait(20)
        taken.extend(bench.hub.journal.take(bench.kind, "here"))

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(taken) == 1


def test_a_place_has_all_that_is_below_it_and_nothing_beside_it(bench: Bench) -> None:
    for place in ("here", "here/one", "hereafter", "there"):
        bench.begin(place, place=place)
    bench.clock.now += LEASE_MS
    assert bench.hub.journal.count_left(bench.kind, "here") == 2
    assert sorted(one.subject for one in bench.hub.journal.take(bench.kind, "here")) == ["here", "here/one"]


def test_one_that_cannot_be_settled_keeps_no_other_back(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.begin("first")
    bench.begin("second")
    bench.clock.now += LEASE_MS
    failed: list[str] = []
    remove = bench.files.remove

    def fail_once(name: str) -> None:
        if not failed:
            failed.append(name)
            raise ZeroDivisionError("a bug")
        remove(name)

    bench.files.remove = fail_once  # type: ignore[method-assign]
    bench.settle()
    assert [row["subject"] for row in bench.rows()] in (["first"], ["second"])
    assert "left half done" in caplog.text and "a bug" in caplog.text


def test_pulls_that_an_older_hub_began_are_operations_after_the_migration(hub: Hub) -> None:
    """The step's own words, on a row as the release before wrote it."""
    text = (Path(__file__).parent.parent / "src/crewhall/store/migrations/0012_journal.sql").read_text()
    insert = text[text.index("INSERT INTO operation") :].rstrip().rstrip(";")
    columns: dict[str, Any] = dict.fromkeys(
        ("provider", "host", "owner", "name", "branch", "base_branch", "title", "change_type", "digest", "paths"), "x"
    )
    hub.store.texts["old_pull"] = hub.store.dialect.query(
        f"INSERT INTO pull (id, {', '.join(columns)}, state, actor, holder, lease_until, created_at, updated_at) "
        f"VALUES (:id, {', '.join(f':{name}' for name in columns)}, :state, 'ada', 'hu_1.1', 7, 5, 6)"
    )
    hub.store.texts["migrate"] = hub.store.dialect.query(insert)
    with hub.store.write(Work("hall", None, 1)) as tx:
        for id, state, branch in (("pl_1", "opening", "b1"), ("pl_2", "left", "b2"), ("pl_3", "open", "b3")):
            tx.run("old_pull", id=id, state=state, **{**columns, "branch": branch, "digest": branch})
        tx.run("migrate")
    found = [
        (row["id"], row["subject"], row["place"], row["step"], row["lease_until"])
        for row in sql(hub, "SELECT * FROM operation ORDER BY id")
    ]
    assert found == [("op_1", "pl_1", "x/x/x", "branch", 7), ("op_2", "pl_2", "x/x/x", "branch", 7)]


def test_several_are_settled_at_once_and_a_new_one_waits_for_the_first_that_ends(bench: Bench) -> None:
    begun: queue.Queue[str] = queue.Queue()
    gates = {name: threading.Event() for name in ("one", "two", "three")}

    def act(files: Files, operation: Op) -> None:
        begun.put(operation.subject)
        assert gates[operation.subject].wait(20)

    kind = replace(bench.kind, steps=(Step("a", act, lambda files, op: None),), keeps=BEGUN, at_once=2)

    def leave(subject: str) -> None:
        with bench.hub.store.write(Work("ag_1", "file_make", bench.clock.now)) as tx:
            bench.hub.journal.begin(tx, kind, subject, place="here", data={}, holder="a chore", lease_ms=0)

    leave("one")
    leave("two")
    settler = threading.Thread(target=settle_all, args=(kind, Tick(bench.hub, bench.clock.now, awake_since=-LEASE_MS)))
    settler.start()
    assert {begun.get(timeout=20), begun.get(timeout=20)} == {"one", "two"}
    leave("three")
    gates["one"].set()
    assert begun.get(timeout=20) == "three" and not gates["two"].is_set()
    for gate in gates.values():
        gate.set()
    settler.join(20)
    assert not settler.is_alive() and bench.rows() == []
