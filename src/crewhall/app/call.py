"""What a handler gets: the caller, a transaction, the time, progress, and when to stop."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from crewhall.app.hub_process import machine
from crewhall.bindings import BoundAgent
from crewhall.config import Settings
from crewhall.errors import Failure
from crewhall.fair_queue import Party
from crewhall.idempotency import savepoint
from crewhall.identity import Actor, guard_against_end
from crewhall.notices import full_name, notify
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
    process: str | None = None  # of the bridge, by its name on this machine, where that can be told
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
    behind: Mapping[str, BoundAgent] = field(default_factory=dict)  # the bridge of a client without a token: its agents
    bound: BoundAgent | None = None  # the only one of these
    named: str | None = None  # the agent as which a client without a token acts in this call, by its own word
    told: list[str] | None = None  # where the ids of the notices go that its answer tells; None: it tells none

    def __post_init__(self) -> None:
        self._unproven = self.actor.unproven
        self._is_bound_anew = False
        self._mentioned: list[str] = []
        self._notices: list[Row] | None = None  # that wait for the caller; None until they are asked for

    # Who calls

    @property
    def agent_id(self) -> str | None:
        """The agent that calls: by its token, or because its bridge speaks for it and for no other."""
        if self.actor.kind == "agent":
            return self.actor.id
        return None if self.bound is None else self.bound.id

    @property
    def author(self) -> str:
        """Who did it, as events and the call log say: a client without a token may name another agent than its own."""
        return self.named or self.agent_id or self.actor.id

    @property
    def listener(self) -> str | None:
        """The agent that is told what is in the answer; of several behind a bridge the one that this call names."""
        return self.agent_id or (self.named if self.named in self.behind else None)

    def tell(self, body: Row) -> Row:
        """What the caller is to know besides this, as a field of it; nothing for whoever merely names an agent."""
        if self.told is None:
            return {}
        texts = self._mentioned + self._take_texts(self.told, body)
        return {"notices": texts} if texts else {}

    def mention(self, text: str) -> None:
        """Let the caller know this besides, in the answer to this call alone."""
        self._mentioned.append(text)

    def _take_texts(self, told: list[str], body: Row) -> list[str]:
        listener = self.listener
        if listener is None:
            return []
        if self._notices is None:
            self._notices = self._ask_notices(listener)
        if not self._notices:
            return []
        rows = self.hub.teller.take(self._notices, self.hub.clock(), body)
        told += [row["id"] for row in rows]
        return [row["text"] for row in rows]

    def _ask_notices(self, agent_id: str) -> list[Row]:
        store = self.hub.store
        try:
            if store.is_local and store.one("notice_waiting", agent_id=agent_id) is None:
                return []
            return store.ask([self.hub.teller.query(agent_id, self.hub.clock())])[0].rows
        except Failure:
            return []  # they wait

    def _with_notices(self, tx: Tx) -> Tx:
        """Let the question for notices travel with a short call's first statements, where travelling takes time."""
        if self.told is None or self.listener is None or self._notices is not None or self.hub.store.is_local:
            return tx
        if self.tool.pace in ("quick", "short"):
            ask = self.hub.teller.query(self.listener, self.now)
            tx.guard(ask.name, self._take_notices, **ask.params)
        return tx

    def _take_notices(self, found: Rows) -> None:
        self._notices = found.rows

    def speak_for(self, tx: Tx, agent_id: str) -> None:
        """A client without a token registers or claims for this agent: its bridge speaks for it from the commit on.

        The row may be gone though this hub remembers it: another client let the agent leave.
        """
        bridge = self.origin.bridge
        if self.actor.proof != "local" or bridge is None:
            return
        where = {"machine": machine(self.settings.node), "process": self.origin.process or ""}
        tx.run("bridge_agent_put", bridge=bridge, agent_id=agent_id, now=self.now, **where)
        self._is_bound_anew |= self.agent_id != agent_id

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

    def speak_no_more_for(self, tx: Tx, agent_id: str) -> None:
        """The agent leaves: no bridge speaks for it any more."""
        tx.run("bridges_forget_agent", agent_id=agent_id)
        self._is_bound_anew = True

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
            yield self._with_notices(self._guard(tx))

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
                yield self._with_notices(self._guard(tx))
            return
        now = self.now if at is None else at
        work = Work(self.author, self.tool.name, now, self.log_row, self._before_commit)
        with self._rebinding(), self.hub.store.write(work) as tx:
            guard_against_end(self._with_notices(self._guard(tx)), self.actor)
            self._watch_name(tx)
            yield tx
        self.in_log = True

    def _watch_name(self, tx: Tx) -> None:
        """Whoever writes as an agent that is known to be somebody else does not do so unnoticed."""
        if self.named is not None and self.named != self.agent_id:
            own = {"bridge": self.origin.bridge or "", "process": self.origin.process or ""}
            tx.guard("agent_spoken_for", partial(self._tell_named, tx), agent_id=self.named, **own)

    def _tell_named(self, tx: Tx, found: Rows) -> None:
        if found.rows and self.named is not None:
            by = self.agent_id or self.origin.bridge or "a local client"
            tx.event("agent.spoken_for", self.named, data=json.dumps({"by": by, "tool": self.tool.name}))
            who = by if self.bound is None else full_name(self.bound.name, by)
            text = f"{who} called {self.tool.name} as you. If that is not your doing, tell the operator (message_send)."
            notify(tx, [self.named], "named", self.named, text, self.now)

    @contextmanager
    def _rebinding(self) -> Iterator[None]:
        """Whatever becomes of the block: if it was to change for whom the bridge speaks, its rows are read again."""
        try:
            yield
        finally:
            if self._is_bound_anew and self.origin.bridge is not None:
                self.hub.bindings.forget(self.origin.bridge)

    @contextmanager
    def begin_midway(self) -> Iterator[Tx]:
        """A short transaction in the middle of a long call, at the time it is then. The call log has the call's end."""
        self.stop.check()
        with self.hub.store.write(Work(self.author, self.tool.name, self.later())) as tx:
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
            self.hub.presence.note_call(agent_id, None, self.now)

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
            "actor": self.author,
            "edge": self.edge,
            "success": int(error is None),
            "error": error,
            "duration_ms": round((time.perf_counter() - self.started_at) * 1000),
            "instance_id": self.facts.get("instance_id", self.actor.instance),
            "git_commit": self.facts.get("git_commit"),
            "before_status": self.facts.get("before_status"),
            "after_status": self.facts.get("after_status"),
        }
