"""Free ports, taken on 127.0.0.1 and on ::1 together, since `localhost` may mean either."""

import errno
import socket
from collections.abc import Collection, Iterator

RANGE = 2000  # ports that are tried
BACKLOG = 512


class NoPort(Exception):
    """None of the ports could be had."""


def take_port(wanted: int | None, first: int, taken: Collection[int]) -> tuple[int, list[socket.socket]]:
    """A port and its listening sockets: the wanted one if it is free, else the first free one from `first` up.

    `taken` are passed over without a look. Where `first` is 0 any port will do. Raises NoPort.
    """
    for port in _candidates(wanted, first):
        if port == 0 or port not in taken:
            listeners = _listeners(port)
            if listeners:
                return listeners[0].getsockname()[1], listeners
    raise NoPort(f"no port from {first} to {min(first + RANGE, 65_535)} is free")


def _candidates(wanted: int | None, first: int) -> Iterator[int]:
    if wanted:
        yield wanted
    yield from [0] * 20 if first == 0 else range(first, min(first + RANGE, 65_536))


def _listeners(port: int) -> list[socket.socket]:
    """The port on every loopback address that this machine has; nothing when one of them is another's."""
    found: list[socket.socket] = []
    try:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            listener = _listener(family, host, found[0].getsockname()[1] if found else port)
            if listener is not None:
                found.append(listener)
    except OSError:
        for listener in found:
            listener.close()
        return []
    return found


def _listener(family: int, host: str, port: int) -> socket.socket | None:
    """A listening socket, or None when this machine has no such address. Raises OSError when the port is taken."""
    listener: socket.socket | None = None
    try:
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        if family == socket.AF_INET6 and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise
    return listener
