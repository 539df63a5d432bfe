"""`crewhall pause` and `crewhall resume`: one workflow, or with --all the whole hall; over the tools."""

from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli import render
from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.output import say, tell
from crewhall.errors import InvalidInput
from crewhall.options import read_words

ALL = "--all"
STATUS = {"pause": "paused", "resume": "in_progress"}
USAGE = {"pause": 'crewhall pause WORKFLOW|--all ["REASON"]', "resume": "crewhall resume WORKFLOW|--all"}


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    return carry_out("pause", settings_flags, flags, rest)


def carry_out(what: str, settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    tool, command, arguments = call_for(what, rest)
    hall = Hall(from_environment(settings_flags))
    body, succeeded = hall.call({"name": tool, "command": command.split()}, arguments)
    if not succeeded:
        return tell(body, flags)
    return say(render.json_line(body) if "--json" in flags else render.result(body))


def call_for(what: str, rest: list[str]) -> tuple[str, str, dict[str, str]]:
    """The tool, its command, and its arguments. Raises InvalidInput."""
    is_all, words = _words(what, rest)
    workflow, reason = ([], words) if is_all else (words[:1], words[1:])
    if (not is_all and not workflow) or len(reason) > 1 or (reason and what == "resume"):
        also = ", and at most one reason, in quotes" if what == "pause" else ""
        raise InvalidInput(f"give one workflow's id or --all{also}", hint=USAGE[what])
    why = {"reason": reason[0]} if reason else {}
    if is_all:
        return f"hall_{what}", f"hall {what}", why
    given = {"id": workflow[0], "status": STATUS[what], **why}
    return "workflow_update_status", "workflow update-status", given


def _words(what: str, rest: list[str]) -> tuple[bool, list[str]]:
    """Whether --all is among them, and the others. Raises InvalidInput for other options."""
    found = list(read_words(rest, lambda name, following: False))
    for word in found:
        if word.is_option and word.text != ALL:
            raise InvalidInput(f"unexpected argument '{word.text}'", hint=USAGE[what])
    words = [word.text for word in found if not (word.is_option and word.text == ALL)]
    return len(words) < len(found), words
