"""Small servers on a free port of this machine: a model that answers from a script, and a forwarder with a token."""

import http.client
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]


class Refused(Exception):
    """A request is answered with this HTTP status and body."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.body = status, json.dumps(body).encode()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the block ends; the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(BaseHTTPRequestHandler):
    """A request of which nothing is logged; a connection carries one."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        with suppress(ConnectionError):  # who asked has ended
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


def model(path: str, answer: Answer) -> AbstractContextManager[str]:
    """A model's API: what is posted to this path is answered with a stream of events, all else with 404.

    `answer` may raise Refused, and may take its time.
    """

    class Model(Quiet):
        def do_POST(self) -> None:
            request = json.loads(self.body() or b"{}")
            if self.path.partition("?")[0] != path:
                self.answer(404, "application/json", b"{}")
                return
            try:
                events = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in answer(request))
                self.answer(200, "text/event-stream", events.encode())
            except Refused as refused:
                self.answer(refused.status, "application/json", refused.body)

        def do_GET(self) -> None:
            self.answer(404, "application/json", b"{}")

    return serving(Model)


def with_token(hub: str, token: str) -> AbstractContextManager[str]:
    """A way to the hub that adds this token to each POST, and leaves its other headers as they are."""

    class Forwarder(Quiet):
        def do_POST(self) -> None:
            connection = http.client.HTTPConnection(hub.removeprefix("http://"), timeout=30)
            headers = {**self.headers, "Authorization": f"Bearer {token}"}
            connection.request("POST", self.path, self.body(), headers)
            answer = connection.getresponse()
            self.answer(answer.status, answer.getheader("Content-Type", ""), answer.read())
            connection.close()

    return serving(Forwarder)
