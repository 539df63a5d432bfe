"""
The command line: `crewhall up`, a few commands about the hall itself, and every tool as `crewhall <noun> <verb>`.

It starts quickly: when a hub runs, it is asked over HTTP, and only the standard library is imported. When none
runs, the same call goes through the door in this process.
"""

import difflib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from crewhall import __version__
from crewhall.config import from_environment
from crewhall.edges.cli import render
from crewhall.edges.cli.arguments import arguments_of
from crewhall.edges.cli.backup import backup_command
from crewhall.edges.cli.doctor_command import doctor_command
from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.link import link_command
from crewhall.edges.cli.output import say, tell
from crewhall.edges.cli.progress_line import ProgressLine
from crewhall.edges.cli.restore import restore_command
from crewhall.edges.cli.selftest_command import selftest_command
from crewhall.edges.cli.status import status_command
from crewhall.edges.cli.up import up_command
from crewhall.edges.cli.watch import watch_command
from crewhall.errors import Conflict, Failure, InvalidInput, NotFound, Unavailable

USAGE = """\
usage: crewhall [--home DIR] [--json] [--debug] <command> …

  up [--port N] [--host H]       serve the hall: dashboard, MCP, REST
  mcp [--standalone] …           speak MCP on stdin and stdout, for a client's config; `mcp --help`
  mcp-server …                   the same with the tools for pull requests alone
  config --client C [--write] …  the hall in the settings of Claude Code, Codex, Cursor …; `config --help`
  watch [--topic T] [--after N]  tell what happens in the hall, as it happens
  status                         is a hub running, and what is in the hall
  link                           a new one-time link to the dashboard
  backup FILE                    a copy of the hall, while it runs
  restore FILE [--replace]       put a backup's content into this hall
  doctor                         look for what is wrong, and how to mend it
  selftest [--writers N] …       N writers (8) at once on a throw-away copy, --each times (50): is anything lost?

  <noun> <verb> …                any tool; `crewhall <noun>` lists the verbs, `--help` after one explains it
"""
INTERRUPTED = 130
RULED_NO = 9  # the judge was asked, and its answer is not PASS, valid or without findings
BRIDGES = ("mcp", "mcp-server")  # commands that __main__ takes before this file is read
FLAGS = {"--json": False, "--debug": False, "--help": False, "-h": False, "--version": False, "--home": True}


def main() -> int:
    logging.getLogger("psycopg").addHandler(logging.NullHandler())  # our own error says it, in one line
    return run(sys.argv[1:])


def run(words: list[str]) -> int:
    """Do what the words say; the exit code."""
    flags, rest = split_flags(words)
    try:
        return command(flags, rest)
    except Failure as failure:
        if "--debug" in flags:
            raise
        return tell(failure.body(), flags)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if "--debug" in flags:
            raise
        return tell(Unavailable(str(error), hint="Look at the path and its permissions, then try again.").body(), flags)
    except KeyboardInterrupt:
        return INTERRUPTED


def split_flags(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The flags that every command has, wherever they stand, and the other words."""
    flags: dict[str, str] = {}
    rest: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if name not in FLAGS or (equals and not FLAGS[name]):
            rest.append(word)
        elif FLAGS[name] and not equals:
            flags[name] = waiting.pop(0) if waiting else ""
        else:
            flags[name] = value
    return flags, rest


def command(flags: dict[str, str], rest: list[str]) -> int:
    asks_help = "--help" in flags or "-h" in flags
    if "--version" in flags:
        return say(f"crewhall {__version__}")
    if flags.get("--home") == "":
        raise InvalidInput("--home needs a directory", hint="crewhall --help shows the commands.")
    if rest[:1] == ["help"] and len(rest) > 1:
        rest, asks_help = rest[1:], True
    if not rest or rest == ["help"]:
        code = say(USAGE.rstrip())
        return code if asks_help or rest else code + (2 if not flags else 0)
    if asks_help and rest[0] in BRIDGES:
        from crewhall.edges.bridge.command import USAGE as BRIDGE_USAGE

        return say(BRIDGE_USAGE.rstrip())
    settings_flags = {"home": flags["--home"]} if "--home" in flags else {}
    if rest[0] in OWN:
        if asks_help and rest[0] != "config":
            return say(next(line for line in USAGE.splitlines() if line.startswith(f"  {rest[0]}")).strip())
        return OWN[rest[0]](settings_flags, flags | ({"--help": ""} if asks_help else {}), rest[1:])
    return tool_command(Hall(from_environment(settings_flags)), flags, rest, asks_help)


# A tool as a command


def tool_command(hall: Hall, flags: dict[str, str], rest: list[str], asks_help: bool) -> int:
    tools = hall.tools()
    noun, verb = rest[0], rest[1] if len(rest) > 1 else ""
    verbs = {tool["command"][1]: tool for tool in tools if tool["command"][0] == noun}
    if not verbs:
        commands = sorted({*BRIDGES, *OWN, *(tool["command"][0] for tool in tools)})
        near = difflib.get_close_matches(noun, commands, n=1)
        raise NotFound(
            f"there is no command '{noun}'" + (f", did you mean '{near[0]}'?" if near else ""),
            hint=f"There are {', '.join(commands)}; crewhall --help tells more.",
        )
    if verb not in verbs:
        if verb and not asks_help:
            near = difflib.get_close_matches(verb, verbs, n=1)
            raise NotFound(
                f"there is no command '{noun} {verb}'" + (f", did you mean '{near[0]}'?" if near else ""),
                hint=f"Verbs are {', '.join(sorted(verbs))}.",
            )
        return say(render.verbs(noun, list(verbs.values())))
    tool = verbs[verb]
    if asks_help:
        return say(render.usage(tool))
    arguments = arguments_of(tool, rest[2:])
    try:
        with ProgressLine(sys.stderr) as told:
            body, succeeded = hall.call(tool, arguments, told)
    except KeyboardInterrupt:
        sys.stderr.write(f"crewhall: interrupted; {noun} {verb} was told to stop, so look before you repeat it\n")
        return INTERRUPTED
    if not succeeded:
        return tell(body, flags)
    say(json.dumps(body, ensure_ascii=False) if "--json" in flags else render.result(body))
    return _exit_code(noun, body)


def _exit_code(noun: str, body: Mapping[str, Any]) -> int:
    """`task claim … && work`, `project run test && …` and `judge review … && merge` go on only when they should."""
    if body.get("success") is False:
        return Conflict.exit_code
    if noun == "judge" and _is_no(body):
        return RULED_NO
    code = body.get("exit_code", 0)
    return code if code in range(256) else 1


def _is_no(body: Mapping[str, Any]) -> bool:
    is_open = body.get("verdict", "PASS") != "PASS" or body.get("available") is False
    return is_open or body.get("valid") is False or bool(body.get("findings_count"))


# Commands about the hall itself


def config_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    from crewhall.edges.cli.config.command import run as run_config

    return run_config(settings_flags, flags, rest)


OWN: dict[str, Callable[[dict[str, Any], dict[str, str], list[str]], int]] = {
    "up": up_command,
    "config": config_command,
    "watch": watch_command,
    "status": status_command,
    "link": link_command,
    "backup": backup_command,
    "restore": restore_command,
    "doctor": doctor_command,
    "selftest": selftest_command,
}
