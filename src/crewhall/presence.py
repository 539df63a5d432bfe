"""
Presence: the agents that called this hub since its last tick, and the bridges connected to it.

At each tick the hub writes both to the database, for the other hubs. A bridge outlives its connection: it may go on to
another hub. It has ended when its process is dead.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """When an agent made its last call, and the bridge that it is known to speak through."""

    at: int
    bridge: str | None

    def after(self, before: "Seen | None") -> "Seen":
        return self if before is None or self.bridge is not None else Seen(self.at, before.bridge)


class Presence:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] = {}
        self._bridges: Counter[str] = Counter()
        self._processes: dict[str, str] = {}  # of the connected bridges
        # Instances of this node, as of some seconds ago: while there are some, senders are traced and the hub stays.
        self.instances = 0

    def note_call(self, agent_id: str, bridge: str | None, at: int) -> None:
        """Note that an agent made a call, through which bridge if any."""
        with self._lock:
            self._seen[agent_id] = Seen(at, bridge).after(self._seen.get(agent_id))

    def forget(self, agent_id: str) -> None:
        """Drop what was noted of an agent's calls: its process is gone, and an older call must not bring it back."""
        with self._lock:
            self._seen.pop(agent_id, None)

    @contextmanager
    def connection(self, bridge: str, process: str | None = None) -> Iterator[None]:
        """Count a bridge as connected during the block; its process is known by a name, or not at all."""
        with self._lock:
            self._bridges[bridge] += 1
            self._processes[bridge] = process or ""
        try:
            yield
        finally:
            with self._lock:
                self._bridges[bridge] -= 1
                self._bridges += Counter()  # forgets those that are at nought
                if bridge not in self._bridges:
                    self._processes.pop(bridge, None)

    def bridges(self) -> dict[str, str]:
        """The bridges that are connected now, and their processes."""
        with self._lock:
            return self._processes.copy()

    @contextmanager
    def drain(self) -> Iterator[tuple[dict[str, Seen], dict[str, str]]]:
        """Take the agents that called since the last drain, each with its bridge; and the bridges connected now.

        If the block fails, those agents come again with the next drain.
        """
        with self._lock:
            seen, self._seen = self._seen, {}
            bridges = self._processes.copy()
        try:
            yield seen, bridges
        except BaseException:
            with self._lock:
                for agent_id, before in seen.items():
                    self._seen[agent_id] = self._seen.get(agent_id, before).after(before)
            raise
