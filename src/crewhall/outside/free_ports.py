"""Ports that nobody listens on."""

import socket
from collections.abc import Container, Iterable


def free_ports(ports: Iterable[int], taken: Container[int], most: int) -> list[int]:
    """The first ports on which a program of this machine could listen now, `most` of them at most."""
    found: list[int] = []
    for port in ports:
        if len(found) == most:
            break
        if port not in taken and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
