"""
Presence: the agents that called this hub since its last tick, and the bridges connected to it.

At each tick the hub writes both to the database, for the other hubs.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Presence:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, str | None] = {}
        self._bridges: Counter[str] = Counter()
        # Instances of this node, as of some seconds ago: while there are some, senders are traced and the hub stays.
        self.instances = 0

    def note_call(self, agent_id: str, bridge: str | None) -> None:
        """Note that an agent made a call, through which bridge if any."""
        with self._lock:
            self._seen[agent_id] = bridge or self._seen.get(agent_id)

    def forget(self, agent_id: str) -> None:
        """Drop what was noted of an agent's calls: its process is gone, and an older call must not bring it back."""
        with self._lock:
            self._seen.pop(agent_id, None)

    @contextmanager
    def connection(self, bridge: str) -> Iterator[None]:
        """Count a bridge as connected during the block."""
        with self._lock:
            self._bridges[bridge] += 1
        try:
            yield
        finally:
            with self._lock:
                self._bridges[bridge] -= 1
                self._bridges += Counter()  # forgets those that are at nought

    @contextmanager
    def drain(self) -> Iterator[tuple[dict[str, str | None], list[str]]]:
        """Take the agents that called since the last drain, each with its bridge, and list the bridges connected now.

        If the block fails, those agents come again with the next drain.
        """
        with self._lock:
            seen, self._seen = self._seen, {}
            bridges = list(self._bridges)
        try:
            yield seen, bridges
        except BaseException:
            with self._lock:
                for agent_id, bridge in seen.items():
                    self._seen[agent_id] = self._seen.get(agent_id) or bridge
            raise
