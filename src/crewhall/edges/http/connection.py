"""A connection that clients make over HTTP: the process at its other end, and the limits of what it sends."""

import os
from functools import cached_property
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crewhall.identity import Sender
from crewhall.outside.peers import Address, holders, peer_socket, peer_uid

HEAD_BYTES = 64 * 1024
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Peer:
    """The process at the other end of a connection; the kernel is asked once for each connection."""

    def __init__(self, client: Address | None, server: Address | None) -> None:
        self._ends = (client, server)
        self.sender = Sender(self._pids)

    @cached_property
    def is_same_user(self) -> bool:
        client, server = self._ends
        return client is not None and server is not None and peer_uid(client, server) == os.getuid()

    def _pids(self) -> list[int]:
        """The processes that hold the client's end, if they are of this machine and user."""
        client, server = self._ends
        found = peer_socket(client, server) if client is not None and server is not None else None
        return holders(found.inode) if found is not None and found.uid == os.getuid() else []


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP connection, which tells its requests about the peer and bounds their headers."""

    _head_bytes = 0
    _in_head = True

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value.rstrip(b" \t"))  # httptools takes away the leading space alone

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(TOO_LONG)
                self.transport.close()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = Peer(_address(self.client), _address(self.server))
        self.app_state = {**self.app_state, "peer": peer, "transport": transport}


def _address(raw: Any) -> Address | None:
    return (raw[0], raw[1]) if raw and raw[1] is not None else None
