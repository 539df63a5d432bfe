"""`crewhall link`: a new one-time link to the dashboard."""

import json
import os
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.bridge.address_files import running_hubs
from crewhall.edges.cli.output import say
from crewhall.errors import Unavailable
from crewhall.options import read_options


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    read_options(rest, {})
    settings = from_environment(settings_flags)
    urls = running_hubs(settings)
    if not urls:
        raise Unavailable("no hub of this hall runs here", hint="Start one with `crewhall up`; it prints a link.")
    from crewhall.edges.cli.in_process import link_here, refuse_agents

    refuse_agents(settings, "link", os.environ.get("CREWHALL_TOKEN"))
    link = link_here(settings, urls[0])
    return say(json.dumps({"url": link}) if "--json" in flags else link)
