"""
A process of another user that connects from a port which is about to be someone else's. As a program it imports
nothing of ours:

    stranger.py OWN_PORT SERVER_PORT REQUEST GREETING        both as hex; it answers each line that it is told

    greet    connect, send the greeting, read some of its answer       ─▶ "met"
    send     connect if it has not, send the request, reset at once    ─▶ "sent"
    storm N  so many times: connect, send the request, reset           ─▶ "sent"
"""

import socket
import struct
import sys

RESET = struct.pack("ii", 1, 0)


def connect(own: int, server: int, host: str = "127.0.0.1") -> socket.socket:
    """A connection from this very port, which ends with a reset. Tried again while another has the port."""
    while True:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        try:
            connection.bind((host, own))
            connection.connect((host, server))
        except OSError:
            connection.close()
        else:
            return connection


def serve(own: int, server: int, request: bytes, greeting: bytes) -> None:
    connection = None
    for line in sys.stdin:
        word, _, count = line.strip().partition(" ")
        for _ in range(int(count or 1)):
            connection = connection or connect(own, server)
            connection.sendall(greeting if word == "greet" else request)
            if word == "greet":
                assert connection.recv(65536)
            else:
                connection.close()
                connection = None
        print("met" if word == "greet" else "sent", flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]), bytes.fromhex(sys.argv[4]))
