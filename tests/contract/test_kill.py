"""A hub that is killed with SIGKILL while clients write: what it acknowledged is there when it is back."""

import http.client
import json
import os
import signal
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.store.events import events_after
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.token_file import read_operator_token
from tests.conftest import eventually
from tests.contract.writer import PATIENCE
from tests.edges.prefork import prefork
from tests.sizes import size

pytestmark = pytest.mark.slow

CLIENTS = 8
WRITES = 1000
KILLED_AFTER = size(100, 400)

QUERIES = """
-- name: repository_ids
-- The path of each repository by its id.
SELECT id, path FROM repository;

-- name: calls_noted
-- How many registrations the call log has.
SELECT count(*) AS total FROM call_log WHERE tool = 'repository_register' AND success = 1;
"""


class HubProcess:
    """`crewhall up`, as a user starts it, forked from a process that has imported it already."""

    def __init__(self, database: str, home: Path) -> None:
        where = "CREWHALL_DATABASE_URL" if "://" in database else "CREWHALL_DATABASE_PATH"
        environment = {**os.environ, "CREWHALL_HOME": str(home), where: database}
        with open(os.devnull, "r+b") as null:
            files = [null.fileno(), null.fileno(), 2]
            self._process = prefork().start(["up", "--port", "0"], environment, files, cwd=os.getcwd())
        try:
            place = eventually(lambda: self._place(home / f"hub-{self._process.pid}.json"), PATIENCE)
        except BaseException:
            self.end(signal.SIGKILL)
            raise
        self.address: str = urllib.parse.urlsplit(place["url"]).netloc
        self._token = read_operator_token(home)

    def _place(self, notice: Path) -> dict[str, Any] | None:
        """Where it listens; the notice of a hub that was killed is not ours."""
        assert self._process.poll() is None and notice.exists()
        place: dict[str, Any] = json.loads(notice.read_text("utf-8"))
        return place if place["pid"] == self._process.pid else None

    def register(self, connection: http.client.HTTPConnection, path: str) -> str:
        """The id of the repository that was acknowledged."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        connection.request("POST", "/api/v1/repository/register", json.dumps({"path": path}), headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        found: str = body["id"]
        return found

    def end(self, how: signal.Signals) -> int:
        self._process.send_signal(how)
        return self._process.wait(PATIENCE)


@pytest.fixture
def start_hub(database: str, tmp_path: Path) -> Iterator[Any]:
    hubs: list[HubProcess] = []

    def start() -> HubProcess:
        hubs.append(HubProcess(database, tmp_path / "home"))
        return hubs[-1]

    yield start
    for hub in hubs:
        hub.end(signal.SIGKILL)


def write_and_kill(hub: HubProcess) -> dict[str, str]:
    """The acknowledged ids and their paths, of a hub that was killed in the middle of it."""
    acknowledged: dict[str, str] = {}
    enough = threading.Event()

    def write(client: int) -> None:
        connection = http.client.HTTPConnection(hub.address, timeout=PATIENCE)
        for number in range(client, WRITES, CLIENTS):
            try:
                acknowledged[hub.register(connection, f"/r/{number}")] = f"/r/{number}"
            except (OSError, http.client.HTTPException):
                return  # killed: nobody was told that this one is there
            if len(acknowledged) >= KILLED_AFTER:
                enough.set()

    clients = [threading.Thread(target=write, args=(client,)) for client in range(CLIENTS)]
    for client in clients:
        client.start()
    assert enough.wait(PATIENCE)
    assert hub.end(signal.SIGKILL) == -signal.SIGKILL
    for client in clients:
        client.join(PATIENCE)
    return acknowledged


def test_after_kill_9_every_acknowledged_write_and_its_event_are_there(database: str, start_hub: Any) -> None:
    acknowledged = write_and_kill(start_hub())
    assert KILLED_AFTER <= len(acknowledged) < WRITES
    again = start_hub()
    again.register(http.client.HTTPConnection(again.address, timeout=PATIENCE), "/after")
    assert again.end(signal.SIGTERM) == 0

    store = open_store(database, Queries([QUERIES]))
    with store.read(of_events=True) as tx:
        kept = {row["id"]: row["path"] for row in tx.all("repository_ids")}
        events = [event["subject"] for event in events_after(tx, 0, WRITES + 10, topic="repository.registered")]
        calls = tx.value("calls_noted")
    damage = store.check()
    store.close()
    assert acknowledged.items() <= kept.items()
    assert sorted(events) == sorted(kept)  # a write has its event and its call, and no event is without its write
    assert calls == len(kept)
    assert kept[events[-1]] == "/after"
    assert damage is None
