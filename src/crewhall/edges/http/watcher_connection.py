"""A watcher's WebSocket: what is sent to many is one text, framed once."""

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State


def text_frame(text: str) -> bytes:
    """A WebSocket's message as it goes over the wire, the same to everyone."""
    return Frame(Opcode.TEXT, text.encode()).serialize(mask=False)


class WatcherConnection(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket connection, for which a refusal and what watchers say are no faults of the hub's."""

    def send_now(self, frame: bytes) -> bool:
        """Send a whole frame, unless the connection has closed, or its client is to read first; whether it was sent."""
        takes_more = self._is_open and self.writable.is_set()
        if takes_more:
            self.transport.write(frame)
        return takes_more

    async def send_frame(self, frame: bytes) -> None:
        """Send a whole frame once its client has read enough. Raises ClientDisconnected."""
        while not self.send_now(frame):
            if not self._is_open:
                raise ClientDisconnected
            await self.writable.wait()

    @property
    def _is_open(self) -> bool:
        return self.conn.state is State.OPEN and not self.transport.is_closing()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:  # refused, and uvicorn looks for a handshake
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        self.curr_msg_data_type = "bytes"  # nobody reads it, so it need not be UTF-8
        super().send_receive_event_to_app()
