"""
For which agents a client without a token speaks: those that its bridge has registered or claimed for.

    one   its calls are that agent's; it may leave agent_id out, and its late writes are refused like a token's
    more  it says in each call which of them it is

The rows are in `bridge_agent`. A bridge is connected to one hub at a time, which remembers what it read: only calls
that came through the bridge itself change what it speaks for.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from crewhall.store.transaction import QueuedStatement, Store

MOST = 100  # agents of one bridge that are remembered; from two on it says for each call which


@dataclass(frozen=True)
class BoundAgent:
    """An agent for which a bridge speaks."""

    id: str
    name: str
    role: str


class Bindings:
    """What this hub knows of the bridges that are connected to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._agents: dict[str, tuple[str, Mapping[str, BoundAgent]]] = {}  # with the bridge's process
        self._changes = 0  # so often something was forgotten

    def agents(self, store: Store, bridge: str, process: str) -> Mapping[str, BoundAgent]:
        """The agents of a bridge that is this process, by their ids."""
        remembered, changes = self._agents.get(bridge), self._changes
        if remembered is not None and remembered[0] == process:
            return remembered[1]
        asked = {"bridge": bridge, "process": process, "limit": MOST}
        (found,) = store.ask([QueuedStatement("bridge_agents", asked)])
        known = {row["id"]: BoundAgent(**row) for row in found.rows}
        with self._lock:
            if changes == self._changes:  # otherwise what was read may be out of date
                self._agents[bridge] = process, known
        return known

    def forget(self, bridge: str) -> None:
        """Read the rows again when they are asked for: they have changed, or another hub may have changed them."""
        with self._lock:
            self._agents.pop(bridge, None)
            self._changes += 1
