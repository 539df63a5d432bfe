"""
The one door: every call from every edge is `Hub.call(name, arguments, actor)`.

    find the tool ─▶ may the actor? ─▶ parse ─▶ handler, with a Call in its hand ─▶ plain data
                                         every way out leaves a row in the call log
"""

import itertools
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from crewhall import identity
from crewhall.app.call import NOWHERE, Call, Origin, Progress
from crewhall.app.checks import refuse_unallowed, refuse_unstorable, with_acting_agent
from crewhall.app.chores import Chores
from crewhall.app.hub_process import HubProcess
from crewhall.app.teller import Teller
from crewhall.bindings import Bindings, BoundAgent
from crewhall.config import Settings
from crewhall.declaration import KEY
from crewhall.errors import Failure, Unavailable
from crewhall.idempotency import run_once
from crewhall.identity import Actor, Credentials, TokenChanged, TokenMemory
from crewhall.journal import Journal
from crewhall.meter import Meter
from crewhall.outages import Outages
from crewhall.outside.disk import has_entries
from crewhall.presence import Presence
from crewhall.stop import Stop
from crewhall.store.calls import CallLog
from crewhall.store.open import open_store
from crewhall.store.sql import Queries, texts_in
from crewhall.store.transaction import Store, Tx, Work
from crewhall.tool import Registry, State, StateT, Tool

# Families whose tools do nothing outside the database before their first look at it, which proves who calls. In all
# others the caller is proven first.
DATABASE_FIRST = frozenset({"work"})
AGENT_ID = re.compile(r"ag_[0-9a-z]{12}")
log = logging.getLogger(__name__)


