"""What an agent is told, it is told once, by whichever of two hubs it asks next; and a hub's death loses none of it."""

import json
import signal
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import eventually
from tests.edges.claude import asking
from tests.edges.fleet import rows
from tests.edges.interfaces import MODERN
from tests.edges.program import Program, Up
from tests.edges.raw_http import http, mcp_headers, mcp_params
from tests.families.work.workflows import register

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
WAIT = """
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END';
    CREATE TRIGGER wait BEFORE DELETE ON notice FOR EACH STATEMENT EXECUTE FUNCTION wait();
"""
TELLERS = "SELECT teller FROM notice"


@dataclass
class Ada:
    """An agent with a token, who has a message, and two hubs to ask."""

    database: str
    first: Up
    second: Up
    headers: dict[str, str]
    message: str

    def told_by(self, up: Up) -> list[str]:
        """The notices in the answer to a call over HTTP."""
        answer = http.post(f"{up.url}/mcp", content=_body(), headers=self.headers).json()
        found: list[str] = answer["result"]["structuredContent"].get("notices", [])
        return found

    def is_told(self, up: Up) -> bool:
        """Whether that answer tells her of her message, and nothing else."""
        notices = self.told_by(up)
        assert len(notices) <= 1
        return any(self.message in text for text in notices)

    @property
    def is_over(self) -> bool:
        """Whether nobody will tell her any more."""
        return not rows(self.database, TELLERS)

    def ask_without_reading(self) -> socket.socket:
        """The connection by which she asks the first hub, and on which its answer comes."""
        port = urllib.parse.urlsplit(self.first.url).port
        connection = socket.create_connection(("127.0.0.1", port or 0), 10)
        body = _body()
        headers = self.headers | {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        return connection


def _body() -> bytes:
    params = mcp_params(MODERN, name="agent_list", arguments={})
    return json.dumps(CALL | {"params": params}).encode()


@pytest.fixture
def ada(tmp_path: Path, postgres_url: str) -> Iterator[Ada]:
    program = Program(tmp_path / "home", {"CREWHALL_DATABASE_URL": postgres_url, "MCP_LOG_LEVEL": "warning"})
    with program.up() as first, program.up() as second:
        ask = asking(first)
        made: Any = ask("agent_token_create", name="ada")
        letter = {"recipient_id": made["agent_id"], "message_type": "query", "body": "How far are you?"}
        sent = ask("message_send", sender_id=register(ask, "bob"), **letter)["id"]
        headers = mcp_headers(MODERN) | {"Authorization": f"Bearer {made['token']}"}
        yield Ada(postgres_url, first, second, headers, sent)


@contextmanager
def none_noted_as_told(database: str) -> Iterator[None]:
    """During the block a hub may take a notice to tell it, and waits when it would note that its answer was sent."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(WAIT)
        connection.execute("SELECT pg_advisory_lock(7)")
        yield


def test_a_message_is_told_once_on_whichever_hub(ada: Ada) -> None:
    assert ada.is_told(ada.first)
    assert not ada.is_told(ada.second) and not ada.is_told(ada.first)
    eventually(lambda: ada.is_over)


def test_what_a_hub_took_to_its_death_the_next_one_tells(ada: Ada) -> None:
    """It is killed before the agent has read the answer."""
    with none_noted_as_told(ada.database):
        with ada.ask_without_reading():
            eventually(lambda: rows(ada.database, TELLERS) not in ([], [(None,)]))
            assert not ada.is_told(ada.second), "the first is about to tell it"
            assert ada.first.end(signal.SIGKILL)
        assert ada.is_told(ada.second)
        assert not ada.is_told(ada.second)
    eventually(lambda: ada.is_over)
