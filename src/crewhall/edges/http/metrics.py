"""
What a machine that watches a hub asks: what has it counted, and is it well?

    GET /metrics   Prometheus's text format 0.0.4    for every actor, as all routes are
    GET /healthz   200 ok, or 503 and a reason       for anyone, because it tells nothing else

Neither waits for a database that hangs: after two seconds `/metrics` answers without the numbers of events, and
`/healthz` with 503.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import accumulate
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from crewhall import __version__
from crewhall.app import Hub
from crewhall.edges.http.guard import credentials
from crewhall.edges.http.health import WriteProbe
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.errors import Failure
from crewhall.meter import BUCKETS, Tally
from crewhall.store.events import newest_seen

PATIENCE_SECONDS = 2.0
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
FRESH = {"Cache-Control": "no-store"}
BOUNDS = (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

AnswerT = TypeVar("AnswerT")
Sample = tuple[str, Mapping[str, str], float]  # what its name ends with, its labels, its value


class Metrics:
    def __init__(
        self, dispatcher: Dispatcher, connections: Mapping[str, Callable[[], int]], position: Callable[[], int]
    ) -> None:
        """`connections`: how many of each kind are open; `position`: the newest event that watchers were told of.

        Both are asked on the event loop, for each scrape.
        """
        self.dispatcher = dispatcher
        self._connections = connections
        self._position = position
        self._newest = SharedQuery(dispatcher.thread, lambda: newest_number(dispatcher.hub))
        self._crew = SharedQuery(dispatcher.thread, lambda: crew_metrics(dispatcher.hub))
        self._change = SharedQuery(dispatcher.like_a_call, WriteProbe(dispatcher.hub).gets_through)

    def routes(self) -> list[Route]:
        return [Route("/metrics", self._metrics), Route("/healthz", self._health)]

    async def _metrics(self, request: Request) -> Response:
        await self.dispatcher.actor(credentials(request.scope, self.dispatcher.hub.settings))
        position = self._position()  # before the newest number, so that it is not ahead of it
        newest = await self._newest.answer()
        lag = None if newest is None else max(0, newest - position)  # ahead of all as long as nobody watches
        opened: list[Sample] = [("", {"kind": kind}, count()) for kind, count in self._connections.items()]
        text = (
            hub_metrics(self.dispatcher.hub)
            + metric("crewhall_open_connections", "gauge", "Connections that are open now.", opened)
            + metric("crewhall_events_newest", "gauge", "The newest event's number.", single(newest))
            + metric("crewhall_event_lag", "gauge", "Events that this hub's watchers do not know yet.", single(lag))
            + (await self._crew.answer() or "")
        )
        return Response(text, headers=FRESH, media_type=TEXT_FORMAT)

    async def _health(self, request: Request) -> JSONResponse:
        reason = await self._trouble()
        if reason is None:
            return JSONResponse({"status": "ok"}, headers=FRESH)
        return JSONResponse({"status": "unavailable", "reason": reason}, 503, FRESH)

    async def _trouble(self) -> str | None:
        """Why a change would not get through now, or None."""
        if self.dispatcher.is_stopping:
            return "the hub is stopping"
        answer = await self._change.answer()
        if answer is None:
            return f"no answer within {PATIENCE_SECONDS:g} s"
        return None if answer else "the database takes no changes"


class SharedQuery(Generic[AnswerT]):
    """A query in a worker thread, once at a time: all that wait for it share one result and one thread."""

    def __init__(self, run: Callable[[Callable[[], AnswerT]], Awaitable[AnswerT]], ask: Callable[[], AnswerT]) -> None:
        self._run = run
        self._ask = ask
        self._asking: asyncio.Future[AnswerT] | None = None

    async def answer(self) -> AnswerT | None:
        """The result, or None if it does not come in time; the thread goes on waiting for it."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._run(self._ask))
        asking = self._asking
        await asyncio.wait((asking,), timeout=PATIENCE_SECONDS)
        return asking.result() if asking.done() else None


def newest_number(hub: Hub) -> int | None:
    """The newest event's number, or None when the database cannot be read."""
    try:
        return newest_seen(hub.store)
    except Failure:
        return None