class Hub:
    """A hall's running server: its store, its tools, its settings, its clock."""

    def __init__(self, settings: Settings, registry: Registry, *, clock: Callable[[], int] | None = None) -> None:
        self.settings = settings
        self.registry = registry
        texts = [*texts_in("crewhall"), *(family.queries for family in registry.families)]
        self.store: Store = open_store(settings.database, Queries(texts), settings["database.pool"])
        self.clock = clock or self.store.now
        self.id = identity.new_id("hu")
        self.process = HubProcess(self.id, settings.node)
        self.outages = Outages()
        self.calls = CallLog(self.store, self.outages)
        self.journal = Journal(self.store, self.clock)
        self.meter = Meter(tool.name for tool in registry.tools)
        self.presence = Presence()
        self.tokens = TokenMemory()
        self.bindings = Bindings()
        self.teller = Teller(self)
        self._run_directories = str(settings.instances)
        self._states: dict[State[Any], Any] = {}
        self._states_lock = threading.Lock()
        self.before_commit: Callable[[], None] = lambda: None
        self._numbers = itertools.count(1)
        self.chores = Chores(self)
        self._settle()

    def _settle(self) -> None:
        """What every hall has from its first start on: its own id."""
        with self.own_work() as tx:
            tx.run("hall_found", id=identity.new_id("ha"))

    def state(self, state: State[StateT]) -> StateT:
        """What a family declared that each hub keeps in memory: this hub's own."""
        with self._states_lock:
            if state not in self._states:
                self._states[state] = state.make(self.settings)
            kept: StateT = self._states[state]
        return kept

    @contextmanager
    def own_work(self) -> Iterator[Tx]:
        """A transaction of the hub itself, for what no tool does."""
        with self.store.write(Work("operator", None, self.clock())) as tx:
            yield tx

    def identify(self, credentials: Credentials) -> Actor:
        """The actor behind a request. Raises Unauthorized."""
        sender = credentials.sender
        if sender is not None and not self.knows_sender(credentials):
            sender.trace(self.store, self.settings.node)
        elif sender is not None and not sender.is_known:
            credentials = replace(credentials, sender=None)  # no instance lives here: a hall that hangs is not asked
        if credentials.needs_no_look:
            return identity.OPERATOR
        return identity.identify(self.store, credentials, self.clock(), self.tokens)

    def guess(self, credentials: Credentials) -> Actor | None:
        """The actor that the token of these credentials stood for: its call looks whether it still does.

        None where that would save nothing, and where the sender may be an instance, which counts for more than a token.
        """
        if self.store.is_local or credentials.token is None or not self.knows_sender(credentials):
            return None
        sender = credentials.sender
        is_nobodys = sender is None or not sender.is_known or sender.instance is None
        return self.tokens.guess(credentials.token) if is_nobodys else None

    def knows_sender(self, credentials: Credentials) -> bool:
        """Whether no process has to be searched for to identify a request: that may take some milliseconds."""
        sender = credentials.sender
        return sender is None or sender.is_known or not self._may_have_instances()

    def _may_have_instances(self) -> bool:
        """Whether instances may live on this node; the hall itself is not asked, for it may hang.

        Another hub may have started one just now: its run directory is there before its program runs.
        """
        return bool(self.presence.instances) or has_entries(self._run_directories)

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
        tool: Tool | None = None,
        told: list[str] | None = None,
    ) -> dict[str, Any]:
        """Do what the tool does and return its result as plain data. An edge may hand the tool on. Raises Failure.

        An edge that gives the list `told` has an agent's notices in the answer, and their ids in that list.
        """
        tool = tool or self.registry.find(name)
        stop = stop or Stop(self.seconds_for(tool))
        with self.meter.measure(tool.name):
            try:
                return self._do(self._new_call(tool, actor, edge, stop, progress, origin, told), arguments)
            except TokenChanged:  # and so nothing was done
                actor = self._renew_actor(actor)
                return self._do(self._new_call(tool, actor, edge, stop, progress, origin, told), arguments)

    def _new_call(
        self,
        tool: Tool,
        actor: Actor,
        edge: str,
        stop: Stop,
        progress: Progress | None,
        origin: Origin,
        told: list[str] | None,
    ) -> Call:
        call_id = f"{self.id}.{next(self._numbers)}"
        return Call(self, tool, actor, edge, stop, progress, self.clock(), call_id, origin, told=told)

    def _renew_actor(self, actor: Actor) -> Actor:
        """The actor that the token of a wrong guess stands for. Raises Unauthorized."""
        assert actor.unproven is not None
        found = identity.by_hash(self.store, actor.unproven.hash, self.clock(), self.tokens)
        return found.reading_only() if actor.readonly else found

    def seconds_for(self, tool: Tool) -> float | None:
        """How long a call of the tool may take; None where it sees to that itself."""
        return None if tool.pace == "own" else self.settings["tool.timeout"]

    def _do(self, call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The call itself; every way out leaves a row in the call log."""
        tool, actor = call.tool, call.actor
        error: str | None = "INTERNAL"
        try:
            if tool.family not in DATABASE_FIRST or tool.pace not in ("quick", "short"):
                call.prove()
            if tool.notes is not None:
                tool.notes(call, arguments)
            refuse_unallowed(tool, actor)
            refuse_unstorable(arguments)
            call.behind = self._agents_behind(call)
            call.bound = next(iter(call.behind.values())) if len(call.behind) == 1 else None
            given = with_acting_agent(tool, actor, tool.parse(arguments), call.agent_id)
            call.named = _named_agent(tool, actor, given)
            if actor.unproven is None:
                self._note_presence(call, given)
            else:
                call.once_proven = lambda: self._note_presence(call, given)
            body = _answer(call, given)
            call.prove()
            error = None
        except Failure as failure:
            error = failure.code
            if not isinstance(failure, Unavailable):
                call.prove()  # whoever has no good token hears no other refusal
                failure.fields |= call.tell(failure.fields)
            raise
        except TokenChanged:
            call.in_log, error = True, None  # it is made again
            raise
        finally:
            if error is not None or not call.in_log:
                self.calls.put(call.log_row(error))
        told = call.tell(body)
        return body | told if told else body

    def _agents_behind(self, call: Call) -> Mapping[str, BoundAgent]:
        """The agents for which a client without a token speaks by its bridge."""
        if call.actor.proof != "local" or call.origin.bridge is None:
            return {}
        return self.bindings.agents(self.store, call.origin.bridge, call.origin.process or "")

    def _note_presence(self, call: Call, given: Mapping[str, Any]) -> None:
        """A call of an agent is a sign of life; that a person looks at one in the dashboard is none.

        By its token an agent is known to be behind the bridge. Whoever names one may be another, such as a coordinator.
        """
        if call.agent_id is not None:
            self.presence.note_call(call.agent_id, call.origin.bridge, call.now)
        if call.named is not None and call.named != call.agent_id:
            self.presence.note_call(call.named, None, call.now)

    def close(self) -> None:
        """Finish the call log and let go of the database; one that is stuck is left as it is."""
        if self.calls.close():
            self.store.close()
        else:
            log.error("the database is stuck; the call log's last rows are lost")


def _named_agent(tool: Tool, actor: Actor, given: Mapping[str, Any]) -> str | None:
    """The agent as which a client without a token says that it acts; other words, such as operator, name none."""
    name = given[tool.acting] if tool.acting is not None and actor.proof == "local" else None
    return name if name is not None and AGENT_ID.fullmatch(name) else None


def _answer(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """What the tool gives, as plain data; with an idempotency key it is done once, in one transaction."""
    tool, key = call.tool, given.pop(KEY, None)
    if key is None:
        return tool.dump(tool.handler(call, **given))
    with call.begin() as call.whole:
        return run_once(call.whole, key, given, call.actor.id, lambda: tool.dump(tool.handler(call, **given)))
