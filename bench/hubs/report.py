"""The numbers of a workload, a line for each side: medians of blocks, and ratios inside one round."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.hubs.block import Block
from bench.hubs.samples import Waits

CORES = 16
SHARES = ("running", "hub's turn", "lock: row", "lock: events", "lock: notify", "disk", "LWLock")


@dataclass(frozen=True)
class Pair:
    """Transactions that were committed, and that were rolled back."""

    committed: float
    rolled_back: float

    def __sub__(self, other: "Pair") -> "Pair":
        return Pair(self.committed - other.committed, self.rolled_back - other.rolled_back)

    def __mul__(self, factor: float) -> "Pair":
        return Pair(self.committed * factor, self.rolled_back * factor)

    def __truediv__(self, divisor: float) -> "Pair":
        return self * (1 / divisor)

    def __str__(self) -> str:
        return f"{self.committed:.2f} + {self.rolled_back:.2f}"


@dataclass(frozen=True)
class Key:
    """One line: whose hubs, how many, and the edge."""

    side: str
    hubs: int
    edge: str = ""

    def __str__(self) -> str:
        return f"{self.side} {self.edge} {self.hubs}".replace("  ", " ")


@dataclass
class Line:
    """The blocks of a side."""

    blocks: list[Block] = field(default_factory=list)

    def median(self, value: Callable[[Block], float]) -> float:
        return statistics.median(value(block) for block in self.blocks)

    @property
    def rate(self) -> float:
        return self.median(lambda block: block.rate)

    def per_call(self, value: Callable[[Block], float]) -> float:
        """Milliseconds a call, failures not counted as calls."""
        return 1000 * self.median(lambda block: value(block) / max(1, len(block.done)))

    def per_write(self) -> float:
        """Processor milliseconds of hubs and database for each write, with the reads that go with it."""
        return 1000 * self.median(lambda block: (block.hubs + block.database) / max(1, block.writes))

    @property
    def waits(self) -> Waits:
        whole = Waits()
        for block in self.blocks:
            whole.add(block.waits)
        return whole

    def times(self) -> list[float]:
        return sorted(took for block in self.blocks for kind, _, took in block.done if kind == "write") or [0.0]

    def serial(self) -> float:
        """Milliseconds a write for which a lock is held that only one in the hall can have."""
        return 1000 * self.waits.is_held("any") / max(0.001, self.rate)

    def ceiling(self) -> float:
        """Writes a second on so many cores, by what is serial and by processor time."""
        serial, processor = self.serial(), self.per_write()
        return min(1000 / serial if serial else float("inf"), CORES * 1000 / max(0.001, processor))


Lines = dict[Key, Line]


def ratio(lines: Lines, one: Key, other: Key) -> str:
    """The median of the rounds' ratios, or a dash."""
    if other not in lines or one == other:
        return "-"
    pairs = zip(lines[one].blocks, lines[other].blocks, strict=True)
    return f"{statistics.median(a.rate / max(b.rate, 0.001) for a, b in pairs):.2f}"


def show(workload: str, lines: Lines, ended: dict[str, Pair], raw: list[float]) -> None:
    blocks = [block for line in lines.values() for block in line.blocks]
    others = statistics.median(block.others / block.seconds for block in blocks)
    print(f"\n{workload}: medians of {len(blocks) // len(lines)} blocks; others took {others:.2f} cores meanwhile")
    print(
        f"  {'':18}{'writes/s':>9}{'/before':>8}{'/floor':>7}{'/raw':>6}{'/fewest':>8}{'p50 ms':>8}{'p99 ms':>8}"
        f"{'hub':>7}{'db':>6}{'client':>7} ms CPU a call {'commits + rollbacks a write':>28}"
    )
    for key, line in lines.items():
        _rates(key, line, lines, ended, raw)
    print(f"  {'backends':18}{'busy':>6}" + "".join(f"{name:>14}" for name in SHARES))
    for key, line in lines.items():
        waits = line.waits
        print(f"  {key!s:18}{waits.busy:6.1f}" + "".join(f"{waits.share(name):14.0%}" for name in SHARES))
    _serial(lines)
    _failures(lines)


def show_raw(rates: list[dict[str, float]]) -> None:
    """The raw claims of some rounds, against the plain one of the same round."""
    print("\nraw claims by pgbench, in one message each unless it says otherwise")
    for name in rates[0]:
        ratio = statistics.median(one[name] / one["claim"] for one in rates)
        print(f"  {name:32}{statistics.median(one[name] for one in rates):8.0f}/s {ratio:8.2f}")


def _rates(key: Key, line: Line, lines: Lines, ended: dict[str, Pair], raw: list[float]) -> None:
    times = line.times()
    before, floor = Key("before", key.hubs, key.edge), Key("floor", key.hubs)
    fewest = Key(key.side, min(one.hubs for one in lines), key.edge)
    by_raw = f"{statistics.median(b.rate / rate for b, rate in zip(line.blocks, raw, strict=True)):.2f}"
    cpu = (line.per_call(lambda block: block.hubs), line.per_call(lambda block: block.database))
    print(
        f"  {key!s:18}{line.rate:9.0f}{ratio(lines, key, before):>8}{ratio(lines, key, floor):>7}{by_raw:>6}"
        f"{ratio(lines, key, fewest):>8}{times[len(times) // 2] * 1e3:8.1f}{times[int(len(times) * 0.99)] * 1e3:8.1f}"
        f"{cpu[0]:7.2f}{cpu[1]:6.2f}{line.per_call(lambda block: block.clients):7.2f} {'':14}{ended[key.side]!s:>28}"
    )


def _serial(lines: Lines) -> None:
    print(f"  {'part of the time':18}{'events held':>12}{'notify held':>12}{'row waited':>12}", end="")
    print(f"{'serial ms/write':>17}{'CPU ms/write':>14}{f'ceiling, {CORES} cores':>20}")
    for key, line in lines.items():
        held = [line.waits.is_held(lock) for lock in ("events", "notify", "row")]
        print(f"  {key!s:18}" + "".join(f"{part:12.0%}" for part in held), end="")
        print(f"{line.serial():17.2f}{line.per_write():14.2f}{line.ceiling():18.0f}/s")


def _failures(lines: Lines) -> None:
    for key, line in lines.items():
        for block in line.blocks:
            for what, count in block.failures.items():
                print(f"  {key}: {count} failed: {what}")
