"""`crewhall watch`: print events as they happen."""

import json
import os
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli import render
from crewhall.edges.cli.output import say
from crewhall.errors import InvalidInput
from crewhall.options import read_options


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options = read_options(rest, {"--after": "after", "--topic": "topic"})
    after = options.get("after")
    if after is not None and not (after.isascii() and after.isdigit()):
        raise InvalidInput(f"--after is '{after}'", hint="Give an event's number, or 0 for the oldest kept.")
    from crewhall.edges.cli.in_process import watch_here

    line = json.dumps if "--json" in flags else render.event
    try:
        watch_here(
            from_environment(settings_flags),
            None if after is None else int(after),
            options.get("topic"),
            os.environ.get("CREWHALL_TOKEN"),
            lambda event: say(line(event)),
        )
    except KeyboardInterrupt:
        return 0
