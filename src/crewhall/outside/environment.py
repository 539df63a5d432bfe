"""The environment that a program of the hall's gets."""

import os
from collections.abc import Iterable

from crewhall.config import child_environment


def program_environment(passes: Iterable[str]) -> dict[str, str]:
    """This process's environment without the hall's settings and without secrets, and these variables of it."""
    own = {name: os.environ[name] for name in passes if os.environ.get(name)}
    left_out = ("TMUX", "TMUX_PANE", "TERM")  # the session's terminal has its own
    return {name: value for name, value in child_environment(os.environ).items() if name not in left_out} | own
