"""`crewhall selftest`: many writers at once on a throw-away hall."""

import json
import os
import sys
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli.output import say
from crewhall.options import read_options


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options = read_options(rest, {"--writers": "writers", "--each": "each"})
    settings = from_environment(settings_flags)
    from crewhall.edges.cli.in_process import refuse_agents
    from crewhall.edges.cli.selftest import figures_text, measure, numbers

    chosen = numbers(options)
    refuse_agents(settings, "selftest", os.environ.get("CREWHALL_TOKEN"))
    figures = measure(settings, *chosen, lambda line: sys.stderr.write(f"{line}\n"))
    say(json.dumps(figures) if "--json" in flags else figures_text(figures))
    return 0 if figures["passed"] else 1
