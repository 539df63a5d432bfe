"""
An instance's run directory: what its program is started with, and what it and the launcher write about themselves.

    home/instances/work-1-a1/   launch.json prompt.md mcp.json      written by the hub, mode 0600 in a directory of 0700
                                go                                  the launcher may start the program
                                started.json ended.json setup.json  written by the launcher
                                state.json                          CREWHALL_STATE_FILE, written by the program
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crewhall.config import Settings
from crewhall.errors import InvalidState
from crewhall.outside.disk import delete
from crewhall.outside.program_files import open_plain, read_object
from crewhall.ownership import make_private

STATE_BYTES = 64_000
OUTPUT_BYTES = 4_000_000


@dataclass(frozen=True)
class RunDirectory:
    """The files of one instance."""

    path: Path

    @property
    def spec(self) -> Path:
        return self.path / "launch.json"

    @property
    def prompt(self) -> Path:
        return self.path / "prompt.md"

    @property
    def mcp_config(self) -> Path:
        return self.path / "mcp.json"

    @property
    def state_file(self) -> Path:
        return self.path / "state.json"

    def make(self) -> None:
        """Make the directory, for its owner only. Raises InvalidState when the disk refuses."""
        with plainly(self.path):
            make_private(str(self.path))
            self.path.chmod(0o700)
            for name in ("go", "started.json", "ended.json", "setup.json", "state.json", "launcher.json"):
                (self.path / name).unlink(missing_ok=True)

    def write(self, name: str, text: str) -> None:
        """Write a file for its owner only, whole or not at all. Raises InvalidState when the disk refuses."""
        with plainly(self.path / name):
            part = self.path / f".{name}.part"
            part.unlink(missing_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            part.rename(self.path / name)

    def read(self, name: str) -> dict[str, Any]:
        """What a file of the launcher's or the program's says; {} when it is not there or no JSON object."""
        return read_object(self.path / name, STATE_BYTES)

    def last_output(self, lines: int) -> str:
        """The end of the terminal's text as it was kept when the session ended; empty when nothing was."""
        with contextlib.suppress(OSError), open_plain(self.path / "output.txt") as file:
            return "\n".join(file.read(OUTPUT_BYTES).decode("utf-8", "replace").split("\n")[-lines:])
        return ""

    def release(self) -> None:
        """Let the launcher start the program."""
        with plainly(self.path / "go"):
            (self.path / "go").touch(0o600)

    def remove(self) -> None:
        """Delete it. Raises InvalidState when something hinders."""
        delete(str(self.path))


def directories_below(settings: Settings) -> list[Path]:
    """The run directories that there are on this machine."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(one for one in settings.instances.iterdir() if one.is_dir())
    return []


def run_directory(settings: Settings, instance_id: str) -> RunDirectory:
    """The run directory of an instance."""
    return RunDirectory(settings.instances / instance_id)


@contextlib.contextmanager
def plainly(path: Path) -> Iterator[None]:
    """What the disk refuses, as a failure that tells what to do."""
    try:
        yield
    except OSError as error:
        raise InvalidState(
            f"{path} can't be written: {error.strerror or error}",
            hint="See that the hall's directory can be written to, with room on its disk.",
        ) from None
