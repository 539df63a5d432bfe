"""The socket of a pretended host: HTTP/1.1 with keep-alive, one thread for each connection, all ended at once."""

import json
import re
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from crewhall.fakehosts.records import Refusal

GIT_PATH = re.compile(r"/([^/]+)/([^/]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack|HEAD|objects/.+)")


@dataclass(frozen=True)
class FakeRequest:
    """A request as a route sees it; `login` is whose token it came with."""

    method: str
    path: str  # as it was sent, without the prefix
    query: dict[str, str]
    headers: dict[str, str]  # names in small letters
    body: Any
    is_inside: bool = True  # below the prefix
    login: str = ""
    raw: bytes = b""

    @property
    def is_git(self) -> bool:
        return not self.is_inside and GIT_PATH.fullmatch(self.path) is not None

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the body; empty when the body is no object."""
        return self.body if isinstance(self.body, dict) else {}

    def need(self, *names: str) -> list[Any]:
        """These properties of the body. Raises Refusal when one is not there."""
        for name in names:
            if self.fields.get(name) in (None, ""):
                raise Refusal(422, f'Invalid request: "{name}" was not supplied.')
        return [self.fields[name] for name in names]

    def number(self, name: str, default: int) -> int:
        """A number of the query; what is none, or below one, is the default."""
        text = self.query.get(name, "")
        return int(text) if text.isdecimal() and int(text) > 0 else default


@dataclass
class FakeResponse:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class MalformedBody(str):
    """A body that is no JSON."""


class FakeHostServer(ThreadingMixIn, TCPServer):
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, prefix: str, reply: Callable[[FakeRequest], tuple[FakeResponse | None, float]]) -> None:
        self.prefix, self.reply, self.closing = prefix, reply, threading.Event()
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def serve(self) -> None:
        while not self.closing.is_set():
            self.handle_request()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if not self.closing.is_set():
            self._open.add(request)
        return request in self._open

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self._open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is a bug of ours, and ends the thread loudly."""
        error = sys.exception()
        assert error is not None
        raise error

    def wake_and_stop(self) -> None:
        """Take no more connections; who waits for one is woken by one."""
        self.closing.set()
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.server_address[1])).close()

    def close(self) -> None:
        """End what is open, and wait for its threads."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeHostServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def _any(self) -> None:
        answer, seconds = self.server.reply(self._read_request())
        if answer is None or (seconds and self.server.closing.wait(seconds)):
            self.close_connection = True
            return
        self._send(answer)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any

    def _read_request(self) -> FakeRequest:
        raw = self._read_body()
        parts = urlsplit(self.path)
        path = parts.path.removeprefix(self.server.prefix)
        is_inside, body = path != parts.path, None
        if raw and is_inside:
            try:
                body = json.loads(raw)
            except ValueError:
                body = MalformedBody()
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return FakeRequest(self.command, path, query, headers, body, is_inside=is_inside, raw=raw)

    def _read_body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return b"".join(pieces)

    def _send(self, answer: FakeResponse) -> None:
        is_text = isinstance(answer.body, str)
        raw = _encode(answer.body)
        headers = {"content-type": "text/html" if is_text else "application/json; charset=utf-8"} | answer.headers
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        if answer.status != HTTPStatus.NO_CONTENT:
            self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _encode(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else b"" if body is None else json.dumps(body).encode()
