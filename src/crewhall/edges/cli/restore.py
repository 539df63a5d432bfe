"""`crewhall restore`: a backup's content in this hall."""

import json
import os
from pathlib import Path
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.bridge.address_files import running_hubs
from crewhall.edges.cli.output import say
from crewhall.errors import Unavailable
from crewhall.options import one_word


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
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
