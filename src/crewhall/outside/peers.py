"""
Who is at the other end of a loopback connection, as the kernel tells it (Linux).

Each end of a connection is a socket of its own. The kernel is asked for the one whose local address is the client's;
its uid is the user who made it. One question over netlink takes some microseconds; reading the whole socket table in
/proc takes milliseconds, and stands in where netlink is closed.
"""

import ipaddress
import os
import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

from crewhall.outside.leftovers import process_ids

Address = tuple[str, int]
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

SOCK_DIAG = 4  # the netlink family
BY_FAMILY = 20  # its one question, and the type of its answer
REQUEST = 1
ANY_COOKIE = 0xFFFF_FFFF
TABLES = {"/proc/net/tcp": False, "/proc/net/tcp6": True}


class PeerSocket(NamedTuple):
    """The client's end of a connection: the user who made it, and the inode that its holders have open."""

    uid: int
    inode: int


def peer_uid(client: Address, server: Address) -> int | None:
    """The user whose process holds the client's end of this connection, or None when the kernel does not say."""
    found = peer_socket(client, server) if _ip(client).is_loopback else None
    return found.uid if found else None


def peer_socket(client: Address, server: Address) -> PeerSocket | None:
    """The client's end of this connection, or None when it is closed, of another machine or not to be seen."""
    try:
        return _by_netlink(client, server)
    except OSError:
        return by_table(client, server)


def holders(inode: int) -> list[int]:
    """The processes of our user that have this socket open. It takes some microseconds for each open file."""
    wanted, found = f"socket:[{inode}]", []
    for pid in process_ids():
        try:
            with os.scandir(f"/proc/{pid}/fd") as files:
                if any(os.readlink(file.path) == wanted for file in files):
                    found.append(pid)
        except OSError:  # another user's, or gone in the meantime
            continue
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
    if kind != BY_FAMILY:
        error = -struct.unpack_from("=i", answer, 16)[0]
        if error == 2:  # ENOENT: there is no such connection
            return None
        raise OSError(error, "the kernel does not tell")
    uid, inode = struct.unpack_from("=II", answer, 16 + 64)
    # A closed end is kept for a while, with no inode, and as root's whoever closed it.
    return PeerSocket(uid, inode) if inode else None


def by_table(client: Address, server: Address) -> PeerSocket | None:
    """The same from the tables in /proc."""
    for table, v6 in TABLES.items():
        try:
            text = Path(table).read_text("ascii")
        except OSError:
            continue
        _, found, rest = text.partition(f" {_table_address(client, v6)} {_table_address(server, v6)} ")
        fields = rest.split(maxsplit=7)
        if found and fields[6] != "0":
            return PeerSocket(int(fields[4]), int(fields[6]))
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
