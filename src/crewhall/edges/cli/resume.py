"""`crewhall resume`: see pause.py."""

from typing import Any

from crewhall.edges.cli.pause import carry_out


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    return carry_out("resume", settings_flags, flags, rest)
