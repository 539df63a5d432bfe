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
from bench.hubs.report import Key, Line, Lines, show, show_raw
from bench.hubs.worker import Worker

HERE = Path(__file__).resolve().parents[2]
WARM = 1.5  # seconds of the blocks that don't count
AT_FIRST = AGENTS * 100  # tasks for them
SPARE = 1.8  # times the tasks that would be needed at the pace of the warm blocks


class Side(Protocol):
    """What can work for a block."""

    def block(self, order: Order) -> Block: ...


class Run:
    """The cluster, the halls, and the processes that make load."""

    def __init__(self, hubs: list[int], edges: list[str], against: Path | None, seconds: float, rounds: int) -> None:
        self.hubs, self.edges, self.seconds, self.rounds = hubs, edges, seconds, rounds
        self.trees = {"now": HERE} | ({"before": against.resolve()} if against else {})
        self._open = ExitStack()
        self.idle: dict[str, float] = {}  # commits a second of a hall whose agents do nothing

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
        self.cluster.settle()
        counted, began = self._commits(), time.monotonic()
        rates = [{variant: self.raw.rate(variant) for variant in VARIANTS} for _ in range(self.rounds)]
        self.cluster.settle()
        took = time.monotonic() - began
        self.idle = {name: (count - counted[name]) / took for name, count in self._commits().items()}
        show_raw(rates)

    def _commits(self) -> dict[str, int]:
        return {name: self.cluster.commits(hall.database) for name, hall in self.halls.items()}

    def keys(self) -> list[Key]:
        """A block of each is a round."""
        halls = [Key(side, hubs, edge) for hubs in self.hubs for edge in self.edges for side in self.trees]
        return halls + [Key("floor", hubs) for hubs in self.hubs]

    def workload(self, workload: str) -> None:
        keys = self.keys()
        self._supply(workload, keys)
        for hall in self.halls.values():
            hall.analyze()
        self.cluster.settle()
        counted, began = self._commits(), time.monotonic()
        lines: Lines = {key: Line() for key in keys}
        raw: list[float] = []
        for number in range(self.rounds):
            raw.append(self.raw.rate("claim"))
            for key in keys if number % 2 else reversed(keys):
                lines[key].blocks.append(self.sides[key.side].block(self._order(workload, key, self.seconds)))
        self.cluster.settle()
        took = time.monotonic() - began
        grown = {name: count - counted[name] - self.idle[name] * took for name, count in self._commits().items()}
        writes = {name: sum(b.writes for k in keys if k.side == name for b in lines[k].blocks) for name in grown}
        show(workload, lines, {name: grown[name] / max(1, writes[name]) for name in grown}, raw)

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
