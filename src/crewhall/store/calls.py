"""
The call log: every call, reads and refusals too, written in batches off the call's own path.

A change's row travels in the change's own transaction instead; see `Work.log`.
"""

import logging
import queue
import threading

from crewhall.store.transaction import Row, Store, Work

BATCH_ROWS = 500
BATCH_SECONDS = 0.5
ROWS_WAITING = 50_000
CLOSE_SECONDS = 10.0

log = logging.getLogger(__name__)


class CallLog:
    """A thread that writes rows behind the calls. When the database cannot keep up, rows are dropped and counted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._is_over = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="crewhall-calls", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> None:
        if self._rows.qsize() < ROWS_WAITING:
            self._rows.put(row)
        else:
            self.dropped += 1

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
        try:
            with self._store.write(Work(actor="operator", tool=None, now=0)) as tx:
                tx.log_calls(rows)
        except Exception as error:  # the calls themselves must not suffer, nor this thread end
            self.dropped += len(rows)
            log.warning("call log rows lost", extra={"rows": len(rows), "reason": str(error)})
            if self._ending.is_set():
                self._is_over = True
