"""Telling agents their notices: a hub takes what waits, puts it into an answer, and forgets it once that is sent."""

import json
import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from crewhall.errors import Failure
from crewhall.notices import LETTERS
from crewhall.store.transaction import QueuedStatement, Row

if TYPE_CHECKING:
    from crewhall.app.hub import Hub

MOST = 8  # notices in one answer; the others come with the next ones
ANSWER_BYTES = 20_000  # that an answer has with its notices; one of them is told beside a larger one too
NOTICE_BYTES = 4 * LETTERS
TELLING_MS = 10_000  # after which an answer that told something counts as lost
log = logging.getLogger(__name__)


class Teller:
    """What this hub tells agents."""

    def __init__(self, hub: "Hub") -> None:
        self._hub, self._process = hub, hub.process

    def query(self, agent_id: str, now: int) -> QueuedStatement:
        """The query for what waits for an agent."""
        return QueuedStatement("notices_open", {"agent_id": agent_id, "now": now, "limit": MOST})

    def take(self, waiting: Sequence[Row], now: int, body: Row) -> list[Row]:
        """Those that this hub tells beside this now: their ids and texts. None when the hall can't be asked."""
        dead = {row["teller"] for row in waiting if row["teller"] is not None and self._process.is_dead(row["teller"])}
        free = [row["id"] for row in waiting if self._is_free(row, dead, now)][: _room_beside(body)]
        if not free:
            return []
        own = {"own": self._process.name, "until": now + TELLING_MS, "now": now}
        try:
            with self._hub.own_work() as tx:
                rows = tx.all("notices_take", ids=json.dumps(free), dead=json.dumps(sorted(dead)), **own)
        except Failure:
            return []
        return sorted(rows, key=lambda row: (row["created_at"], row["id"]))

    def _is_free(self, row: Row, dead: Collection[str], now: int) -> bool:
        return row["teller"] is None or row["telling_until"] < now or row["teller"] in dead

    def note_sent(self, ids: Collection[str]) -> None:
        """The answer that told these is sent. If that can't be noted, they are told again."""
        try:
            with self._hub.own_work() as tx:
                tx.run("notices_told", ids=json.dumps(list(ids)), own=self._process.name)
        except Failure as failure:
            log.warning("notices may be told twice", extra={"error": failure.message})


def _room_beside(body: Row) -> int:
    """How many notices an answer has room for; one at least."""
    left = ANSWER_BYTES - len(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    return max(1, left // NOTICE_BYTES)
