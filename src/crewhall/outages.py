"""
Outages: what does not answer for now. The log has a line when that begins and one when it is over.

    chore, call log, feed … ── note(who, failure) ──▶ nobody has told of it? ──▶ one line
                            ── clear(who) ──────────▶ it was away?           ──▶ one line

Many things in a hub need the same database, and each of them tries again every few seconds.
"""

import logging
import threading

from crewhall.errors import Failure, Unavailable

log = logging.getLogger(__name__)


class Outages:
    """What a hub waits for: for each who fails, what does not answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._missing: dict[str, str] = {}

    def note(self, who: str, failure: Unavailable) -> None:
        """Tell that something does not answer, unless someone has told that already."""
        what = failure.message.partition(":")[0]  # the reason after it is another one each time
        with self._lock:
            is_news = what not in self._missing.values()
            self._missing[who] = what
        if is_news:
            log.warning(failure.message, extra={"noticed_by": who})

    def clear(self, who: str) -> None:
        """Tell that what they needed answers again, if it did not."""
        if who not in self._missing:  # as a rule: without the lock
            return
        with self._lock:
            what = self._missing.pop(who, None)
            self._missing = {one: missing for one, missing in self._missing.items() if missing != what}
        if what is not None:
            log.warning("an outage is over", extra={"outage": what, "noticed_by": who})


def log_failure(logger: logging.Logger, what: str, error: Exception, **about: object) -> None:
    """One line for a failure, whose message says it all; a traceback for a bug."""
    is_bug = not isinstance(error, Failure)
    reason = f"{type(error).__name__}: {error}" if is_bug else str(error)
    logger.log(logging.ERROR if is_bug else logging.WARNING, what, extra={**about, "reason": reason}, exc_info=is_bug)
