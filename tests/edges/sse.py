"""A client of 2024-11-05: a stream of events by GET, messages by POST to the address that the stream names."""

import http.client
import itertools
import json
import queue
import socket
import threading
from contextlib import suppress
from typing import Any

import httpx2

from tests.conftest import Live
from tests.edges.interfaces import http as client

OLDEST = "2024-11-05"


class Sse:
    def __init__(
        self, live: Live, token: str | None = None, *, open_session: bool = True, at: int = 0, path: str = "/sse"
    ) -> None:
        port = at or live.port
        self._url = f"http://127.0.0.1:{port}"
        self.headers = {"Accept": "text/event-stream"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.request("GET", path, headers=self.headers)
        self.response = self.connection.getresponse()
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ids = itertools.count(1)
        self.endpoint = self._event()[1]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if open_session:
            self.initialize()

    def _event(self) -> tuple[str, str]:
        """The next event's name and data."""
        name = data = ""
        while line := self.response.readline():
            text = line.decode().rstrip("\r\n")
            if text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: "):
                data = text[6:]
            elif not text and name:
                break
        return name, data

    def _read(self) -> None:
        try:
            while data := self._event()[1]:
                message = json.loads(data)
                if "method" not in message:
                    self._answers.put(message)
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            return  # closed

    def post(self, message: Any, **headers: str) -> httpx2.Response:
        url = self._url + self.endpoint
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        return client.post(url, content=content, headers={"Content-Type": "application/json"} | self.headers | headers)

    def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        name = next(self._ids)
        posted = self.post({"jsonrpc": "2.0", "id": name, "method": method, "params": params})
        assert posted.status_code == 202, posted.text
        answer = self._answers.get(timeout=30)
        assert answer["id"] == name
        return answer

    def next_answer(self) -> dict[str, Any]:
        return self._answers.get(timeout=30)

    def initialize(self) -> dict[str, Any]:
        info = {"name": "old", "version": "1"}
        answer = self.ask("initialize", protocolVersion=OLDEST, capabilities={}, clientInfo=info)
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The body of a tool's result; 2024-11-05 has it as text alone."""
        body: dict[str, Any] = json.loads(
            self.ask("tools/call", name=tool, arguments=arguments)["result"]["content"][0]["text"]
        )
        return body

    def has_ended(self) -> bool:
        return not self._reader.is_alive()

    def close(self) -> None:
        if self.connection.sock is not None:
            with suppress(OSError):
                self.connection.sock.shutdown(socket.SHUT_RDWR)
        self._reader.join(10)
        self.response.close()
        self.connection.close()
