"""What the command line prints: lines for people, JSON for programs, errors with a hint."""

import sys
from collections.abc import Mapping
from typing import Any

from crewhall.edges.cli import render
from crewhall.errors import every_failure


def say(text: str) -> int:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return 0


def tell(body: Mapping[str, Any], flags: Mapping[str, str]) -> int:
    """Print an error: the body for programs, a line and a hint for people."""
    if "--json" in flags:
        say(render.json_line(body))
    else:
        sys.stderr.write(render.failure(body["message"], body["hint"]))
    codes = {failure.code: failure.exit_code for failure in every_failure()}
    return codes.get(body["code"], 1)
