"""
`crewhall doctor`: find problems and suggest fixes; `--fix` repairs what is safe to repair.

    doctor         checks the machine and the hall, then calls instance_check
    doctor --fix   calls instance_repair instead
"""

import json
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli import render
from crewhall.edges.cli.hall_client import Hall
from crewhall.edges.cli.output import say
from crewhall.errors import Failure
from crewhall.options import read_options


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    fixes = rest == ["--fix"]
    read_options([] if fixes else rest, {})
    from crewhall.edges.cli.doctor import examine, misread

    try:
        settings = from_environment(settings_flags)
    except Failure as failure:
        findings = misread(failure)
    else:
        hall = Hall(settings)
        findings = examine(settings, hall.urls, chores_of(hall))
        if all(finding["state"] == "ok" for finding in findings if finding["what"] == "database"):
            findings += of_instances(hall, fixes)
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


def of_instances(hall: Hall, fixes: bool) -> list[dict[str, Any]]:
    """Problems with the instances of this node; with `fixes`, also the repairs that were made."""
    command = ["instance", "repair" if fixes else "check"]
    name = "_".join(command)
    try:
        body, has_worked = hall.call({"name": name, "command": command, "long": True, "family": "crew"}, {})
    except Failure as failure:
        return [_finding("wrong", failure.message, failure.hint)]
    if not has_worked:
        return [_finding("wrong", body["message"], body["hint"])]
    done = [_finding("fixed", f"{_sentence(one)}: {one['action']}") for one in body.get("done", [])]
    left = body["left"] if fixes else body["differences"]
    shown = [_finding(_gravity(one), _sentence(one), _way_out(one)) for one in left]
    return [*done, *shown] or [_finding("ok", "all in order on this node")]


def _sentence(one: dict[str, Any]) -> str:
    return f"{one['name'].replace('_', ' ')}: {one['instance_id']}: {one['about']}"


def _gravity(one: dict[str, Any]) -> str:
    return "note" if one["name"] in ("detached", "unfinished", "process_gone", "interrupted") else "wrong"


def _way_out(one: dict[str, Any]) -> str:
    return f"{one['action'].capitalize()}: {one['hint']}"


def _finding(state: str, finding: str, hint: str = "") -> dict[str, Any]:
    return {"state": state, "what": "instances", "finding": finding, "hint": hint}
