"""
The command line: `crewhall up`, a few commands about the hall itself, and every tool as `crewhall <noun> <verb>`.

It starts quickly: when a hub runs, it is asked over HTTP, and only the standard library is imported. When none
runs, the same call goes through the door in this process.
"""

import importlib
import logging
import os
import sys

from crewhall import __version__
from crewhall.config import from_environment
from crewhall.edges.cli.commands import BRIDGES, OWN_COMMANDS, Command
from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.output import say, tell
from crewhall.edges.cli.tool_command import INTERRUPTED, tool_command
from crewhall.errors import Failure, InvalidInput, Unavailable
from crewhall.options import HINT, read_words

USAGE = """\
usage: crewhall [--home DIR] [--json] [--debug] <command> …

  up [--port N] [--host H]       serve the hall: dashboard, MCP, REST
  mcp [--standalone] …           speak MCP on stdin and stdout, for a client's config; `mcp --help`
  mcp-server …                   the same with the tools for pull requests alone
  config --client C [--write] …  the hall in the settings of Claude Code, Codex, Cursor …; `config --help`
  watch [--topic T] [--after N]  tell what happens in the hall, as it happens
  status                         is a hub running, and what is in the hall
  inbox [ID | --all]             what agents wrote to you; an ID shows one message and marks it read
  reply ID TEXT                  answer a message from an agent
  pause WORKFLOW|--all [REASON]  stop a workflow, or the whole hall: no task is started or finished
  resume WORKFLOW|--all          end that pause
  link                           a new one-time link to the dashboard
  backup FILE                    a copy of the hall, while it runs
  restore FILE [--replace]       put a backup's content into this hall
  doctor [--fix]                 find problems and suggest fixes; --fix repairs instances
  selftest [--writers N] …       N writers (8) at once on a throw-away copy, --each times (50): is anything lost?

  <noun> <verb> …                any tool; `crewhall <noun>` lists the verbs, `--help` after one explains it
  <noun> <verb> … -- TEXT        a text that begins with -- is no option after a -- of its own
"""
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
    """The flags that every command has, wherever they stand before `--`, and the other words, `--` among them."""
    flags: dict[str, str] = {}
    rest: list[str] = []
    for word in read_words(words, lambda name, _: FLAGS.get(name, False)):
        if word.is_text and "--" not in rest:
            rest.append("--")
        if word.name not in FLAGS or (word.value is not None and not FLAGS[word.name]):
            rest.append(word.text)
        else:
            flags[word.name] = word.value or ""
    return flags, rest


def command(flags: dict[str, str], rest: list[str]) -> int:
    asks_help = "--help" in flags or "-h" in flags
    if "--version" in flags:
        return say(f"crewhall {__version__}")
    if flags.get("--home") == "":
        raise InvalidInput("--home needs a directory", hint=HINT)
    if rest[:1] == ["help"] and len(rest) > 1:
        rest, asks_help = rest[1:], True
    if not rest or rest == ["help"]:
        code = say(USAGE.rstrip())
        return code if asks_help or rest else code + (2 if not flags else 0)
    if asks_help and rest[0] in BRIDGES:
        from crewhall.edges.bridge.command import USAGE as BRIDGE_USAGE

        return say(BRIDGE_USAGE.rstrip())
    settings_flags = {"home": flags["--home"]} if "--home" in flags else {}
    if rest[0] in OWN_COMMANDS:
        if asks_help and rest[0] != "config":
            return say(next(line for line in USAGE.splitlines() if line.startswith(f"  {rest[0]}")).strip())
        run_command: Command = importlib.import_module(OWN_COMMANDS[rest[0]]).run
        return run_command(settings_flags, flags | ({"--help": ""} if asks_help else {}), rest[1:])
    return tool_command(Hall(from_environment(settings_flags)), flags, rest, asks_help)
