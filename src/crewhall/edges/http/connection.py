"""
A connection that a client makes over HTTP: what it may send, and how long the hub waits for it.

    accepted ── head: 64 KiB, 20 s ──▶ body: 30 s without a byte, 5 minutes in all ──▶ the hub answers, however long
        ▲                                                                                   │
        └──────── the next head: 20 s more than an idle connection is kept ◀────────────────┘

A client that does not read its answer is dropped after a minute. An event stream or a long call is an answer that is
not done: the hub waits for nothing, and there is no limit. Of a WebSocket it waits only for its reading.
"""

import time
from contextlib import suppress
from typing import Any

from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from crewhall.edges.http.guard import refusal
from crewhall.edges.http.peer import Peer
from crewhall.edges.http.waiting_room import WaitingRoom
from crewhall.errors import Failure, InvalidInput, Unavailable

HEAD_BYTES = 64 * 1024  # of a request, but for its body: its headers, or the extensions and trailers of its chunks
CHUNK_BYTES = 16  # of these, which every chunk may have for its length
SLICE_BYTES = 4096  # is parsed before it is counted, so all counts are that exact
AHEAD = 100  # requests that a client may send before it has its answers
STRANGERS_SLICE_BYTES, STRANGERS_AHEAD = 512, 4  # the same for processes of other users, of which there may be many
HEAD_SECONDS = 20.0
BODY_SECONDS = 30.0
WHOLE_BODY_SECONDS = 300.0
READ_SECONDS = 60.0
END = b"Connection: close\r\nContent-Length: 0\r\n\r\n"
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + END
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\n" + END
NO_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\n" + END
FULL = Unavailable(  # there is no room for a connection, though none is idle
    "this hub has as many connections as its limit of open files allows",
    hint="Try again in a moment. If it stays so, raise the limit (`ulimit -n`) before `crewhall up`.",
)
ELSEWHERE = InvalidInput("the request's target is no path", hint="Ask for a path such as /healthz; this is no proxy.")


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP connection, which tells its requests about the peer and bounds what a client may send."""

    def __init__(self, room: WaitingRoom, **given: Any) -> None:
        super().__init__(**given)
        self._room = room
        self._in_head = False
        self._head_bytes = self._piece_bytes = 0
        self._is_upgraded = False
        self._since = self._heard_at = self._read_at = time.monotonic()
        self._unread_bytes = 0
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer = Peer(transport)
        self.app_state = {**self.app_state, "peer": self.peer, "transport": transport}
        if not self._room.enter(self, transport.get_extra_info("socket").fileno()):
            self.app = refusing(FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.leave(self)
        super().connection_lost(exc)
        if self._running is not None:  # uvicorn tells the request that came last, and this may be one before it
            self._running.disconnected = True
            self._running.message_event.set()

    def handle_websocket_upgrade(self) -> None:
        self._is_upgraded = True
        super().handle_websocket_upgrade()
        websocket: Any = self.transport.get_protocol()
        if not websocket.handshake_initiated:  # it can't read this head, and would wait for ever
            self.transport.write(NO_HANDSHAKE)
            self.transport.close()

    # What it may send

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        size, ahead = (STRANGERS_SLICE_BYTES, STRANGERS_AHEAD) if self.is_strangers else (SLICE_BYTES, AHEAD)
        if self._waits_for_head and data.startswith(b"GET ") and data.count(b"\r\n\r\n") > ahead:  # they have no body
            self.abort()
            return
        for start in range(0, len(data), size):
            if self._is_upgraded or self.transport.is_closing():
                return
            self._feed(data[start : start + size], ahead)

    def _feed(self, piece: bytes, ahead: int) -> None:
        self._piece_bytes = len(piece)
        self._head_bytes += self._piece_bytes
        super().data_received(piece)
        if self._head_bytes > HEAD_BYTES:
            self.end(TOO_LONG)
        elif len(self.pipeline) > ahead:
            self.abort()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, self._piece_bytes
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a trailer is no header
            super().on_header(name, value.rstrip(b" \t"))  # httptools takes away the leading space alone

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes, self._since = False, 0, time.monotonic()
        if not self._asks_for_path:
            self.app = refusing(ELSEWHERE)
        super().on_headers_complete()

    @property
    def _asks_for_path(self) -> bool:
        """Not for an address, which would name a host beside the Host header's."""
        return self.url.startswith(b"/")

    def _should_upgrade(self) -> bool:
        return self._asks_for_path and self._waits_for_head and super()._should_upgrade()

    def on_chunk_header(self) -> None:
        self._forgive(CHUNK_BYTES)

    def on_body(self, body: bytes) -> None:
        self._forgive(len(body))
        super().on_body(body)

    def _forgive(self, count: int) -> None:
        self._head_bytes = max(0, self._head_bytes - count)

    # What it is sent

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Run the application for a request; what it says to a client that has gone is dropped, not a traceback."""
        self._running = cycle

        async def app_noting_the_end(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_if_open(message: Message) -> None:
                cycle.disconnected |= self.transport.is_closing()
                await send(message)

            await app(scope, receive, send_if_open)

        super()._start_asgi_task(cycle, app_noting_the_end)  # type: ignore[arg-type]

    # How long the hub waits

    def on_response_complete(self) -> None:
        self._since = time.monotonic()
        super().on_response_complete()

    @property
    def waiting_since(self) -> float | None:
        """Since when the hub waits for this client to send or to read; None while it has something to do for it."""
        if self._unread_bytes:
            return self._read_at
        is_waited_for = not self._is_upgraded and (self._waits_for_head or self._waits_for_body)
        return self._since if is_waited_for else None

    @property
    def _waits_for_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _waits_for_body(self) -> bool:
        return self.cycle.more_body and not self.flow.read_paused and not self.cycle.waiting_for_100_continue

    def is_late(self, now: float) -> bool:
        """Whether the hub has waited long enough for a request; time in which it kept the client waiting is none."""
        if self._is_upgraded:
            return False
        if self._waits_for_head:
            kept = self.timeout_keep_alive if self.cycle is not None else 0
            return now - self._since > HEAD_SECONDS + kept
        if not self._waits_for_body:
            self._since = self._heard_at = now
        return now - self._heard_at > BODY_SECONDS or now - self._since > WHOLE_BODY_SECONDS

    def is_deaf(self, now: float) -> bool:
        """Whether the client has read nothing for long of what was sent. To be asked again and again."""
        size = self.transport.get_write_buffer_size()
        if size == 0 or size < self._unread_bytes:
            self._read_at = now
        self._unread_bytes = size
        return now - self._read_at > READ_SECONDS

    @property
    def is_gone(self) -> bool:
        """Whether nobody is told of its end: a WebSocket that has closed, and has nothing more to send."""
        return self._is_upgraded and self.transport.is_closing() and not self.transport.get_write_buffer_size()

    @property
    def is_strangers(self) -> bool:
        with suppress(Unavailable):
            return not self.peer.is_same_user
        return True

    def end(self, word: bytes = TOO_LATE) -> None:
        """Close the connection, with this word if its client waits for an answer to what it has begun to send."""
        if self.transport.is_closing():
            return
        is_asked = self.cycle is not None and not self.cycle.response_started
        if self._in_head or is_asked:
            self.transport.write(word)
        self.transport.close()

    def abort(self) -> None:
        """Close the connection without a word, and without waiting for what is still to be sent."""
        self.transport.abort()


def refusing(failure: Failure) -> Any:
    """An application that gives this answer to everything, and closes the connection."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = refusal(failure)
        answer.headers["Connection"] = "close"
        await answer(scope, receive, send)

    return app
