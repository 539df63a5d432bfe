"""
Python runs this before anything else where `environment()` of tests/edges/prefork.py is in force.

It hands a command of crewhall, or a hub that a bridge starts, to the process that forks; this one passes signals on and
ends as the forked one does. Bridges are left alone: to start them costs little. So is what the socket is closed to.
"""

import os
import sys


def command() -> list[str] | None:
    """The words after `crewhall`, if this is to be one that others can run."""
    program, *words = sys.orig_argv[1:] or [""]
    if [program, *words[:2]] == ["-P", "-m", "crewhall"]:
        words = words[2:]
    elif os.path.basename(program) != "crewhall":
        return None
    return None if {"mcp", "mcp-server"} & set(words) else words


def hand_over(words: list[str], address: str) -> None:
    """Have it forked, and end with its exit code. Returns where nobody listens."""
    import json
    import signal
    import socket

    lock = [int(words[words.index("--lock") + 1])] if "--lock" in words else []
    request = {
        "words": words,
        "environment": dict(os.environ),
        "numbers": [0, 1, 2, *lock],
        "cwd": os.getcwd(),
        "session": os.getsid(0) == os.getpid(),
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(address)
    except OSError:
        return
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2, *lock])
    pid = int(connection.recv(100))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda sent, _: os.kill(pid, sent))
    for file in (0, 1, 2, *lock):
        os.close(file)  # a pipe ends, and a lock is free, when the forked one lets go
    code = int(connection.recv(100))
    if code < 0:
        if -code != signal.SIGKILL:  # which no process can handle, and none can set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if (address := os.environ.get("TEST_PREFORK")) and (words := command()) is not None:
    hand_over(words, address)
