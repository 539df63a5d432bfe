"""Which processes descend from a test: they have a variable that nobody else has."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Alive = Callable[[], list[str]]


@contextmanager
def marked_environment() -> Iterator[tuple[dict[str, str], Alive]]:
    """An environment, and the command lines of the processes that run with it now."""
    name = f"XDG_TEST_{secrets.token_hex(8)}"  # every program of the hall's gets what begins so

    def alive() -> list[str]:
        return [
            _read(process, "cmdline") for process in Path("/proc").glob("[0-9]*") if name in _read(process, "environ")
        ]

    yield {**os.environ, name: "1"}, alive


def _read(process: Path, name: str) -> str:
    try:
        return (process / name).read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
