"""Some faults after another in one lab, and what the checker finds in the end."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.checker import Verdict, check
from tests.faults.kinds import Measured, measure
from tests.faults.lab import LEASE_SECONDS, Load, lab
from tests.faults.server import Server
from tests.faults.silent import hasty

HASTY_SECONDS = LEASE_SECONDS - 3  # a hub notes whom it heard every 2 s


@dataclass(frozen=True)
class Result:
    load: Load
    faults: list[Measured]
    claims: list[float]  # how long silent agents kept theirs
    verdict: Verdict
    outcomes: Counter[str]  # of all attempts of calls
    logs: str

    @property
    def name(self) -> str:
        hours = f", clock {self.load.hours:+d} h" if self.load.hours else ""
        claims = f", claims {max(self.claims):.0f} s" if self.claims else ""
        return ", ".join(dict.fromkeys(one.fault for one in self.faults)) + hours + claims

    @property
    def notes(self) -> str:
        """Each fault, what came of the calls that it left open, and what is wrong."""
        faults = [f"{one.fault}: gap {one.gap:.1f} s, left open {dict(one.pending)}" for one in self.faults]
        return "\n".join([f"{dict(self.outcomes)}", *faults, str(self.verdict)])


def try_faults(directory: Path, server: Server, load: Load, faults: Sequence[tuple[str, float]]) -> Result:
    directory.mkdir(parents=True, exist_ok=True)
    with lab(directory, server, load) as made:
        measured = [measure(made, name, seconds) for name, seconds in faults]
        last = made.settle()
        records = [*made.history.read(), *made.asked_twice]
        verdict = check(made.database, records, directory.glob("follower-*.jsonl"), last)
        verdict.add("hasty", hasty(made.database, records, HASTY_SECONDS))
        outcomes: Counter[str] = Counter(one.outcome for one in records)
        return Result(load, measured, made.longest_claims, verdict, outcomes, made.logs())
