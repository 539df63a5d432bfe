"""When a call must end: the client cancelled it, or its time is over."""

import threading
import time

from crewhall.errors import Cancelled, TimedOut

PART = 0.8


class Stop:
    """Whether a call should end: its client cancelled it, or its time is over."""

    def __init__(self, seconds: float | None = None) -> None:
        self._why, self._is_cancelled = "", False
        self._woken: threading.Event | None = None  # made by the first who waits; most calls never do
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def cancel(self, why: str = "the client cancelled this call") -> None:
        self._why, self._is_cancelled = why, True
        if self._woken is not None:
            self._woken.set()

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled

    @property
    def seconds_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def wait(self, seconds: float) -> None:
        """Sleep, and be woken by the call's end. Raises what ended it."""
        self._woken = self._woken or threading.Event()
        left = self.seconds_left
        if not self._is_cancelled:  # looked at after the event is in place: a cancel between the two sets it
            self._woken.wait(seconds if left is None else min(seconds, left))
        self.check()

    def check(self) -> None:
        """Raise Cancelled or TimedOut when the call should end."""
        if self._is_cancelled:
            raise Cancelled(
                self._why,
                hint="What it had not committed is undone. Call again if it is wanted.",
            )
        if self.seconds_left == 0.0:
            raise TimedOut(
                "the call's time is over",
                hint="What it had not committed is undone. Try again, or raise tool.timeout (MCP_TOOL_TIMEOUT).",
            )


class Part(Stop):
    """Most of the time that a call has left: for what it can do without, it ends early enough to answer without it."""

    def __init__(self, whole: Stop, most: float | None = None) -> None:
        limits = [most, None if whole.seconds_left is None else whole.seconds_left * PART]
        super().__init__(min((limit for limit in limits if limit is not None), default=None))
        self._whole = whole

    def wait(self, seconds: float) -> None:
        left = self.seconds_left
        self._whole.wait(seconds if left is None else min(seconds, left))
        self.check()

    def check(self) -> None:
        self._whole.check()
        super().check()
