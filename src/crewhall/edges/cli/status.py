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
    facts = {"home": str(hall.settings.home)} | facts
    return say(json.dumps(facts) if "--json" in flags else render.facts(facts))
