"""
Faults on hubs of one hall, as a table: `python -m tests.faults.run --fault stop --seconds 8 --hubs 2 --times 3`.

For each fault: the longest time without an acknowledged write of the agents at the hubs that it did not hit, their
longest call, and when all agents were back. Then what the checker found in all of them together.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.faults.checker import KINDS, Verdict, check, counted
from tests.faults.kinds import BY_PROXY, FAULTS, Measured, measure
from tests.faults.lab import Load, lab
from tests.faults.server import Server

HEAD = (
    *("fault", "hubs", "shape", "times", "gap, median", "gap, worst", "longest call"),
    *("writes", "back, median", "back, worst"),
)
CHECKED = ("acknowledged", *KINDS)


@dataclass(frozen=True)
class Result:
    load: Load
    seconds: float
    faults: list[Measured]
    verdict: Verdict
    outcomes: dict[str, int]


def try_faults(directory: Path, server: Server, load: Load, name: str, seconds: float, times: int) -> Result:
    """So many of one fault in a lab of their own, and what the checker finds in the end."""
    with lab(directory, server, load) as made:
        faults = [measure(made, name, seconds) for _ in range(times)]
        made.settle()
        records = made.history.read()
        verdict = check(made.database, records, directory.glob("follower-*.jsonl"))
        return Result(load, seconds, faults, verdict, dict(counted(records)))


def row(result: Result) -> list[str]:
    gaps, backs = ([getattr(one, name) for one in result.faults] for name in ("gap", "back"))
    numbers = (median(gaps), max(gaps), max(one.longest for one in result.faults))
    return [
        f"{result.faults[0].fault} {result.seconds:g} s",
        *(str(result.load.hubs), result.load.shape, str(len(result.faults))),
        *(f"{one:.1f} s" for one in numbers),
        str(sum(one.writes for one in result.faults)),
        *(f"{one:.1f} s" for one in (median(backs), max(backs))),
        str(result.verdict.acknowledged),
        *(str(len(result.verdict.found[kind])) for kind in KINDS),
    ]


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run")
    parser.add_argument("--fault", choices=sorted(FAULTS), action="append", required=True)
    parser.add_argument("--seconds", type=float, action="append", help="once for each fault, or one for all")
    parser.add_argument("--hubs", type=int, default=2)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--shape", choices=("many", "one"), default="many")
    parser.add_argument("--share", type=float, default=0.0, help="of an agent's tasks that are of another's workflow")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two tasks of an agent")
    parser.add_argument("--patience", type=float, default=5.0, help="seconds after which half of the agents go away")
    parser.add_argument("--hours", type=int, default=0, help="that the first hub's clock is off")
    parser.add_argument("--log", action="store_true", help="print what the hubs logged")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    asked = arguments(words)
    every = asked.seconds or [8.0]
    every = every * len(asked.fault) if len(every) == 1 else every
    print(line([*HEAD, *CHECKED]) + "\n" + line(["---"] * (len(HEAD) + len(CHECKED))), flush=True)
    is_sound = True
    with server_for_a_block() as server:
        for name, seconds in zip(asked.fault, every, strict=True):
            load = Load(
                *(asked.hubs, asked.agents, asked.shape, asked.share, asked.pause, asked.patience),
                through_proxies=name in BY_PROXY,
                hours=asked.hours,
            )
            with tempfile.TemporaryDirectory(prefix="crewhall-faults-", ignore_cleanup_errors=True) as directory:
                result = try_faults(Path(directory), server, load, name, seconds, asked.times)
                print(line(row(result)), flush=True)
                print(result.outcomes, [f"{one.gap:.1f}" for one in result.faults], file=sys.stderr)
                is_sound &= result.verdict.is_sound
                if not result.verdict.is_sound:
                    print(result.verdict, file=sys.stderr)
    return 0 if is_sound else 1


@contextmanager
def server_for_a_block() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
