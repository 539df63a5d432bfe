"""The names of the commands that are no tools, and where each is. Standard library only."""

from collections.abc import Callable
from typing import Any

Command = Callable[[dict[str, Any], dict[str, str], list[str]], int]  # settings, flags and the other words: exit code
BRIDGES = ("mcp", "mcp-server")  # __main__ runs these before it imports the command line
# Modules with a `run` each, imported when the command is given: the command line starts with little.
OWN_COMMANDS = {
    "up": "crewhall.edges.cli.up",
    "config": "crewhall.edges.cli.config.command",
    "watch": "crewhall.edges.cli.watch",
    "status": "crewhall.edges.cli.status",
    "inbox": "crewhall.edges.cli.inbox",
    "reply": "crewhall.edges.cli.reply",
    "pause": "crewhall.edges.cli.pause",
    "resume": "crewhall.edges.cli.resume",
    "link": "crewhall.edges.cli.link",
    "backup": "crewhall.edges.cli.backup",
    "restore": "crewhall.edges.cli.restore",
    "doctor": "crewhall.edges.cli.doctor_command",
    "selftest": "crewhall.edges.cli.selftest_command",
}
