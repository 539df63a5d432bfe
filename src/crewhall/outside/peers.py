"""
Who is at the other end of a connection on this machine, as the kernel tells it (Linux).

Each end of a connection is a socket of its own. The kernel is asked for the one whose local address is the client's;
its uid is the user who made it. One question over netlink takes some microseconds; reading the whole socket table in
/proc takes milliseconds, and stands in where netlink is closed.

    accept ─▶ addresses ─▶ ask ─▶ is our own end still connected?     yes: the answer is about this connection

As long as our end is, no other connection can have its two addresses. A client that reset its connection has freed its
port, and whoever connects from there next has another connection: so an answer counts only if our end outlived it.
"""

import errno
import ipaddress
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from crewhall.outside.leftovers import process_ids

Address = tuple[str, int]
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

SOCK_DIAG = 4  # the netlink family
BY_FAMILY = 20  # its one question, and the type of its answer
REQUEST = 1
ANY_COOKIE = 0xFFFF_FFFF
TABLES = {"/proc/net/tcp": False, "/proc/net/tcp6": True}
IS_LINUX = sys.platform == "linux"
FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.001, 0.05
CONNECTED = (1, 8)  # ESTABLISHED and CLOSE_WAIT, among the kernel's states of a connection
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class PeerSocket(NamedTuple):
    """The client's end of a connection: the user who made it, and the inode that its holders have open."""

    uid: int
    inode: int
    is_loopback: bool  # its address is one that no network has


class Connected(Protocol):
    """Our own end of a connection: a socket, or what a transport has in its place."""

    def getpeername(self) -> Any: ...

    def getsockname(self) -> Any: ...

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def peer_of(connection: Connected) -> PeerSocket | None:
    """The other end of this connection, or None when it is closed, of another machine or not to be seen.

    It costs some microseconds. Raises OSError when the kernel could not be asked, as when descriptors are used up.
    """
    if not IS_LINUX:
        return None
    try:
        peer, own = connection.getpeername()[:2], connection.getsockname()[:2]
    except OSError:
        return None  # it has ended
    found = peer_socket(peer, own)
    return found if _is_connected(connection) else None


def is_served_by_us(connection: socket.socket, seconds: float) -> bool:
    """Whether a process of our own user has accepted this connection; it is waited for that long.

    True where the kernel does not even show our own end. Raises OSError as `peer_of` does.
    """
    own = peer_socket(connection.getsockname()[:2], connection.getpeername()[:2]) if IS_LINUX else None
    if own is None:
        return True
    end, pause = time.monotonic() + seconds, FIRST_LOOK_SECONDS
    while (found := peer_of(connection)) is None and time.monotonic() < end and _is_connected(connection):
        time.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS)
    return found is not None and found.uid == os.getuid()


def _is_connected(connection: Connected) -> bool:
    """Whether neither side has reset this connection; the other may have said that it sends no more."""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in CONNECTED
    except OSError:
        return False


def peer_socket(client: Address, server: Address) -> PeerSocket | None:
    """The socket that has these two addresses now, or None when there is none. Raises OSError as `peer_of` does."""
    try:
        return _by_netlink(client, server)
    except OSError:
        return by_table(client, server)


def holders(inode: int) -> list[int]:
    """The processes of our user that have this socket open. It takes some microseconds for each open file.

    Raises OSError when they could not be looked at for want of descriptors.
    """
    wanted, found = f"socket:[{inode}]", []
    for pid in process_ids():
        try:
            with os.scandir(f"/proc/{pid}/fd") as files:
                if any(os.readlink(file.path) == wanted for file in files):
                    found.append(pid)
        except OSError as error:  # another user's, or gone in the meantime
            if error.errno in EXHAUSTED:
                raise
    return found


def _by_netlink(client: Address, server: Address) -> PeerSocket | None:
    """Ask for exactly this connection. Raises OSError where netlink cannot be used."""
    source, target = _ip(client), _ip(server)
    family = socket.AF_INET if source.version == 4 else socket.AF_INET6
    ends = struct.pack("!HH16s16s", client[1], server[1], source.packed, target.packed)
    question = (
        struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0) + ends + struct.pack("=III", 0, *[ANY_COOKIE] * 2)
    )
    header = struct.pack("=IHHII", 16 + len(question), BY_FAMILY, REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, SOCK_DIAG) as kernel:
        kernel.settimeout(1)
        kernel.sendto(header + question, (0, 0))
        answer = kernel.recv(4096)
    kind = struct.unpack_from("=H", answer, 4)[0]
    if kind == BY_FAMILY and answer[20:24] != ends[:4]:
        return None  # a listener at the client's port, for want of a connection
    if kind != BY_FAMILY:
        error = -struct.unpack_from("=i", answer, 16)[0]
        if error == 2:  # ENOENT: there is no such connection
            return None
        raise OSError(error, "the kernel does not tell")
    uid, inode = struct.unpack_from("=II", answer, 16 + 64)
    # A closed end is kept for a while, with no inode, and as root's whoever closed it.
    return PeerSocket(uid, inode, source.is_loopback) if inode else None


def by_table(client: Address, server: Address) -> PeerSocket | None:
    """The same from the tables in /proc; None where they may not be read."""
    for table, v6 in TABLES.items():
        try:
            text = Path(table).read_text("ascii")
        except (FileNotFoundError, PermissionError):
            continue
        _, found, rest = text.partition(f" {_table_address(client, v6)} {_table_address(server, v6)} ")
        fields = rest.split(maxsplit=7)
        if found and fields[6] != "0":
            return PeerSocket(int(fields[4]), int(fields[6]), _ip(client).is_loopback)
    return None


def _ip(address: Address) -> IpAddress:
    """The address; an IPv4 one that a socket for both kinds shows as ::ffff:… is itself."""
    ip = ipaddress.ip_address(address[0])
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip


def _table_address(address: Address, v6: bool) -> str:
    """An address in the format of the table: 32-bit words of network bytes, each read in the machine's own order."""
    ip = _ip(address)
    if v6:
        packed = ip.packed if ip.version == 6 else socket.inet_pton(socket.AF_INET6, f"::ffff:{ip}")
    elif ip.version == 4:
        packed = ip.packed
    else:
        return "none"
    words = struct.unpack(f"{'<' if sys.byteorder == 'little' else '>'}{len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
