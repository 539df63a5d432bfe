"""
A client that calls the hall over REST, and goes to another hub when its own does not answer in time.

    home hub ── no answer in `patience` s, broken, UNAVAILABLE ──▶ the next hub ── after a while ──▶ home again

It repeats a call until it has an answer: one that creates with the same key, unless nothing of it was certainly kept.
"""

import http.client
import itertools
import json
import secrets
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.edges.fleet import COMMANDS
from tests.faults.record import Outcome, Record

AWAY_SECONDS = 5.0  # after this time a client looks whether its own hub is back
LOOK_SECONDS = 1.5  # and waits for that look no longer
LATE_SECONDS = 100.0
TROUBLE = (OSError, http.client.HTTPException, ValueError)
NOT_KEPT = "Nothing of this call was kept"
IN_DOUBT = ("UNAVAILABLE", "TIMED_OUT", "CANCELLED", "INTERNAL", "")


@dataclass(frozen=True)
class Asked:
    """A call that a hub was asked for."""

    tool: str
    arguments: dict[str, Any]
    hub: int
    began: float


class Caller:
    """One agent's, with its token. It waits for one answer at a time."""

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
            self.turn(self._home)
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
        asked = Asked(tool, arguments, self.hub, time.monotonic())
        try:
            body = self._ask(asked, patience or self._patience)
        except TROUBLE as trouble:
            body = {"code": "", "message": f"{type(trouble).__name__}: {trouble}"}
        record = self._noted(asked, body)
        if record.outcome in ("unknown", "not kept"):
            self.turn((self.hub + 1) % len(self._ports))
        return record

    def _noted(self, asked: "Asked", body: dict[str, Any]) -> Record:
        outcome, times = outcome_of(body), (asked.began, time.monotonic())
        code = str(body.get("code", "taken" if outcome == "refused" else ""))
        who = (self.agent, self._home, asked.hub, asked.tool)
        record = Record(*who, *times, outcome, code, asked.arguments, body)
        self._note(record)
        return record

    def _ask(self, asked: "Asked", patience: float) -> dict[str, Any]:
        connection = self._connection or http.client.HTTPConnection("127.0.0.1", self._ports[self.hub], patience)
        self._connection = connection
        connection.request("POST", f"/api/v1/{COMMANDS[asked.tool]}", json.dumps(asked.arguments), self._headers)
        if select.select([connection.sock], [], [], patience)[0]:
            return read(connection)
        self._connection = None
        threading.Thread(target=self._hear_late, args=(asked, connection), daemon=True).start()
        raise TimeoutError("no answer yet")

    def _hear_late(self, asked: "Asked", connection: http.client.HTTPConnection) -> None:
        """A request that we gave up stays open: what became of it is noted too."""
        with suppress(*TROUBLE):
            connection.sock.settimeout(LATE_SECONDS)
            self._noted(asked, read(connection))
        connection.close()

    def turn(self, hub: int) -> None:
        """From now on it asks this hub, over a new connection."""
        if self.hub == self._home != hub:
            self._left_home = time.monotonic()
        self.hub = hub
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def read(connection: http.client.HTTPConnection) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(connection.getresponse().read())
    return body


def outcome_of(body: dict[str, Any]) -> Outcome:
    code = body.get("code")
    if code in IN_DOUBT:
        return "not kept" if NOT_KEPT in body.get("hint", "") else "unknown"
    return "refused" if code is not None or body.get("success") is False else "ok"
