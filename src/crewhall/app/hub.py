"""
The one door: every call from every edge is `Hub.call(name, arguments, actor)`.

    find the tool ─▶ may the actor? ─▶ parse ─▶ handler, with a Call in its hand ─▶ plain data
                                         every way out leaves a row in the call log
"""

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from crewhall import identity
from crewhall.cache import Kept
from crewhall.config import Settings
from crewhall.declaration import KEY
from crewhall.errors import Failure, Forbidden, InvalidInput
from crewhall.fair_queue import Line
from crewhall.idempotency import once, part_of
from crewhall.identity import Actor, Credentials
from crewhall.meter import Meter
from crewhall.presence import Presence
from crewhall.serving import Servers
from crewhall.stop import Stop
from crewhall.store.calls import CallLog
from crewhall.store.events import prune
from crewhall.store.open import open_store
from crewhall.store.sql import Queries, text_of
from crewhall.store.transaction import Look, Row, Store, Tx, Work
from crewhall.tool import Chore, Registry, Tool

DEPTH = 64
PRUNE_SECONDS = 600.0
TICK_SECONDS = 10.0  # how often a hub looks whether a chore is due
ASKING = 48
GAP_TICKS = 3  # a hub that was away for longer knows nothing of what happened meanwhile

log = logging.getLogger(__name__)
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


