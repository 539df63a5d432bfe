"""`crewhall doctor`: find problems and suggest fixes."""

import json
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli import render
from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.output import say
from crewhall.errors import Failure, InvalidInput
from crewhall.options import read_options


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    read_options(rest, {})
    from crewhall.edges.cli.doctor import examine, misread

    try:
        settings = from_environment(settings_flags)
    except InvalidInput as failure:
        findings = misread(failure)
    else:
        hall = Hall(settings)
        findings = examine(settings, hall.urls, chores_of(hall))
    say(json.dumps({"findings": findings}) if "--json" in flags else render.findings(findings))
    return 1 if any(finding["state"] == "wrong" for finding in findings) else 0


def chores_of(hall: Hall) -> list[dict[str, Any]] | None:
    """How the chores of the running hub went; None when none runs, or it does not say."""
    if hall.url is None:
        return None
    try:
        status, body = hall.ask("GET", "/api/v1/chores")
    except Failure:
        return None
    return list(body["chores"]) if status == 200 else None
