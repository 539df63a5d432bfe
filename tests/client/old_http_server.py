"""A server of the 2025 era by Streamable HTTP, with sessions, which it can forget, and a token, which it wants."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "open sesame"


class OldServer(ThreadingHTTPServer):
    """What it was asked is kept, by method."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), OldHandler)
        self.url = f"http://127.0.0.1:{self.server_port}/mcp"
        self.session = 0
        self.asked: list[str] = []

    def forget_sessions(self) -> None:
        """Know nothing of the sessions there were."""
        self.session += 1

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(message["method"])
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "initialize":
            info = {"name": "old", "version": "1"}
            told: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        elif message["method"] == "tools/list":
            told = {"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}
        elif message["method"] == "tools/call":
            told = {"content": [], "structuredContent": {"calls": self.asked.count("tools/call")}}
        else:
            return body | {"error": {"code": -32601, "message": f"what is {message['method']}?"}}
        return body | {"result": told}


class OldHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OldServer

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, {"said": self.headers.get("Authorization")})
        elif session is not None and session != str(self.server.session):
            self._send(404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}})
        elif "id" in message:
            self._send(200, self.server.answer(message))
        else:
            self._send(202, {})

    def do_GET(self) -> None:
        self._send(405, {})

    do_DELETE = do_GET

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Mcp-Session-Id", str(self.server.session))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def old_server(port: int = 0) -> Iterator[OldServer]:
    with OldServer(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
