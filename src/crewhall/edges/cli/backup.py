"""`crewhall backup`: a copy of the hall, while it runs."""

import json
import os
from pathlib import Path
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli.output import say
from crewhall.options import one_word


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    target = Path(one_word(rest, "FILE"))
    settings = from_environment(settings_flags)
    from crewhall.edges.cli.in_process import backup_here, refuse_agents

    refuse_agents(settings, "backup", os.environ.get("CREWHALL_TOKEN"))
    rows = backup_here(settings, target)
    return say(json.dumps({"file": rest[0], "rows": rows}) if "--json" in flags else f"{rows} rows are in {rest[0]}")
