"""
What a launcher starts, in a file that only our user can read: tmux takes no long command, and `ps` shows its words.

    write_spec(path, LaunchSpec(argv, environment, directory, run_directory))
    tmux.start("ada", launcher_words(path), directory)
"""

import contextlib
import json
import os
import secrets
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

LAUNCHER = str(Path(__file__).with_name("launcher.py"))


@dataclass(frozen=True)
class LaunchSpec:
    """A program and what it gets; launcher.py says what becomes of each field.

    `environment` is all that the program sees, except TERM. `run_directory` must exist; the launcher puts its records
    there and waits there for the file `go`, at most `release_seconds`.
    """

    argv: list[str]
    environment: dict[str, str]
    directory: str
    run_directory: str
    setup: list[str] | None = None
    setup_seconds: float = 600.0
    release_seconds: float = 300.0


def launcher_words(spec_path: str) -> list[str]:
    """The command that starts a launcher: Python alone, without the person's packages and variables."""
    return [sys.executable, "-I", "-S", "-X", "utf8", LAUNCHER, spec_path]


def write_spec(path: str, spec: LaunchSpec) -> None:
    """Write the file whole or not at all, with mode 0600; it is on disk when this returns."""
    passing = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump(asdict(spec), file)
            file.flush()
            os.fsync(descriptor)
        os.replace(passing, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(passing)
        raise
    _sync_directory(os.path.dirname(os.path.abspath(path)))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
