"""What a handler gets: the caller, a transaction, the time, progress, and when to stop."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crewhall.config import Settings
from crewhall.fair_queue import Party
from crewhall.idempotency import savepoint
from crewhall.identity import Actor, guard_against_end
from crewhall.stop import Stop
from crewhall.store.transaction import Look, QueuedStatement, Row, Rows, Tx, Work
from crewhall.tool import State, StateT, Tool

if TYPE_CHECKING:
    from crewhall.app.hub import Hub

Progress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True)
class Origin:
    """Where a call comes from, as its bridge tells it: a directory, and variables that count for this call alone.

    `worktree` is no word of the client's: it is the root of the worktree's own server, by which the call came in, and
    `identity` which directory that was when it was opened.
    """

    directory: str | None = None
    bridge: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # tokens may be among them
    worktree: str | None = None
    identity: tuple[int, int] | None = None


NOWHERE = Origin()


def party_of(actor: Actor, origin: Origin, named: str | None = None) -> Party:
    """Who takes turns with others: an agent, or a client of the operator's, known by its bridge or worktree, or by the
    agent for which it speaks."""
    if actor.kind == "agent":
        return Party(actor.id)
    client = origin.bridge or origin.worktree or named
    return Party(f"{actor.id} {client}") if client else Party(actor.id, is_owner=True)


@dataclass
class Call:
    """What a handler may use of the world: a transaction, the time, progress, and when to stop."""

    hub: "Hub"
    tool: Tool
    actor: Actor
    edge: str
    stop: Stop
    report: Progress | None
    now: int
    id: str
    origin: Origin = NOWHERE
    started_at: float = field(default_factory=time.perf_counter)
    in_log: bool = False
    whole: Tx | None = None  # the one transaction of a call that has an idempotency key
    facts: Row = field(default_factory=dict)  # what the call log says of it besides: see `note`
    once_proven: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._unproven = self.actor.unproven

    # The caller may be a guess: its token is looked up with the first statements of the call

    def prove(self) -> None:
        """Look the caller's token up, unless that was done. Raises Unauthorized, TokenChanged."""
        if self._unproven is not None:
            self._take_proof(self.hub.store.ask([self._proof()])[0])

    def _proof(self) -> QueuedStatement:
        assert self._unproven is not None
        return QueuedStatement("token_find", {"hash": self._unproven.hash, "now": self.now})

    def _take_proof(self, rows: Rows) -> None:
        assert self._unproven is not None
        self._unproven.refuse_changed(rows)
        self._unproven = None
        self.once_proven()

    def _guard(self, tx: Tx) -> Tx:
        """Let nothing be seen or done in a transaction by whoever is not, or no longer, who it seems."""
        if self._unproven is not None:
            proof = self._proof()
            tx.guard(proof.name, self._take_proof, **proof.params)
        return tx

    @property
    def settings(self) -> Settings:
        return self.hub.settings

    @property
    def party(self) -> Party:
        """Who takes turns with others for what is scarce."""
        return party_of(self.actor, self.origin)

    def state(self, state: State[StateT]) -> StateT:
        """What the family declared that this hub keeps in memory."""
        return self.hub.state(state)

    def later(self) -> int:
        """The time as it is now; `now` is when the call began, and stays."""
        return self.hub.clock()

    @contextmanager
    def look(self, *, of_events: bool = False) -> Iterator[Tx]:
        """A snapshot to read from: for what a tool that changes things only looks at. It costs no commit.

        Where the call is one transaction as a whole, it is a part of that.
        """
        self.stop.check()
        if self.whole is not None:
            yield self.whole
            return
        with self.hub.store.read(of_events=of_events) as tx:
            yield self._guard(tx)

    @contextmanager
    def begin(self, at: int | None = None) -> Iterator[Tx]:
        """A short transaction, read-only unless the tool changes things. Nothing waits inside it.

        An instance that was ended while its call waited changes nothing: Unauthorized.
        What it writes has the time `now`, or `at`. Where the call is one transaction as a whole, it is a part of that.
        """
        self.stop.check()
        if self.whole is not None:
            with savepoint(self.whole) as tx:
                yield tx
            return
        if not self.tool.changes:
            with self.hub.store.read() as tx:
                yield self._guard(tx)
            return
        now = self.now if at is None else at
        work = Work(self.actor.id, self.tool.name, now, self.log_row, self._before_commit)
        with self.hub.store.write(work) as tx:
            guard_against_end(self._guard(tx), self.actor)
            yield tx
        self.in_log = True

    @contextmanager
    def begin_midway(self) -> Iterator[Tx]:
        """A short transaction in the middle of a long call, at the time it is then. The call log has the call's end."""
        self.stop.check()
        with self.hub.store.write(Work(self.actor.id, self.tool.name, self.later())) as tx:
            guard_against_end(self._guard(tx), self.actor)
            yield tx

    def one(self, name: str, /, **params: Any) -> Row | None:
        """The row of one query, without a transaction around it."""
        self.stop.check()
        if self._unproven is not None and self.whole is None:
            proof, found = self.hub.store.ask([self._proof(), QueuedStatement(name, params)])
            self._take_proof(proof)
            return next(iter(found.rows), None)
        look: Look = self.whole or self.hub.store
        return look.one(name, **params)

    def _before_commit(self) -> None:
        self.hub.before_commit()
        self.stop.check()

    def saw(self, agent_id: str) -> None:
        """A client without a token writes for this agent, as it seems: a sign of its life."""
        if self.actor.proof == "local":
            self.hub.presence.note_call(agent_id, None)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is; also a place where it may stop."""
        self.stop.check()
        if self.report is not None:
            self.report(done, total, message)

    def note(
        self,
        *,
        instance: str | None = None,
        commit: str | None = None,
        before: str | None = None,
        after: str | None = None,
    ) -> None:
        """Let the call log say which instance the call is about, at which git commit, and how its status changed."""
        given = {"instance_id": instance, "git_commit": commit, "before_status": before, "after_status": after}
        self.facts.update({name: value for name, value in given.items() if value is not None})

    def log_row(self, error: str | None = None) -> Row:
        """This call as a row of the call log."""
        return {
            "id": self.id,
            "at": self.now,
            "tool": self.tool.name,
            "actor": self.actor.id,
            "edge": self.edge,
            "success": int(error is None),
            "error": error,
            "duration_ms": round((time.perf_counter() - self.started_at) * 1000),
            "instance_id": self.facts.get("instance_id", self.actor.instance),
            "git_commit": self.facts.get("git_commit"),
            "before_status": self.facts.get("before_status"),
            "after_status": self.facts.get("after_status"),
        }
