"""`crewhall up`: serve the hall."""

from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli.output import say
from crewhall.options import read_options


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options = read_options(rest, {"--port": "server.port", "--host": "server.host", "--lock": "lock"})
    lock = options.pop("lock", None)  # a bridge's gift to the hub that it starts
    from crewhall.edges.cli.in_process import serve_here

    return serve_here(from_environment(settings_flags | options), say, None if lock is None else int(lock))
