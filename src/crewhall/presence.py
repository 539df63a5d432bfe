"""
Who is here: the agents whose calls this hub saw since its last tick, and the bridges that are connected to it.

A hub forgets nothing that another would miss: at each tick what it saw goes into the database.
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

    def saw(self, agent_id: str, bridge: str | None) -> None:
        """An agent made a call, perhaps through a bridge."""
        with self._lock:
            self._seen[agent_id] = bridge or self._seen.get(agent_id)

    @contextmanager
    def of(self, bridge: str) -> Iterator[None]:
        """A bridge is connected while the block lasts."""
        with self._lock:
            self._bridges[bridge] += 1
        try:
            yield
        finally:
            with self._lock:
                self._bridges[bridge] -= 1
                self._bridges += Counter()  # forgets those that are at nought

    @contextmanager
    def taken(self) -> Iterator[tuple[dict[str, str | None], list[str]]]:
        """The agents seen since the last time, with the bridge that each came by, and the bridges connected now.

        A block that fails has noted nothing: those agents are seen again the next time.
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
