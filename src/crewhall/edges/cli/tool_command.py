"""`crewhall <noun> <verb>`: a tool as a command, with an exit code that tells a script how it went."""

import sys
from collections.abc import Mapping
from typing import Any

from crewhall.edges.cli import render
from crewhall.edges.cli.arguments import arguments_of
from crewhall.edges.cli.commands import BRIDGES, OWN_COMMANDS
from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.output import say, tell
from crewhall.edges.cli.progress_line import ProgressLine
from crewhall.errors import Conflict, NotFound
from crewhall.spelling import AT_THE_END, did_you_mean

INTERRUPTED = 130
RULED_NO = 9  # the judge was asked, and its answer is not PASS, valid or without findings


def tool_command(hall: Hall, flags: dict[str, str], rest: list[str], asks_help: bool) -> int:
    tools = hall.tools()
    noun, verb = rest[0], rest[1] if len(rest) > 1 else ""
    verbs = {tool["command"][1]: tool for tool in tools if tool["command"][0] == noun}
    if not verbs:
        commands = sorted({*BRIDGES, *OWN_COMMANDS, *(tool["command"][0] for tool in tools)})
        raise NotFound(
            f"there is no command '{noun}'{did_you_mean(noun, commands, AT_THE_END)}",
            hint=f"There are {', '.join(commands)}; crewhall --help tells more.",
        )
    if verb not in verbs:
        if verb and not asks_help:
            raise NotFound(
                f"there is no command '{noun} {verb}'{did_you_mean(verb, verbs, AT_THE_END)}",
                hint=f"Verbs are {', '.join(sorted(verbs))}.",
            )
        return say(render.verbs(noun, list(verbs.values())))
    tool = verbs[verb]
    if asks_help:
        return say(render.usage(tool))
    arguments = arguments_of(tool, rest[2:])
    try:
        with ProgressLine(sys.stderr) as progress:
            body, succeeded = hall.call(tool, arguments, progress)
    except KeyboardInterrupt:
        sys.stderr.write(f"crewhall: interrupted; {noun} {verb} was told to stop, so look before you repeat it\n")
        return INTERRUPTED
    if not succeeded:
        return tell(body, flags)
    say(render.json_line(body) if "--json" in flags else render.result(body))
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