@dataclass(frozen=True)
class Tick:
    """What a chore may use of the world: the hub, the time, and since when this hub has been awake without a gap."""

    hub: "Hub"
    now: int
    awake_since: int

    @property
    def settings(self) -> Settings:
        return self.hub.settings

    @contextmanager
    def begin(self) -> Iterator[Tx]:
        """A short transaction of the hall itself."""
        with self.hub.store.write(Work("hall", None, self.now)) as tx:
            yield tx


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

    @property
    def settings(self) -> Settings:
        return self.hub.settings

    @contextmanager
    def begin(self) -> Iterator[Tx]:
        """A short transaction, read-only unless the tool changes things. Nothing waits inside it.

        Where the call is one transaction as a whole, it is a part of that.
        """
        self.stop.check()
        if self.whole is not None:
            with part_of(self.whole) as tx:
                yield tx
            return
        if not self.tool.changes:
            with self.hub.store.read() as tx:
                yield tx
            return
        work = Work(self.actor.id, self.tool.name, self.now, self.log_row, self._before_commit)
        with self.hub.store.write(work) as tx:
            yield tx
        self.in_log = True

    def one(self, name: str, /, **params: Any) -> Row | None:
        """The row of one query, without a transaction around it."""
        self.stop.check()
        look: Look = self.whole or self.hub.store
        return look.one(name, **params)

    def _before_commit(self) -> None:
        self.hub.before_commit()
        self.stop.check()

    def saw(self, agent_id: str) -> None:
        """A client without a token writes for this agent, as it seems: a sign of its life."""
        if self.actor.proof == "local":
            self.hub.presence.saw(agent_id, None)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is; also a place where it may stop."""
        self.stop.check()
        if self.report is not None:
            self.report(done, total, message)

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
        }


class Hub:
    """A hall's running server: its store, its tools, its settings, its clock."""

    def __init__(self, settings: Settings, registry: Registry, *, clock: Callable[[], int] | None = None) -> None:
        self.settings = settings
        self.registry = registry
        texts = [text_of("crewhall", name) for name in ("identity.sql", "idempotency.sql", "serving.sql")]
        texts += [family.queries for family in registry.families]
        self.store: Store = open_store(settings.database, Queries(texts), settings["database.pool"])
        self.clock = clock or self.store.now
        self.calls = CallLog(self.store)
        self.meter = Meter(tool.name for tool in registry.tools)
        self.presence = Presence()
        self.kept = Kept()
        self.servers: Servers | None = None  # None: this process listens for no worktree
        # Claims that may make a worktree at once: git can be slow, and half of the threads stay free for short calls.
        self.making = threading.BoundedSemaphore(max(1, settings["tool.threads"] // 2))
        # Sources of context that are asked at once. One that is stuck keeps its place, so they don't pile up.
        self.asking = threading.BoundedSemaphore(ASKING)
        self.judging = Line(settings["judge.at_once"], "review")  # Claude is slow, dear, and has limits of its own
        self.before_commit: Callable[[], None] = lambda: None
        self.id = identity.new_id("hu")
        self._numbers = itertools.count(1)
        self._chores = [Chore("prune", PRUNE_SECONDS, _prune), *registry.chores]
        self._due: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._ticked_at: int | None = None
        self._awake_since = 0
        self._settle()

    def _settle(self) -> None:
        """What every hall has from its first start on: its own id."""
        with self.own_work() as tx:
            tx.run("hall_found", id=identity.new_id("ha"))

    @contextmanager
    def own_work(self) -> Iterator[Tx]:
        """A transaction of the hub itself, for what no tool does."""
        with self.store.write(Work("operator", None, self.clock())) as tx:
            yield tx

    def identify(self, credentials: Credentials) -> Actor:
        """The actor behind a request. Raises Unauthorized."""
        if credentials.needs_no_look:
            return identity.OPERATOR
        return identity.identify(self.store, credentials, self.clock())

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        actor: Actor,
        *,
        edge: str = "python",
        stop: Stop | None = None,
        progress: Progress | None = None,
        origin: Origin = NOWHERE,
    ) -> dict[str, Any]:
        """Do what the tool does and return its result as plain data. Raises Failure."""
        tool = self.registry.find(name)
        stop = stop or Stop(self.seconds_for(tool))
        with self.meter.measuring(tool.name):
            call_id = f"{self.id}.{next(self._numbers)}"
            return self._do(Call(self, tool, actor, edge, stop, progress, self.clock(), call_id, origin), arguments)

    def seconds_for(self, tool: Tool) -> float | None:
        """How long a call of the tool may take; None where it sees to that itself."""
        return None if tool.unhurried else self.settings["tool.timeout"]

    def _do(self, call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The call itself; every way out leaves a row in the call log."""
        tool, actor = call.tool, call.actor
        error: str | None = "INTERNAL"
        try:
            _allow(tool, actor)
            refuse_unfit(arguments)
            given = _acting(tool, actor, tool.parse(arguments))
            self._note_presence(call, given)
            body = _answer(call, given)
            error = None
        except Failure as failure:
            error = failure.code
            raise
        finally:
            if error is not None or not call.in_log:
                self.calls.put(call.log_row(error))
        return body

    def _note_presence(self, call: Call, given: Mapping[str, Any]) -> None:
        """A call of an agent is a sign of life; that a person looks at one in the dashboard is none.

        By its token an agent is known to be behind the bridge. Whoever names one may be another, such as a coordinator.
        """
        if call.actor.kind == "agent":
            self.presence.saw(call.actor.id, call.origin.bridge)
        elif call.tool.acting is not None and call.actor.proof == "local":
            self.presence.saw(given[call.tool.acting], None)

    @property
    def tick_seconds(self) -> float:
        """How long a hub waits between two ticks: well below the time after which an agent is missed."""
        beat, lease = float(self.settings["agent.heartbeat"]), float(self.settings["agent.lease"])
        return min(TICK_SECONDS, beat / 3, lease / 3)

    def do_chores(self) -> None:
        """One tick: what is due of the chores, each on its own; one that fails is logged and keeps no other back."""
        now = self.clock()
        if self._ticked_at is None or not 0 <= now - self._ticked_at <= self.tick_seconds * 1000 * GAP_TICKS:
            self._awake_since, self._due, self._held = now, {}, {}  # it was away, or its clock was set
        for chore in self._chores:
            if now < self._due.get(chore.name, 0):
                continue
            self._due[chore.name] = now + int(chore.seconds * 1000)
            try:
                if chore.everywhere or self._take(chore, now):
                    chore.run(Tick(self, now, self._awake_since))
            except Exception:
                log.exception("a chore failed", extra={"chore": chore.name})
        self._ticked_at = self.clock()  # what the chores themselves take is no gap

    def _take(self, chore: Chore, now: int) -> bool:
        """Whether this hub has the chore; its row is written anew when half of the time is over."""
        span = int(max(chore.seconds * 2, TICK_SECONDS * 6) * 1000)
        if self._held.get(chore.name, 0) - now > span // 2:
            return True
        with self.own_work() as tx:
            has_it = bool(tx.run("chore_take", name=chore.name, holder=self.id, until=now + span, now=now))
        self._held[chore.name] = now + span if has_it else 0
        return has_it

    def close(self) -> None:
        """Finish the call log and let go of the database; one that is stuck is left as it is."""
        if self.calls.close():
            self.store.close()
        else:
            log.error("the database is stuck; the call log's last rows are lost")


def _prune(tick: Tick) -> None:
    """Forget what is old."""
    keep = tick.settings
    with tick.hub.own_work() as tx:
        gone = prune(tx, tick.now, keep["events.keep_days"], keep["calls.keep_days"])
        tx.run("tokens_expired_prune", now=tick.now)
        tx.run("answers_prune", now=tick.now)
    log.debug("pruned", extra=gone)


def _answer(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """What the tool gives, as plain data; with an idempotency key it is done once, in one transaction."""
    tool, key = call.tool, given.pop(KEY, None)
    if key is None:
        return tool.dump(tool.handler(call, **given))
    with call.begin() as call.whole:
        return once(call.whole, key, given, lambda: tool.dump(tool.handler(call, **given)))


def _allow(tool: Tool, actor: Actor) -> None:
    if not actor.kinds & set(tool.who):
        raise Forbidden(
            f"{tool.name} is for {' and '.join(tool.who)}, and you are {_self(actor)}",
            hint="Ask one who may, or the operator.",
        )
    if actor.readonly and tool.changes:
        raise Forbidden(
            f"{tool.name} changes the hall, and this client is in the read-only profile",
            hint="Connect with another profile to make changes.",
        )


def _self(actor: Actor) -> str:
    return "the operator" if actor.kind == "operator" else f"{actor.role or 'agent'} {actor.id}"


def _acting(tool: Tool, actor: Actor, arguments: dict[str, Any]) -> dict[str, Any]:
    """No one acts as someone else: an agent is itself, the operator says whom it speaks for."""
    if tool.acting is None:
        return arguments
    given = arguments.get(tool.acting)
    if actor.kind == "agent":
        if given not in (None, actor.id):
            raise Forbidden(
                f"{tool.acting} is {given}, and your token is that of {actor.id}",
                hint=f"Leave {tool.acting} out, or give your own id.",
            )
        given = actor.id
    if given is None:
        raise InvalidInput(
            f"missing argument '{tool.acting}'",
            hint="A client without an agent's token says for which agent it speaks: agent_register gives an id. "
            "In messages you may be yourself: operator.",
        )
    return arguments | {tool.acting: given}


def refuse_unfit(arguments: Any) -> None:
    """Raise InvalidInput for what no database or wire can hold: NUL, lone surrogates, NaN, endless nesting."""
    level = [arguments]
    for _ in range(DEPTH):
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, str):
                _refuse_text(value)
            elif isinstance(value, dict):
                deeper += value.keys()
                deeper += value.values()
            elif isinstance(value, list):
                deeper += value
            elif isinstance(value, float) and not math.isfinite(value):
                raise InvalidInput(f"{value} is not a number that JSON has", hint="Send a finite number, or null.")
        if not deeper:
            return
        level = deeper
    raise InvalidInput(f"the arguments are nested deeper than {DEPTH} levels", hint="Send a flatter value.")


def _refuse_text(value: str) -> None:
    if "\0" in value:
        raise InvalidInput("a text holds a NUL character", hint="Take U+0000 out; no text in the hall may hold it.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidInput("a text holds half of a surrogate pair", hint="Send whole Unicode characters.") from None
