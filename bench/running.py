"""A hub with instances in a process of its own, called over REST, and what is left of their sessions ended."""

import http.client
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from crewhall import config
from crewhall.families.crew.site import tmux_of
from crewhall.token_file import read_operator_token

IDLE = '[crew.runtimes.idle]\ncommand = ["sleep", "6000"]\n'


class RunningHub:
    """A hub in a process of its own, called over REST with the operator's token."""

    def __init__(self, process: subprocess.Popen[str], home: Path) -> None:
        self.process, self.home = process, home
        assert process.stdout is not None
        self.port = int(process.stdout.readline().strip().rpartition(":")[2])
        self._token = read_operator_token(home)

    def call(self, path: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a tool, over a connection of its own. Raises RuntimeError for a refusal."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        with closing(connection):
            connection.request("POST", f"/api/v1/{path}", json.dumps(arguments), headers)
            response = connection.getresponse()
            body: dict[str, Any] = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{path}: {body}")
        return body

    def kill_sessions(self) -> None:
        """End all programs; their launchers write in the hall's directory until they have ended."""
        tmux = ["tmux", "-L", tmux_name(self.home)]
        listed = subprocess.run(
            [*tmux, "list-panes", "-aF", "#{pane_pid}"], capture_output=True, text=True, check=False
        )
        subprocess.run([*tmux, "kill-server"], capture_output=True, check=False, timeout=20)
        while any(is_running(int(pid)) for pid in listed.stdout.split()):
            time.sleep(0.02)


@contextmanager
def running_hub(home: Path, settings: str = IDLE, files: int | None = None) -> Iterator[RunningHub]:
    """A hub whose runtimes are these, with so many descriptors; its sessions end with the block."""
    home.mkdir(parents=True)
    (home / "config.toml").write_text(f'[log]\nlevel = "error"\n{settings}')
    command = [sys.executable, "-m", "crewhall", "--home", str(home), "up", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if files is not None:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
    try:
        yield RunningHub(process, home)
    finally:
        process.terminate()
        process.wait(20)
        kill_sessions(tmux_name(home))


def kill_sessions(server: str) -> None:
    """End all programs of a tmux server; their launchers write in the hall's directory until they have ended."""
    tmux = ["tmux", "-L", server]
    listed = subprocess.run([*tmux, "list-panes", "-aF", "#{pane_pid}"], capture_output=True, text=True, check=False)
    subprocess.run([*tmux, "kill-server"], capture_output=True, check=False, timeout=20)
    while any(is_running(int(pid)) for pid in listed.stdout.split()):
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process lives; one that is not reaped yet has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def tmux_name(home: Path) -> str:
    return tmux_of(config.load({}, {"home": str(home)})).name