def crew_metrics(hub: Hub) -> str:
    """Instances and operations of the hall, in the text format; empty when the database cannot be read."""
    try:
        with hub.store.read() as tx:
            rows, began = tx.all("instances_by_status"), tx.value("operation_oldest")
            ended = tx.all("instances_by_end")
            reviews, refusals = tx.all("reviews_by_outcome"), int(tx.value("review_refusals_total"))
    except Failure:
        return ""
    counts: list[Sample] = [("", {"status": row["status"]}, row["total"]) for row in rows]
    ends: list[Sample] = [("", {"how": row["how"]}, row["total"]) for row in ended]
    rounds: list[Sample] = [("", {"outcome": row["outcome"]}, int(row["total"])) for row in reviews]
    took = sum(float(row["took_ms"]) for row in reviews) / 1000
    age = 0.0 if began is None else max(0, hub.clock() - began) / 1000
    return (
        metric("crewhall_instances", "gauge", "Instances of the hall by status.", counts)
        + metric("crewhall_instances_ended", "gauge", "Instances whose process has ended, by how.", ends)
        + metric("crewhall_operation_oldest_seconds", "gauge", "Age of the oldest operation under way.", single(age))
        + metric("crewhall_reviews", "gauge", "Rounds of review by how they came out.", rounds)
        + metric("crewhall_review_seconds", "gauge", "Time that rounds which are over took together.", single(took))
        + metric("crewhall_review_refusals", "gauge", "Requests for a review refused at the limit.", single(refusals))
    )


def hub_metrics(hub: Hub) -> str:
    """What the hub itself has counted, in the text format."""
    tallies = hub.meter.tallies()
    info = {"version": __version__, "hub": hub.id, "database": hub.store.dialect.name}
    ended: list[Sample] = [
        ("", {"tool": tool, "outcome": outcome}, count)
        for tool, tally in tallies.items()
        for outcome, count in tally.outcomes.items()
    ]
    times = [sample for tool, tally in tallies.items() for sample in histogram(tool, tally)]
    chores = hub.chores.records.values()
    runs: list[Sample] = [("", {"chore": one.name, "outcome": "failed"}, one.failures) for one in chores]
    runs += [("", {"chore": one.name, "outcome": "ok"}, one.runs - one.failures) for one in chores]
    took: list[Sample] = [("", {"chore": one.name}, (one.duration_ms or 0) / 1000) for one in chores if one.runs]
    running: list[Sample] = [("", {"chore": one.name}, int(one.is_running)) for one in chores]
    unknown: list[Sample] = [("", {"reason": reason}, count) for reason, count in hub.meter.unknown.items()]
    lost, began = single(hub.calls.dropped), single(hub.meter.started_at)
    return (
        metric("crewhall_info", "gauge", "Which hub this is.", [("", info, 1)])
        + metric("process_start_time_seconds", "gauge", "When the hub started, in seconds since 1970.", began)
        + metric("crewhall_calls_total", "counter", "Calls that have ended, by their outcome.", ended)
        + metric("crewhall_call_seconds", "histogram", "How long calls took.", times)
        + metric("crewhall_calls_running", "gauge", "Calls that run now.", single(hub.meter.running))
        + metric("crewhall_calls_unknown_total", "counter", "Calls whose client can't know if they happened.", unknown)
        + metric("crewhall_chore_runs_total", "counter", "Runs of chores, by how they ended.", runs)
        + metric("crewhall_chore_last_seconds", "gauge", "How long the last run of a chore took.", took)
        + metric("crewhall_chore_running", "gauge", "Whether a chore runs now.", running)
        + metric("crewhall_calls_not_logged_total", "counter", "Calls that the call log has lost.", lost)
    )


def histogram(tool: str, tally: Tally) -> list[Sample]:
    """The times of a tool's calls; nothing for one that was never called, because a histogram is twenty lines."""
    if not any(tally.buckets):
        return []
    counts = list(accumulate(tally.buckets))
    buckets: list[Sample] = [
        ("_bucket", {"tool": tool, "le": bound}, count) for bound, count in zip(BOUNDS, counts, strict=True)
    ]
    return [*buckets, ("_sum", {"tool": tool}, tally.seconds), ("_count", {"tool": tool}, counts[-1])]


def single(value: float | None) -> list[Sample]:
    """The one sample of a metric without labels; none for a value that is not known."""
    return [] if value is None else [("", {}, value)]


def metric(name: str, kind: str, about: str, samples: Iterable[Sample]) -> str:
    """One metric in the text format."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{suffix}{_labels(labels)} {value!r}" for suffix, labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{value.translate(ESCAPED)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""
