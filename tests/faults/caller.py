"""
A client that calls the hall over REST, and goes to another hub when its own does not answer in time.

    home hub ── no answer in `patience` s, broken, UNAVAILABLE ──▶ the next hub ── after a while ──▶ home again

It repeats a call until it has an answer: one that creates with the same key, unless nothing of it was certainly kept.
"""

import http.client
import itertools
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.edges.fleet import COMMANDS
from tests.faults.record import Outcome, Record

AWAY_SECONDS = 5.0  # after this time a client looks whether its own hub is back
LOOK_SECONDS = 1.5  # and waits for that look no longer
NOT_KEPT = "Nothing of this call was kept"
IN_DOUBT = ("UNAVAILABLE", "TIMED_OUT", "CANCELLED", "INTERNAL", "")


class Caller:
    """One agent's, with its token. It has one connection at a time."""

    def __init__(
        self,
        agent: str,
        token: str,
        ports: Sequence[int],
        home: int,
        patience: float,
        note: Callable[[Record], None],
        over: threading.Event,
    ) -> None:
        self.agent, self.hub, self._home = agent, home, home
        self._ports, self._patience, self._note, self._over = ports, patience, note, over
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self._left_home = 0.0
        self._name, self._keys = secrets.token_hex(4), itertools.count()

    def new_key(self) -> str:
        return f"{self._name}:{next(self._keys)}"

    def look(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """A read, which may be in vain; it tries the home hub again when it is time."""
        if self.hub != self._home and time.monotonic() - self._left_home > AWAY_SECONDS:
            self._turn(self._home)
            return self._once(tool, arguments, min(LOOK_SECONDS, self._patience)).answer
        return self._once(tool, arguments).answer

    def call(self, tool: str, /, **arguments: Any) -> Record:
        """The record of the attempt that was answered; the last one when all is over."""
        while True:
            record = self._once(tool, arguments)
            if record.outcome in ("ok", "refused") or self._over.wait(0.1):
                return record

    def create(self, tool: str, text: str, /, **arguments: Any) -> Record:
        """The same for what has a key, which is its text too: a new one when the last is certainly not in the hall."""
        key, is_open = self.new_key(), False
        while True:
            record = self._once(tool, {**arguments, text: key, "idempotency_key": key})
            if record.outcome in ("ok", "refused") or self._over.wait(0.1):
                return record
            is_open = is_open or record.outcome == "unknown"
            key = key if is_open else self.new_key()

    def _once(self, tool: str, arguments: dict[str, Any], patience: float | None = None) -> Record:
        hub, began = self.hub, time.monotonic()
        try:
            body = self._ask(tool, arguments, patience or self._patience)
        except (OSError, http.client.HTTPException, ValueError) as trouble:
            body = {"code": "", "message": f"{type(trouble).__name__}: {trouble}"}
        outcome = outcome_of(body)
        code = str(body.get("code", "taken" if outcome == "refused" else ""))
        times = (began, time.monotonic())
        record = Record(self.agent, self._home, hub, tool, *times, outcome, code, arguments, body)
        self._note(record)
        if outcome in ("unknown", "not kept"):
            self._turn((hub + 1) % len(self._ports))
        return record

    def _ask(self, tool: str, arguments: dict[str, Any], patience: float) -> dict[str, Any]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._ports[self.hub])
        self._connection.timeout = patience
        if self._connection.sock is not None:
            self._connection.sock.settimeout(patience)
        self._connection.request("POST", f"/api/v1/{COMMANDS[tool]}", json.dumps(arguments), self._headers)
        body: dict[str, Any] = json.loads(self._connection.getresponse().read())
        return body

    def _turn(self, hub: int) -> None:
        """From now on it asks this hub, over a new connection."""
        if self.hub == self._home != hub:
            self._left_home = time.monotonic()
        self.hub = hub
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def outcome_of(body: dict[str, Any]) -> Outcome:
    code = body.get("code")
    if code in IN_DOUBT:
        return "not kept" if NOT_KEPT in body.get("hint", "") else "unknown"
    return "refused" if code is not None or body.get("success") is False else "ok"
