"""`crewhall doctor`: find problems and suggest fixes."""

import json
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.bridge.address_files import running_hubs
from crewhall.edges.cli import render
from crewhall.edges.cli.output import say
from crewhall.errors import InvalidInput
from crewhall.options import read_options


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    read_options(rest, {})
    from crewhall.edges.cli.doctor import examine, misread

    try:
        settings = from_environment(settings_flags)
    except InvalidInput as failure:
        findings = misread(failure)
    else:
        findings = examine(settings, running_hubs(settings))
    say(json.dumps({"findings": findings}) if "--json" in flags else render.findings(findings))
    return 1 if any(finding["state"] == "wrong" for finding in findings) else 0
