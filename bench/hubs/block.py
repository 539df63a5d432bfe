"""One block: a side works for some seconds while its processors and the database's locks are watched."""

from collections import Counter
from dataclasses import asdict, dataclass, field

from bench.hubs.cluster import Cluster, cpu, cpu_of_all
from bench.hubs.hall import Agent, Hall, spread
from bench.hubs.samples import Sampler, Waits
from bench.hubs.worker import Answer, Done, Worker


@dataclass(frozen=True)
class Order:
    """What a block does."""

    workload: str
    edge: str
    hubs: int
    seconds: float


@dataclass
class Block:
    """What came of one. Processor seconds are the hubs' (or the floor's), the database's and the clients'."""

    seconds: float
    done: list[Done]
    failures: dict[str, int]
    waits: Waits
    hubs: float
    database: float
    clients: float
    others: float  # those of whatever else ran on the machine, and of what counts here
    writes: int = field(init=False)

    def __post_init__(self) -> None:
        self.writes = sum(kind == "write" for kind, *_ in self.done)

    @property
    def rate(self) -> float:
        """Acknowledged writes a second, by the block's end; a block that ran out of tasks was over then."""
        until = min(self.seconds, max((ended for _, ended, _ in self.done), default=self.seconds))
        return sum(kind == "write" and ended <= until for kind, ended, _ in self.done) / until


class Watch:
    """What is counted from outside while something runs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sampler = Sampler(cluster.url("postgres"))

    def block(self, order: Order, database: str, workers: list[Worker], hubs: list[int], agents: list[Agent]) -> Block:
        """Let the workers go, and count until they are done; what the agents took is off their lists then."""
        clients = [worker.process.pid for worker in workers if worker.process.pid not in hubs]
        used = [-seconds for seconds in self._used(hubs, clients)]
        self.sampler.start(database, {"events", "notify", *(["row"] if order.workload == "drain-one" else [])})
        answer = together(workers)
        waits = self.sampler.stop()
        used = [before + now for before, now in zip(used, self._used(hubs, clients), strict=True)]
        forget(agents, order.hubs, answer)
        return Block(order.seconds, answer.done, answer.failures, waits, *used)

    def _used(self, hubs: list[int], clients: list[int]) -> tuple[float, float, float, float]:
        ours = sum(map(cpu, hubs)), self.cluster.cpu(self.sampler.pid), sum(map(cpu, clients))
        return *ours, cpu_of_all() - sum(ours)


class HallSide:
    """Hubs under load by agents in a process of their own."""

    def __init__(self, hall: Hall, watch: Watch, client: Worker) -> None:
        self.hall, self.watch, self.client = hall, watch, client

    def block(self, order: Order) -> Block:
        told = []
        for port, agents in zip(self.hall.ports, spread(self.hall.agents, order.hubs), strict=False):
            told += [asdict(agent) | {"port": port} for agent in agents]
        self.client.prepare(asdict(order) | {"agents": told})
        hubs = [hub.pid for hub in self.hall.hubs[: order.hubs]]
        return self.watch.block(order, self.hall.database, [self.client], hubs, self.hall.agents)


def together(workers: list[Worker]) -> Answer:
    """Let all go at once; their answers as one."""
    for worker in workers:
        worker.go()
    answers = [worker.answer() for worker in workers]
    failures: Counter[str] = Counter()
    for answer in answers:
        failures.update(answer.failures)
    done = [tuple(one) for answer in answers for one in answer.done]
    return Answer(done, dict(failures), [count for answer in answers for count in answer.taken])  # type: ignore[arg-type]


def forget(agents: list[Agent], over: int, answer: Answer) -> None:
    """Take what was done off the agents' lists."""
    order = [agent for share in spread(agents, over) for agent in share]
    for agent, taken in zip(order, answer.taken, strict=True):
        del agent.tasks[len(agent.tasks) - taken :]
