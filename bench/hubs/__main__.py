"""
Hubs on one PostgreSQL: what each adds, against an older tree and two floors, which take turns in one run.

    python -m bench.hubs [WORKLOAD…] [--hubs 1,2,4] [--edge rest,mcp] [--against TREE] [--seconds 3] [--rounds 3]

    drain-many  32 agents take tasks to their end in five calls (look, claim, in_progress, completed, a message),
                each in workflows of its own
    drain-one   the same, all in one workflow
    claims      task_claim of fresh tasks alone
    messages    message_send alone
"""

import argparse
import os
import sys
from pathlib import Path

from bench.hubs.calls import WORKLOADS
from bench.hubs.run import Run


def main(words: list[str]) -> None:
    given = parser().parse_args(words)
    print(f"{os.cpu_count()} cores, {quiet()}, PostgreSQL with fsync, {given.rounds} rounds of {given.seconds} s")
    with Run(given.hubs, given.edge, given.against, given.seconds, given.rounds) as run:
        run.prepare()
        for workload in given.workloads or WORKLOADS:
            run.workload(workload)
    print(f"\nat the end: {quiet()}")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.hubs")
    made.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    made.add_argument("--hubs", type=_numbers, default=[1, 2, 4])
    made.add_argument("--edge", type=lambda raw: raw.split(","), default=["rest"])
    made.add_argument("--against", type=Path, help="an older checkout")
    made.add_argument("--seconds", type=float, default=3.0)
    made.add_argument("--rounds", type=int, default=3)
    return made


def _numbers(raw: str) -> list[int]:
    return [int(one) for one in raw.split(",")]


def quiet() -> str:
    """How busy the machine was in the last minute."""
    return f"load {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])
