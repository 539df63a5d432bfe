"""One run: halls and floors on one cluster, whose blocks take turns."""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, Self

from bench.hubs.block import Block, HallSide, Order, Watch
from bench.hubs.cluster import Cluster
from bench.hubs.floor import FloorSide
from bench.hubs.hall import AGENTS, Hall
from bench.hubs.raw import VARIANTS, Raw
from bench.hubs.report import Key, Line, Lines, Pair, show, show_raw
from bench.hubs.worker import Worker

HERE = Path(__file__).resolve().parents[2]
WARM = 1.5  # seconds of the blocks that don't count
AT_FIRST = AGENTS * 100  # tasks for them
SPARE = 1.8  # times the tasks that would be needed at the pace of the warm blocks


class Side(Protocol):
    """What can work for a block."""

    def block(self, order: Order) -> Block: ...


class Counting:
    """How many transactions end in each hall while a block of code runs, with time for backends to tell it."""

    def __init__(self, cluster: Cluster, halls: dict[str, Hall]) -> None:
        self._cluster, self._halls = cluster, halls

    def _count(self) -> dict[str, Pair]:
        self._cluster.settle()
        return {name: Pair(*self._cluster.ended(hall.database)) for name, hall in self._halls.items()}

    def __enter__(self) -> Self:
        self._before, self._began = self._count(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._after, self.took = self._count(), time.monotonic() - self._began

    def grown(self, name: str) -> Pair:
        return self._after[name] - self._before[name]


class Run:
    """The cluster, the halls, and the processes that make load."""

    def __init__(self, hubs: list[int], edges: list[str], against: Path | None, seconds: float, rounds: int) -> None:
        self.hubs, self.edges, self.seconds, self.rounds = hubs, edges, seconds, rounds
        self.trees = {"now": HERE} | ({"before": against.resolve()} if against else {})
        self._open = ExitStack()
        self.idle: dict[str, Pair] = {}  # transactions a second of a hall whose agents do nothing

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def _start(self) -> None:
        homes = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        self.cluster = Cluster()
        self._open.callback(self.cluster.stop)
        self.watch = Watch(self.cluster)
        self._open.callback(self.watch.sampler.close)
        self.client = Worker("bench.hubs.client")
        self._open.callback(self.client.stop)
        self.halls = {name: self._hall(name, tree, homes, max(self.hubs)) for name, tree in self.trees.items()}
        for hall in self.halls.values():
            hall.furnish()
        self.sides: dict[str, Side] = {
            name: HallSide(hall, self.watch, self.client) for name, hall in self.halls.items()
        }
        self._start_floors(homes)

    def _start_floors(self, homes: Path) -> None:
        self.raw = Raw(self.cluster)
        self._open.callback(self.raw.close)
        hall = self.halls["floor"] = self._hall("floor", HERE, homes, 1)
        hall.furnish()
        floor = self.sides["floor"] = FloorSide(hall, self.watch)
        self._open.callback(floor.stop)
        floor.record()

    def _hall(self, name: str, tree: Path, homes: Path, hubs: int) -> Hall:
        hall = Hall(name, tree, self.cluster.create(f"hall_{name}"), homes, hubs)
        self._open.callback(hall.stop)
        return hall

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def prepare(self) -> None:
        """Measure the raw claim, and count meanwhile what hubs commit by themselves."""
        with Counting(self.cluster, self.halls) as counting:
            rates = [{variant: self.raw.rate(variant) for variant in VARIANTS} for _ in range(self.rounds)]
        self.idle = {name: counting.grown(name) / counting.took for name in self.halls}
        show_raw(rates)

    def keys(self) -> list[Key]:
        """A block of each is a round."""
        halls = [Key(side, hubs, edge) for hubs in self.hubs for edge in self.edges for side in self.trees]
        return halls + [Key("floor", hubs) for hubs in self.hubs]

    def workload(self, workload: str) -> None:
        keys = self.keys()
        self._supply(workload, keys)
        for hall in self.halls.values():
            hall.analyze()
        lines: Lines = {key: Line() for key in keys}
        with Counting(self.cluster, self.halls) as counting:
            raw = [self._round(workload, lines, number % 2 == 1) for number in range(self.rounds)]
        show(workload, lines, {name: self._ended(name, counting, lines) for name in self.halls}, raw)

    def _round(self, workload: str, lines: Lines, is_odd: bool) -> float:
        """A block of each side; the rate of the raw claim."""
        rate = self.raw.rate("claim")
        for key in lines if is_odd else reversed(lines):
            lines[key].blocks.append(self.sides[key.side].block(self._order(workload, key, self.seconds)))
        return rate

    def _ended(self, name: str, counting: Counting, lines: Lines) -> Pair:
        """Transactions of a hall committed and rolled back for each write, without those of hubs that idle."""
        writes = sum(block.writes for key, line in lines.items() if key.side == name for block in line.blocks)
        return (counting.grown(name) - self.idle[name] * counting.took) / max(1, writes)

    def _order(self, workload: str, key: Key, seconds: float) -> Order:
        return Order(workload, key.edge, key.hubs, seconds)

    def _supply(self, workload: str, keys: list[Key]) -> None:
        """Warm everything up, and give each hall tasks for all its blocks, as its pace then needs them."""
        if workload == "messages":
            for key in keys:
                self.sides[key.side].block(self._order(workload, key, WARM))
            return
        for name, hall in self.halls.items():
            hall.supply(AT_FIRST, one=workload == "drain-one")
            warm = [self.sides[name].block(self._order(workload, key, WARM)) for key in keys if key.side == name]
            blocks = len(warm) * self.rounds * self.seconds
            pace = max(block.rate for block in warm) / (1 if workload == "claims" else 4)
            hall.supply(max(AGENTS, int(pace * blocks * SPARE)), one=workload == "drain-one")
