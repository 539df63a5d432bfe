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
from pathlib import Path
from typing import Any

from crewhall import __version__
from crewhall.config import from_environment
from crewhall.edges.bridge.address_files import running_hubs
from crewhall.edges.cli import render
from crewhall.edges.cli.arguments import arguments_of
from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.progress_line import ProgressLine
from crewhall.errors import Conflict, Failure, InvalidInput, NotFound, Unavailable, every_failure

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


def say(text: str) -> int:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return 0


def tell(body: Mapping[str, Any], flags: Mapping[str, str]) -> int:
    """Print an error: the body for programs, a line and a hint for people."""
    if "--json" in flags:
        say(json.dumps(body, ensure_ascii=False))
    else:
        sys.stderr.write(f"crewhall: {body['message']}\n  {body['hint']}\n")
    codes = {failure.code: failure.exit_code for failure in every_failure()}
    return codes.get(body["code"], 1)


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


def up_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options = options_of(rest, {"--port": "server.port", "--host": "server.host", "--lock": "lock"})
    lock = options.pop("lock", None)  # a bridge's gift to the hub that it starts
    from crewhall.edges.cli.in_process import serve_here

    return serve_here(from_environment(settings_flags | options), say, None if lock is None else int(lock))


def config_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    from crewhall.edges.cli.config.command import run as run_config

    return run_config(settings_flags, flags, rest)


def watch_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options = options_of(rest, {"--after": "after", "--topic": "topic"})
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


def status_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options_of(rest, {})
    hall = Hall(from_environment(settings_flags))
    facts: dict[str, Any]
    if hall.url is not None:
        status, facts = hall.ask("GET", "/api/v1/hub")
        if status != 200:
            return tell(facts, flags)
        facts = {"running": True, "url": hall.url, "other_hubs": hall.urls[1:]} | facts
    else:
        from crewhall.edges.cli.in_process import status_here

        facts = {"running": False} | status_here(hall.settings)
    facts = {"home": str(hall.settings.home)} | facts
    return say(json.dumps(facts) if "--json" in flags else render.facts(facts))


def link_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options_of(rest, {})
    settings = from_environment(settings_flags)
    urls = running_hubs(settings)
    if not urls:
        raise Unavailable("no hub of this hall runs here", hint="Start one with `crewhall up`; it prints a link.")
    from crewhall.edges.cli.in_process import link_here, refuse_agents

    refuse_agents(settings, "link", os.environ.get("CREWHALL_TOKEN"))
    link = link_here(settings, urls[0])
    return say(json.dumps({"url": link}) if "--json" in flags else link)


def backup_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    target = Path(one_word(rest, "FILE"))
    settings = from_environment(settings_flags)
    from crewhall.edges.cli.in_process import backup_here, refuse_agents

    refuse_agents(settings, "backup", os.environ.get("CREWHALL_TOKEN"))
    rows = backup_here(settings, target)
    return say(json.dumps({"file": rest[0], "rows": rows}) if "--json" in flags else f"{rows} rows are in {rest[0]}")


def restore_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    replace = "--replace" in rest
    name = one_word([word for word in rest if word != "--replace"], "FILE")
    settings = from_environment(settings_flags)
    urls = running_hubs(settings)
    if urls:
        raise Unavailable(f"a hub of this hall runs at {urls[0]}", hint="Stop it first, then restore.")
    from crewhall.edges.cli.in_process import refuse_agents, restore_here

    refuse_agents(settings, "restore", os.environ.get("CREWHALL_TOKEN"))
    rows = restore_here(settings, Path(name), replace)
    return say(json.dumps({"file": name, "rows": rows}) if "--json" in flags else f"{rows} rows are back from {name}")


def doctor_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options_of(rest, {})
    from crewhall.edges.cli.doctor import examine, misread

    try:
        settings = from_environment(settings_flags)
    except InvalidInput as failure:
        findings = misread(failure)
    else:
        findings = examine(settings, running_hubs(settings))
    say(json.dumps({"findings": findings}) if "--json" in flags else render.findings(findings))
    return 1 if any(finding["state"] == "wrong" for finding in findings) else 0


def selftest_command(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options = options_of(rest, {"--writers": "writers", "--each": "each"})
    settings = from_environment(settings_flags)
    from crewhall.edges.cli.in_process import refuse_agents
    from crewhall.edges.cli.selftest import measure, numbers, shown

    chosen = numbers(options)
    refuse_agents(settings, "selftest", os.environ.get("CREWHALL_TOKEN"))
    found = measure(settings, *chosen, lambda line: sys.stderr.write(f"{line}\n"))
    say(json.dumps(found) if "--json" in flags else shown(found))
    return 0 if found["passed"] else 1


def options_of(rest: list[str], known: Mapping[str, str]) -> dict[str, Any]:
    """`--name value` words as settings. Raises InvalidInput for any other word."""
    found: dict[str, Any] = {}
    waiting = list(rest)
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if name not in known:
            raise InvalidInput(f"'{name}' has no place here", hint="crewhall --help shows the commands.")
        if not equals and not waiting:
            raise InvalidInput(f"{name} needs a value", hint="crewhall --help shows the commands.")
        found[known[name]] = value if equals else waiting.pop(0)
    return found


def one_word(rest: list[str], name: str) -> str:
    for word in rest:
        if word.startswith("--"):
            raise InvalidInput(f"'{word}' has no place here", hint="crewhall --help shows the commands.")
    if len(rest) != 1:
        raise InvalidInput(f"give one {name}", hint="crewhall --help shows the commands.")
    return rest[0]


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
