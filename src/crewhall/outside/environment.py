"""The environment that a program of the hall's gets."""

import os
import shutil
from collections.abc import Iterable

from crewhall.config import child_environment
from crewhall.errors import Unavailable


def program_environment(passes: Iterable[str]) -> dict[str, str]:
    """This process's environment without the hall's settings and without secrets, and these variables of it."""
    own = {name: os.environ[name] for name in passes if os.environ.get(name)}
    left_out = ("TMUX", "TMUX_PANE", "TERM")  # the session's terminal has its own
    return {name: value for name, value in child_environment(os.environ).items() if name not in left_out} | own


def refuse_missing(program: str, what: str) -> None:
    """Raise Unavailable when PATH has no such program, which `what` needs."""
    if shutil.which(program) is None:
        raise Unavailable(f"{what} needs {program}, which is not installed", hint=f"Install {program}, then try again.")
