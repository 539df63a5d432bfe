"""
The context engine: it runs all sources that families declare at once, and fits their texts into a budget.

    sources ── a few threads ──▶ lines, or why there are none ──▶ rules_context: what fits

One that is slow, refuses or has a bug leaves its section out with a reason, and keeps no other back.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from crewhall.app import Call
from crewhall.errors import Failure, InvalidInput, TimedOut
from crewhall.families.project.family import ANSWERS, project
from crewhall.families.project.model_context import Missing, ProjectContext
from crewhall.families.project.rules_context import SourceText, fit, plain, visible
from crewhall.outside.files import Top
from crewhall.stop import Part
from crewhall.tool import Source, SourceLines

SECONDS = 5.0  # after which nobody waits for a source any more
THREADS = 6
AT_ONCE = 48
TICK = 0.05
TOO_LONG = "it took too long"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceResult:
    """What a source returned, or why it returned nothing."""

    content: SourceLines | None
    reason: str = ""


# Threads that query sources. One that is stuck keeps its place, so that they don't pile up.
SLOTS = project.state(lambda _: threading.BoundedSemaphore(AT_ONCE))
LATE = SourceResult(None, TOO_LONG)


def context_of(call: Call, top: Top, names: Sequence[str] | None, most: int) -> ProjectContext:
    """What there is to know about a worktree, in at most so many tokens.

    Raises InvalidInput for an unknown source, and what stops the call.
    """
    sources = select_sources(call.hub.registry.sources, names)
    with call.state(ANSWERS).call_scope(call.id):
        results = run_sources(call, top, sources)
    texts, missing = [], []
    for source in sources:
        result = results.get(source.name, LATE)
        if result.content is None:
            missing.append(Missing(name=source.name, reason=plain(result.reason)))
        else:
            lines, rest = tuple(map(plain, result.content.lines)), result.content.rest
            texts.append(SourceText(source.name, source.weight, lines, result.content.more, rest and plain(rest)))
    return fit(visible(top.root), texts, missing, most)


def select_sources(sources: Sequence[Source], names: Sequence[str] | None) -> list[Source]:
    """The sources of these names in their own order, or all. Raises InvalidInput for one that is not there."""
    known = [source.name for source in sources]
    for name in names or ():
        if name not in known:
            raise InvalidInput(f"there is no source '{name}'", hint=f"There are {', '.join(known)}.")
    return [source for source in sources if names is None or source.name in names]


def run_sources(call: Call, top: Top, sources: Sequence[Source]) -> dict[str, SourceResult]:
    """Run the sources: their results by name, without those that did not finish in time."""
    part = Part(call.stop, SECONDS)
    waiting, finished = deque(sources), SimpleQueue[tuple[str, SourceResult]]()
    look = replace(call, stop=part)
    for _ in sources[:THREADS]:
        threading.Thread(target=_run_waiting, args=(look, top, waiting, finished), name="source", daemon=True).start()
    results: dict[str, SourceResult] = {}
    while len(results) < len(sources) and part.seconds_left:
        call.stop.check()
        try:
            name, result = finished.get(timeout=TICK)
        except Empty:
            continue
        results[name] = result
    call.stop.check()
    return results


def _run_waiting(
    look: Call, top: Top, waiting: deque[Source], finished: "SimpleQueue[tuple[str, SourceResult]]"
) -> None:
    """In a thread: run one waiting source after the other, as long as there is time."""
    if not look.state(SLOTS).acquire(timeout=SECONDS):
        return
    try:
        while waiting and look.stop.seconds_left:
            source = waiting.popleft()
            finished.put((source.name, _run_source(look, top, source)))
    except IndexError:  # another thread was quicker
        pass
    finally:
        look.state(SLOTS).release()


def _run_source(look: Call, top: Top, source: Source) -> SourceResult:
    try:
        return SourceResult(source.handler(look, top))
    except TimedOut:
        return LATE
    except Failure as failure:
        return SourceResult(None, failure.message)
    except Exception:  # a bug in one source is no reason to tell nothing
        log.exception("a source of context failed", extra={"source": source.name})
        return SourceResult(None, "it failed; the hub's log says why")
