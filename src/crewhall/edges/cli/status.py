"""`crewhall status`: whether a hub runs, and what is in the hall."""

import json
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli import render
from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.output import say, tell
from crewhall.options import read_options


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    read_options(rest, {})
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
    facts = {"home": str(hall.settings.home), **facts}
    if "--json" in flags:
        return say(json.dumps(facts))
    if "unread_messages" in facts:  # a hub of an older version does not say
        facts["unread_messages"] = _unread(facts["unread_messages"])
    return say(render.facts(facts))


def _unread(unread: dict[str, Any]) -> str:
    """How many messages the operator has not read, by priority, and how to read them."""
    if not unread["count"]:
        return "0"
    some = [f"{number} {priority}" for priority, number in reversed(unread["by_priority"].items()) if number]
    return f"{unread['count']} ({', '.join(some)}); `crewhall inbox` shows them"
