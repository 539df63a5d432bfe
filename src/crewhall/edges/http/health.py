"""Whether a change would get through now: what `/healthz` asks of the hall."""

import logging
import time

from crewhall.app import Hub
from crewhall.errors import Unavailable
from crewhall.outages import log_failure

WRITE_SECONDS = 5.0
WRITE_BYTES = 16_000  # about what a call writes; a single page may find room on a disk that is full for calls

log = logging.getLogger(__name__)


class WriteProbe:
    """Tries a change: its turn at the database each time, and a row on the disk once in five seconds at most.

    Reads go on where a writer is stuck, and a transaction that changes nothing is fine on a full disk.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._wrote_at = -WRITE_SECONDS
        self._is_well = True

    def gets_through(self) -> bool:
        try:
            self._try()
        except Exception as error:  # whatever it is, the hub is not well
            self._tell(error)
            return False
        self._is_well = True
        self._hub.outages.clear("healthz")
        return True

    def _try(self) -> None:
        now = time.monotonic()
        is_due = now - self._wrote_at >= WRITE_SECONDS
        with self._hub.own_work() as tx:
            if is_due:
                tx.run("hall_set", key="probe", value=f"{self._hub.clock()}".ljust(WRITE_BYTES, "."))
        if is_due:
            self._wrote_at = now

    def _tell(self, error: Exception) -> None:
        """Log why, once until a change gets through again."""
        if isinstance(error, Unavailable):
            self._hub.outages.note("healthz", error)
        elif self._is_well:
            log_failure(log, "a change does not get through", error)
        self._is_well = False
        self._wrote_at = -WRITE_SECONDS  # the next try writes, however soon it is
