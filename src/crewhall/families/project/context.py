"""
The context engine: all sources that families declare are asked at once, and what they tell is put into a budget.

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
from crewhall.families.project.rules_context import Heard, fitted, plain, visible
from crewhall.outside.files import open_root
from crewhall.stop import Part
from crewhall.tool import Source, SourceText

SECONDS = 5.0  # after which nobody waits for a source any more
THREADS = 6
AT_ONCE = 48
TICK = 0.05
TOO_LONG = "it took too long"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """What became of a source: what it told, or why it did not."""

    told: SourceText | None
    reason: str = ""


# Threads that query sources. One that is stuck keeps its place, so that they don't pile up.
SLOTS = project.state(lambda _: threading.BoundedSemaphore(AT_ONCE))
LATE = Answer(None, TOO_LONG)


def context_of(call: Call, root: str, names: Sequence[str] | None, most: int) -> ProjectContext:
    """What there is to know about a worktree, in at most so many tokens.

    Raises InvalidInput for an unknown source, InvalidState when the worktree is gone, and what stops the call.
    """
    sources = chosen(call.hub.registry.sources, names)
    with open_root(root):  # one that is gone is no worktree that has nothing to say
        pass
    with call.state(ANSWERS).call_scope(call.id):
        answers = asked(call, root, sources)
    heard, missing = [], []
    for source in sources:
        answer = answers.get(source.name, LATE)
        if answer.told is None:
            missing.append(Missing(name=source.name, reason=plain(answer.reason)))
        else:
            lines, rest = tuple(map(plain, answer.told.lines)), answer.told.rest
            heard.append(Heard(source.name, source.weight, lines, answer.told.more, rest and plain(rest)))
    return fitted(visible(root), heard, missing, most)


def chosen(sources: Sequence[Source], names: Sequence[str] | None) -> list[Source]:
    """The sources of these names in their own order, or all. Raises InvalidInput for one that is not there."""
    known = [source.name for source in sources]
    for name in names or ():
        if name not in known:
            raise InvalidInput(f"there is no source '{name}'", hint=f"There are {', '.join(known)}.")
    return [source for source in sources if names is None or source.name in names]


def asked(call: Call, root: str, sources: Sequence[Source]) -> dict[str, Answer]:
    """The answers by name; a source that did not answer in time is not among them."""
    part = Part(call.stop, SECONDS)
    waiting, heard = deque(sources), SimpleQueue[tuple[str, Answer]]()
    look = replace(call, stop=part)
    for _ in sources[:THREADS]:
        threading.Thread(target=_work, args=(look, root, waiting, heard), name="source", daemon=True).start()
    answers: dict[str, Answer] = {}
    while len(answers) < len(sources) and part.seconds_left:
        call.stop.check()
        try:
            name, answer = heard.get(timeout=TICK)
        except Empty:
            continue
        answers[name] = answer
    call.stop.check()
    return answers


def _work(look: Call, root: str, waiting: deque[Source], heard: "SimpleQueue[tuple[str, Answer]]") -> None:
    """In a thread: ask one source after the other, while there are any and there is time."""
    if not look.state(SLOTS).acquire(timeout=SECONDS):
        return
    try:
        while waiting and look.stop.seconds_left:
            source = waiting.popleft()
            heard.put((source.name, _answer(look, root, source)))
    except IndexError:  # another thread was quicker
        pass
    finally:
        look.state(SLOTS).release()


def _answer(look: Call, root: str, source: Source) -> Answer:
    try:
        return Answer(source.handler(look, root))
    except TimedOut:
        return LATE
    except Failure as failure:
        return Answer(None, failure.message)
    except Exception:  # a bug in one source is no reason to tell nothing
        log.exception("a source of context failed", extra={"source": source.name})
        return Answer(None, "it failed; the hub's log says why")
