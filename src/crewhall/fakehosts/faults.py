"""
What a host is told to do wrong: answer something else, be slow, or drop the connection, before or after the work.

    kind         the work       the client sees
    answer       not done       status, headers and body as given here
    slow         done           its answer, `seconds` later
    drop         not done       a closed connection
    drop_after   done           a closed connection
    fail_after   done           a 500
    hold         after it       its answer; the request waits at `gate` until a test opens it
"""

import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["answer", "slow", "drop", "drop_after", "fail_after", "hold"]
JSON = {"content-type": "application/json"}


class Gate:
    """Where a request waits: `reached` is set when it comes, and it goes on when `opened` is."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def hold(self) -> None:
        self.reached.set()
        self.opened.wait(60)


@dataclass
class Fault:
    """One thing to do wrong, `times` times, after `after` matching requests got through. An empty method is any."""

    method: str = ""
    path: str = ""  # a regular expression, searched in the path without the API's prefix
    times: int = 1
    kind: Kind = "answer"
    after: int = 0
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None  # a text is sent as it is; None is the host's own words for the status
    seconds: float = 0.0
    gate: Gate = field(default_factory=Gate)

    def fits(self, method: str, path: str) -> bool:
        return self.method in ("", method) and re.search(self.path, path) is not None


class Faults:
    """The faults still to come, in the order they were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: list[Fault] = []

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._left.append(fault)

    def next(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets. It is used up by that, and so is one request that gets through."""
        with self._lock:
            for fault in self._left:
                if fault.times > 0 and fault.fits(method, path):
                    if fault.after > 0:
                        fault.after -= 1
                        continue
                    fault.times -= 1
                    return fault
        return None

    def open_gates(self) -> None:
        """Let all go on that wait, and all that would."""
        with self._lock:
            for fault in self._left:
                fault.gate.opened.set()


def rate_limited(retry_after: float = 0, **where: Any) -> Fault:
    """429 with Retry-After, as a proxy or either host has it."""
    headers = {"retry-after": f"{retry_after:g}"}
    return Fault(status=429, headers=headers, body={"message": "Too many requests"}, **where)


def primary_limit(reset: float | None = None, **where: Any) -> Fault:
    """GitHub's 403 when the hour's requests are used up; `reset` is a Unix time, now when it is not given."""
    until = str(int(time.time() if reset is None else reset))
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": until}
    return Fault(status=403, headers=headers, body={"message": "API rate limit exceeded for user ID 1."}, **where)


def secondary_limit(retry_after: float | None = None, **where: Any) -> Fault:
    """GitHub's 403 for too much at once, with Retry-After or without."""
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    words = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    return Fault(status=403, headers=headers, body={"message": words}, **where)


def bad_gateway(**where: Any) -> Fault:
    """A proxy's 502, in HTML."""
    return Fault(status=502, body="<html><body><h1>502 Bad Gateway</h1></body></html>", **where)


def garbage(status: int = 200, **where: Any) -> Fault:
    """An answer that says it is JSON and is not."""
    return Fault(status=status, headers=dict(JSON), body='{"message": ', **where)
