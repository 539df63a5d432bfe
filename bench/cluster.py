"""A throw-away PostgreSQL that writes to the disk as a real one does."""

import glob
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database; its cluster ends with the block."""
    directory = Path(tempfile.mkdtemp(prefix="crewhall-bench-pg-"))
    if os.getuid() == 0:
        shutil.chown(directory, "postgres")
    port = _free_port()
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={directory} -c fsync=on"
    try:
        _run("initdb", "-D", f"{directory}/data", "-U", "hall", "--auth=trust", "-E", "UTF8")
        _run("pg_ctl", "-D", f"{directory}/data", "-w", "-l", f"{directory}/log", "-o", options, "start")
        try:
            yield f"postgresql://hall@127.0.0.1:{port}/postgres"
        finally:
            _run("pg_ctl", "-D", f"{directory}/data", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _run(program: str, *words: str) -> None:
    """Run one of PostgreSQL's programs; as root it runs as another user, for it refuses to be root's."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{program}")) or [shutil.which(program) or program]
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    subprocess.run([*user, found[-1], *words], check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=120)
