"""
`crewhall selftest`: is what was acknowledged stored, and stored once?

    N clients, each its own `crewhall mcp` ── create, plan, claim, message, all at once ──▶ one hub on a throw-away hall
    then, without the hub: what it acknowledged against what the database holds
"""

import math
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from crewhall.config import Settings
from crewhall.edges.cli import render
from crewhall.edges.cli.selftest_clients import OPERATIONS, OperationTally, Pair, Say, clients_of, open_store, race
from crewhall.edges.cli.throwaway import throwaway
from crewhall.errors import InvalidInput
from crewhall.store.transaction import Tx

LIMITS = {"writers": (8, 64), "each": (50, 1000)}  # what is taken without the word, and the most
WORDS = {"refused": "errors", "lost": "lost", "doubled": "doubled"}


def numbers(options: Mapping[str, str]) -> tuple[int, int]:
    """How many writers, and how often each. Raises InvalidInput."""
    values = []
    for name, (usual, most) in LIMITS.items():
        raw = options.get(name, str(usual))
        if not (raw.isascii() and raw.isdigit() and 1 <= int(raw[:9]) <= most):
            raise InvalidInput(f"--{name} is '{raw}'", hint=f"Give a whole number from 1 to {most}; {usual} is usual.")
        values.append(int(raw))
    return values[0], values[1]


def measure(settings: Settings, writers: int, each: int, say: Say) -> dict[str, Any]:
    """The figures of a run, which leaves the real hall as it is and nothing else behind. Raises Unavailable."""
    run = f"selftest-{os.urandom(6).hex()}"
    with _stopped_once(), throwaway(settings) as hall:
        say(f"selftest: {hall.about}")
        with ThreadPoolExecutor(writers) as threads, clients_of(hall, writers) as clients:
            tallies, seconds = race(run, clients, each, threads, hall, say)
        hubs = len(hall.hubs())
        hall.end_hubs()
        with closing(open_store(hall)) as store:
            damage = store.check()
            with store.read() as tx:
                stored = {name: _stored_pairs(tx, name, run) for name in OPERATIONS}
    operations = [_figures(name, tallies[name], stored[name], seconds) for name in OPERATIONS]
    sums = {name: sum(row[name] for row in operations) for name in ("acknowledged", "refused", "lost", "doubled")}
    about = {"hall": hall.about, "writers": writers, "each": each, "hubs": hubs, "seconds": round(seconds, 3)}
    passed = hubs == 1 and damage is None and not (sums["refused"] or sums["lost"] or sums["doubled"])
    return about | {"operations": operations, **sums, "damage": damage, "passed": passed}


def figures_text(figures: Mapping[str, Any]) -> str:
    """The figures for a person: a table, and a line that says how it went."""
    rows = [
        row | {"codes": ", ".join(f"{code} {count}" for code, count in row["codes"].items()) or None}
        for row in figures["operations"]
    ]
    changes = f"{figures['acknowledged']} acknowledged changes in {figures['seconds']:.1f} s"
    faults = [f"{figures[name]} {word}" for name, word in WORDS.items() if figures[name]]
    faults += [f"{figures['hubs']} hubs instead of one"] if figures["hubs"] != 1 else []
    faults += [f"the file is damaged: {figures['damage']}"] if figures["damage"] else []
    verdict = f"FAILED: {', '.join(faults)}; {changes}"
    if figures["passed"]:
        verdict = f"passed: 0 errors, 0 lost, 0 doubled; {changes}, each stored once"
    head = f"{figures['writers']} writers, each {figures['each']} times, on {figures['hall']}"
    return f"{head}\n\n{render.table(rows)}\n\n{verdict}"


@contextmanager
def _stopped_once() -> Iterator[None]:
    """SIGTERM stops it as Ctrl-C does; what comes while it cleans up is not heard."""
    both = (signal.SIGINT, signal.SIGTERM)

    def stop(*_: object) -> None:
        for number in both:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in both}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# What was acknowledged against what is stored


@dataclass(frozen=True)
class Comparison:
    """How many are stored, acknowledged but lost, and stored or acknowledged more than once."""

    stored: int
    lost: int
    doubled: int


def compare(acknowledged: Sequence[Pair], stored: Sequence[Pair]) -> Comparison:
    """How many acknowledged pairs are not stored, and how many more than one a request has of either."""
    there = set(stored)
    lost = sum(pair not in there for pair in acknowledged)
    most = Counter(asked for asked, _ in acknowledged) | Counter(asked for asked, _ in stored)
    return Comparison(len(stored), lost, most.total() - len(most))


def _stored_pairs(tx: Tx, operation: str, run: str) -> list[Pair]:
    return [(row["asked"], row["told"]) for row in tx.all(f"selftest_{operation}s", run=run)]


def _figures(operation: str, tally: OperationTally, stored: Sequence[Pair], seconds: float) -> dict[str, Any]:
    times = sorted(tally.seconds)
    comparison = compare(tally.acknowledged, stored)
    return {
        "operation": operation,
        "acknowledged": len(tally.acknowledged),
        "stored": comparison.stored,
        "lost": comparison.lost,
        "doubled": comparison.doubled,
        "refused": tally.codes.total(),
        "codes": dict(tally.codes),
        "taken_by_others": tally.taken_by_others if operation == "claim" else None,
        "p50_ms": _at(times, 0.50),
        "p99_ms": _at(times, 0.99),
        "max_ms": _at(times, 1.0),
        "per_second": round(len(tally.acknowledged) / seconds),
    }


def _at(times: Sequence[float], share: float) -> float | None:
    """Milliseconds within which this share of the answers came."""
    return round(times[math.ceil(len(times) * share) - 1] * 1000, 1) if times else None
