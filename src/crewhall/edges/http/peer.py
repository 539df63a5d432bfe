"""The process at the other end of an HTTP connection."""

import asyncio
import os

from crewhall.errors import Unavailable
from crewhall.identity import Sender
from crewhall.outside.peers import PeerSocket, holders, peer_of


class Peer:
    """The process at the other end of a connection, as the kernel knows it when the connection is accepted.

    If the kernel cannot be asked then, for want of descriptors, it is asked again at the next request.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._found: PeerSocket | None = None
        self._error: OSError | None = OSError("not asked yet")
        self.sender = Sender(self._pids)
        self.ask()

    def ask(self) -> None:
        """Ask the kernel, unless it has answered. In the loop's thread: only there the descriptor is surely ours."""
        if self._error is not None:
            try:
                is_open = not self._transport.is_closing()
                self._found = peer_of(self._transport.get_extra_info("socket")) if is_open else None
                self._error = None
            except OSError as error:
                self._error = error

    @property
    def is_same_user(self) -> bool:
        """Whether it is a local process of the hub's own user. Raises Unavailable."""
        found = self._answer()
        return found is not None and found.is_loopback and found.uid == os.getuid()

    def _pids(self) -> list[int]:
        """The processes that hold the client's end, if they are of this machine and user. Raises Unavailable."""
        found = self._answer()
        try:
            return holders(found.inode) if found is not None and found.uid == os.getuid() else []
        except OSError as error:
            raise _cannot_ask(error) from None

    def _answer(self) -> PeerSocket | None:
        if self._error is not None:
            raise _cannot_ask(self._error)
        return self._found


def _cannot_ask(error: OSError) -> Unavailable:
    return Unavailable(
        f"the hub could not ask the system whose connection this is: {error.strerror}",
        hint="Try again in a moment. If it stays so, raise the hub's limit of open files (`ulimit -n`).",
    )
