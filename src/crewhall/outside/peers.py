"""
Who is at the other end of a loopback connection, as the kernel tells it (Linux).

The socket table has a row for each end. The client's row is the one whose local address is the client's; its uid
is the user who made that socket.
"""

import ipaddress
import socket
import struct
import sys

Address = tuple[str, int]
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def peer_uid(client: Address, server: Address) -> int | None:
    """The user whose process holds the client's end of this connection, or None when the kernel does not say."""
    if not _ip(client).is_loopback:
        return None
    wanted = {(_written(client, v6), _written(server, v6)) for v6 in (False, True)}
    for table in TABLES:
        try:
            with open(table, encoding="ascii") as rows:
                for row in rows:
                    fields = row.split()
                    # A closed end stays in the table for a while, with no inode, and as root's whoever closed it.
                    if (fields[1], fields[2]) in wanted and fields[9] != "0":
                        return int(fields[7])
        except OSError:
            continue
    return None


def _ip(address: Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address; an IPv4 one that a socket for both kinds shows as ::ffff:… is itself."""
    ip = ipaddress.ip_address(address[0])
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip


def _written(address: Address, v6: bool) -> str:
    """An address as the table writes it: 32-bit words of network bytes, each read in the machine's own order."""
    ip = _ip(address)
    if v6:
        packed = ip.packed if ip.version == 6 else socket.inet_pton(socket.AF_INET6, f"::ffff:{ip}")
    elif ip.version == 4:
        packed = ip.packed
    else:
        return ""
    words = struct.unpack(f"{'<' if sys.byteorder == 'little' else '>'}{len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
