"""
The call log: every call, reads and refusals too, written in batches off the call's own path.

A change's row travels in the change's own transaction instead; see `Work.log`.
"""

import logging
import queue
import threading

from crewhall.errors import Unavailable
from crewhall.outages import Outages, log_failure
from crewhall.store.transaction import Row, Store, Work

BATCH_ROWS = 500
BATCH_SECONDS = 0.5
AGAIN_SECONDS = 1.0  # after a database that was away was tried
ROWS_WAITING = 50_000
CLOSE_SECONDS = 10.0

log = logging.getLogger(__name__)


class CallLog:
    """A thread that writes rows behind the calls.

    While the database is away rows wait for it; those for which there is no room are lost, and counted in `dropped`.
    """

    def __init__(self, store: Store, outages: Outages) -> None:
        self._store = store
        self._outages = outages
        self._rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._is_over = False
        self.dropped = 0
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="crewhall-calls", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> None:
        if self._rows.qsize() < ROWS_WAITING:
            self._rows.put(row)
        else:
            self._lose(1, "too many wait for the database")

    def _lose(self, rows: int, reason: str) -> None:
        """Count rows that are lost; a line in the log for the first of a kind until rows are written again."""
        self.dropped += rows
        if reason != self._told:
            log.warning("call log rows are lost", extra={"reason": reason, "lost": self.dropped})
        self._told = reason

    def close(self) -> bool:
        """Write what is waiting, then end; whether that could be done, with a database that may be stuck."""
        self._ending.set()
        self._rows.put(None)
        self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        going = True
        while going and not self._is_over:
            rows = [self._rows.get()]
            self._ending.wait(BATCH_SECONDS)  # the rows of a moment share one commit
            while len(rows) < BATCH_ROWS and not self._rows.empty():
                rows.append(self._rows.get())
            going = None not in rows
            self._write([row for row in rows if row is not None])

    def _write(self, rows: list[Row]) -> None:
        """Write them, as soon as the database is there; a hub that stops tries once more."""
        while not self._is_settled(rows):
            if self._ending.wait(AGAIN_SECONDS):
                if not self._is_settled(rows):
                    self._lose(len(rows) + self._rows.qsize(), "the hub stopped while the database was away")
                    self._is_over = True
                return

    def _is_settled(self, rows: list[Row]) -> bool:
        """Whether the rows are written, or lost because they never will be."""
        try:
            with self._store.write(Work(actor="operator", tool=None, now=0)) as tx:
                tx.log_calls(rows)
        except Unavailable as failure:
            self._outages.note("call log", failure)
            return False
        except Exception as error:  # the calls themselves must not suffer, nor this thread end
            log_failure(log, "call log rows cannot be written", error)
            self._lose(len(rows), "they cannot be written")
            return True
        self._told = ""
        self._outages.clear("call log")
        return True
