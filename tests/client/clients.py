"""Clients of servers that play along, and what is left of their processes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crewhall.client import Client

HERE = Path(__file__).parent


def stdio_command(*names: str) -> list[str]:
    """The words that start a server with tools of these names, and with all that it can do besides."""
    return [sys.executable, "-S", str(HERE / "stdio_server.py"), *names]


@contextmanager
def single_server_client(*names: str, **options: Any) -> Iterator[Client]:
    """A client of one such server, called `one`."""
    with Client({"one": stdio_command(*names)}, **options) as client:
        yield client


def is_waiting(client: Client) -> bool:
    """Whether a call of `wait` has come to the server."""
    return "(it waits)" in [notice["method"] for notice in client.call_tool("heard")["notices"]]
