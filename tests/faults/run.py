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
from pathlib import Path
from statistics import median

from tests.faults.checker import KINDS
from tests.faults.kinds import BY_PROXY, FAULTS
from tests.faults.lab import Load
from tests.faults.server import Server
from tests.faults.session import Result, try_faults

MEASURED = ("gap, median", "gap, worst", "longest call", "writes", "back, median", "back, worst")
HEAD = ("fault", "hubs", "shape", "times", *MEASURED, "acknowledged", *KINDS)


def row(result: Result) -> list[str]:
    gaps, backs = ([getattr(one, name) for one in result.faults] for name in ("gap", "back"))
    longest = max(one.longest for one in result.faults)
    return [
        *(result.name, str(result.load.hubs), result.load.shape, str(len(result.faults))),
        *(f"{one:.1f} s" for one in (median(gaps), max(gaps), longest)),
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
    parser.add_argument("--seconds", type=float, action="append", help="for each fault, or one for all (8)")
    parser.add_argument("--hubs", type=int, default=2)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--times", type=int, default=1, help="of each fault, in one lab")
    parser.add_argument("--shape", choices=("many", "one"), default="many")
    parser.add_argument("--share", type=float, default=0.0, help="of an agent's tasks that are of another's workflow")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two tasks of an agent")
    parser.add_argument("--patience", type=float, default=5.0, help="seconds after which half of the agents go away")
    parser.add_argument("--hours", type=int, default=0, help="that the first hub's clock is off")
    parser.add_argument("--keep", type=Path, help="a directory for the histories and the hubs' logs")
    return parser.parse_args(words)


def plans(asked: argparse.Namespace) -> Iterator[tuple[Load, str, float]]:
    """Each fault, its seconds, and the lab that it needs."""
    every = asked.seconds or [8.0]
    every = every * len(asked.fault) if len(every) == 1 else every
    for name, seconds in zip(asked.fault, every, strict=True):
        how = (asked.hubs, asked.agents, asked.shape, asked.share, asked.pause, asked.patience)
        yield Load(*how, through_proxies=name in BY_PROXY, hours=asked.hours), name, seconds


@contextmanager
def directories(kept: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="crewhall-faults-", ignore_cleanup_errors=True) as directory:
        yield kept or Path(directory)


def main(words: Sequence[str]) -> int:
    asked = arguments(words)
    print(line(HEAD) + "\n" + line(["---"] * len(HEAD)), flush=True)
    is_sound, server = True, Server()
    try:
        with directories(asked.keep) as top:
            for number, (load, name, seconds) in enumerate(plans(asked)):
                result = try_faults(top / str(number), server, load, [(name, seconds)] * asked.times)
                print(line(row(result)), flush=True)
                print(result.notes, file=sys.stderr)
                is_sound = is_sound and result.verdict.is_sound
    finally:
        server.stop()
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
