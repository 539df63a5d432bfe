"""Who is at the other end of a connection, with real sockets."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from crewhall.edges.http.peer import Peer
from crewhall.errors import Unavailable
from crewhall.outside.peers import Address, by_table, holders, is_served_by_us, peer_of, peer_socket
from tests.conftest import eventually
from tests.edges import stranger
from tests.postgres import free_port


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
        found = peer_of(server)
        assert found is not None and (found.uid, found.is_loopback) == (os.getuid(), True)
        assert found == peer_socket(*ends(server)) == by_table(*ends(server))


def test_a_closed_connection_is_nobodys() -> None:
    """The kernel keeps a closed end for a minute and says that it is root's: a hub of root's must not believe it."""
    with connection(socket.AF_INET, "127.0.0.1", "127.0.0.1") as (client, server):
        client_at, server_at = ends(server)
        client.close()
        assert server.recv(1) == b""
        assert peer_of(server) is None
        assert by_table(client_at, server_at) is None
        server.close()
        eventually(lambda: peer_socket(client_at, server_at) is None)


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
        found = peer_of(server)
        assert found is None or not found.is_loopback


def test_an_address_of_another_machine_is_nobodys() -> None:
    for address in ("192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "0.0.0.0"):
        assert peer_socket((address, 1234), ("127.0.0.1", 3001)) is None


def test_a_connection_that_never_was_is_nobodys() -> None:
    assert peer_socket(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    assert by_table(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    with connection(socket.AF_INET, "127.0.0.1", "127.0.0.1") as (_, server):
        client_at, server_at = ends(server)
        assert peer_socket(client_at, (server_at[0], server_at[1] ^ 1)) is None


def test_the_kernel_is_asked_for_one_connection_not_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where netlink answers, the tables (milliseconds on a large machine) are not read."""
    monkeypatch.setattr("crewhall.outside.peers.TABLES", {})
    with connection(socket.AF_INET, "127.0.0.1", "127.0.0.1") as (_, server):
        found = peer_of(server)
        assert found is not None and found.uid == os.getuid()


def test_a_listener_at_the_clients_port_is_not_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert peer_socket(("127.0.0.1", port), ("127.0.0.1", 1)) is None


class Swapped:
    """A server's end whose client resets just before the kernel is asked, and whose port has a new owner by then."""

    def __init__(self, server: socket.socket, swap: Callable[[], object]) -> None:
        self._server, self._swap = server, swap
        self.getsockopt = server.getsockopt

    def getpeername(self) -> Any:
        return self._server.getpeername()

    def getsockname(self) -> Any:
        name = self._server.getsockname()
        self._swap()
        return name


def test_an_answer_about_a_port_that_changed_its_owner_meanwhile_does_not_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        own, to = free_port(), listener.getsockname()[1]
        first = stranger.connect(own, to)
        server = stack.enter_context(listener.accept()[0])

        def swap() -> None:
            first.close()
            stack.enter_context(stranger.connect(own, to))

        assert peer_of(server) is not None
        assert peer_of(Swapped(server, swap)) is None
        assert peer_of(stack.enter_context(listener.accept()[0])) is not None


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open nothing for the length of the block."""
    lowest = os.dup(0)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Transport(asyncio.BaseTransport):
    """A transport, as far as a peer looks at it."""

    def is_closing(self) -> bool:
        return False


def test_a_kernel_that_cannot_be_asked_is_asked_again() -> None:
    """Out of descriptors, a local client is not a stranger; and what was not known is not remembered."""
    with connection(socket.AF_INET, "127.0.0.1", "127.0.0.1") as (client, server):
        with no_more_files():
            peer = Peer(Transport({"socket": server}))
            with pytest.raises(Unavailable, match="Too many open files"):
                _ = peer.is_same_user
            with pytest.raises(OSError, match="Too many open files"):
                holders(os.fstat(client.fileno()).st_ino)
        peer.ask()
        assert peer.is_same_user
        assert os.getpid() in holders(os.fstat(client.fileno()).st_ino)


def test_a_process_is_waited_for_until_it_has_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        assert not is_served_by_us(client, 0.05)
        stack.enter_context(listener.accept()[0])
        assert is_served_by_us(client, 5)
