"""Who is at the other end of a connection, with real sockets."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from crewhall.outside.peers import Address, by_table, peer_socket, peer_uid
from tests.conftest import eventually


@contextmanager
def connection(family: int, bind_to: str, connect_to: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection over loopback: the client's and the server's."""
    try:
        with socket.socket(family) as listener:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((bind_to, 0))
            listener.listen()
            client = socket.create_connection((connect_to, listener.getsockname()[1]), 5)
            server, _ = listener.accept()
    except OSError as error:
        pytest.skip(f"{bind_to} is not on this machine: {error}")
    with client, server:
        yield client, server


def ends(server: socket.socket) -> tuple[Address, Address]:
    """The client's and the server's address as a server sees them."""
    return server.getpeername()[:2], server.getsockname()[:2]


@pytest.mark.parametrize(
    ("family", "bind_to", "connect_to", "seen"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.3", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1", "::ffff:127.0.0.1"),
    ],
)
def test_the_user_at_the_other_end_is_known(family: int, bind_to: str, connect_to: str, seen: str) -> None:
    with connection(family, bind_to, connect_to) as (_, server):
        assert server.getpeername()[0] == seen
        assert peer_uid(*ends(server)) == os.getuid()
        assert peer_socket(*ends(server)) == by_table(*ends(server))


def test_a_closed_connection_is_nobodys() -> None:
    """The kernel keeps a closed end for a minute and says that it is root's: a hub of root's must not believe it."""
    with connection(socket.AF_INET, "127.0.0.1", "127.0.0.1") as (client, server):
        client_at, server_at = ends(server)
        client.close()
        assert server.recv(1) == b""
        assert peer_uid(client_at, server_at) is None
        assert by_table(client_at, server_at) is None
        server.close()
        eventually(lambda: peer_uid(client_at, server_at) is None)


def own_address() -> str:
    """This machine's address in a network, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine is in no network")
        return str(probe.getsockname()[0])


def test_a_connection_over_a_network_is_nobodys_even_from_here() -> None:
    with connection(socket.AF_INET, own_address(), own_address()) as (_, server):
        assert peer_uid(*ends(server)) is None


def test_an_address_of_another_machine_is_nobodys() -> None:
    for address in ("192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "0.0.0.0"):
        assert peer_uid((address, 1234), ("127.0.0.1", 3001)) is None


def test_a_connection_that_never_was_is_nobodys() -> None:
    assert peer_uid(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    assert by_table(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    with connection(socket.AF_INET, "127.0.0.1", "127.0.0.1") as (_, server):
        client_at, server_at = ends(server)
        assert peer_uid(client_at, (server_at[0], server_at[1] ^ 1)) is None


def test_the_kernel_is_asked_for_one_connection_not_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where netlink answers, the tables (milliseconds on a large machine) are not read."""
    monkeypatch.setattr("crewhall.outside.peers.TABLES", {})
    with connection(socket.AF_INET, "127.0.0.1", "127.0.0.1") as (_, server):
        assert peer_uid(*ends(server)) == os.getuid()
