"""A real PostgreSQL for the tests: a cluster of their own, a database for each test from a template."""

import glob
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

_numbers = itertools.count(1)


def missing(what: str) -> None:
    """A skip where this machine cannot have it, a failure where it could."""
    if os.environ.get("CREWHALL_TEST_NO_SKIPS"):
        pytest.fail(f"{what} is not here, and this machine can install it: run make test")
    pytest.skip(f"{what} is not here, and it cannot be installed on this machine")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Cluster:
    """A PostgreSQL server in a directory. It skips fsync: the tests kill hubs, never this server or the machine."""

    template = "template1"
    # Each test has a new database for a moment: to tidy up in it, or to log whole pages of it, helps nobody.
    options: tuple[str, ...] = (
        *("max_connections=200", "fsync=off", "autovacuum=off"),
        *("full_page_writes=off", "wal_level=minimal", "max_wal_senders=0"),
    )

    def __init__(self) -> None:
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb")) or [shutil.which("initdb") or ""]
        if not found[-1]:
            missing("PostgreSQL")
        self._bin = Path(found[-1]).parent
        # Not below pytest's own directory, which only we may enter: as root, the server runs as another user.
        directory = self._directory = Path(tempfile.mkdtemp(prefix="crewhall-pg-"))
        self.port = free_port()
        if os.getuid() == 0:
            shutil.chown(directory, "postgres")
        self._run("initdb", "-D", f"{directory}/data", "-U", "hall", "--auth=trust", "-E", "UTF8", "--no-sync")
        self.start()
        # To copy the files costs a third of writing them to the log first, which is how it's done since version 15.
        self._how = "STRATEGY FILE_COPY" if self._admin.info.server_version >= 150_000 else ""

    def start(self) -> None:
        """Start the server; its directory is ready."""
        directory = self._directory
        where = (f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={directory}")
        options = " ".join(f"-c {option}" for option in (*where, *self.options))
        self._run("pg_ctl", "-D", f"{directory}/data", "-w", "-l", f"{directory}/log", "-o", options, "start")
        self._admin = psycopg.connect(self.url("postgres"), autocommit=True)

    def halt(self, how: str) -> None:
        """Stop the server `fast` or, as a crash would, `immediate`; its directory stays."""
        self._admin.close()
        self._run("pg_ctl", "-D", f"{self._directory}/data", "-m", how, "-w", "stop")

    def _run(self, program: str, *words: str) -> None:
        user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        command = [*user, str(self._bin / program), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=120)

    def url(self, database: str) -> str:
        return f"postgresql://hall@127.0.0.1:{self.port}/{database}"

    def create(self) -> str:
        """A new database, made from the template; its URL."""
        name = f"hall_{next(_numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {self.template} {self._how}".encode())
        return self.url(name)

    def create_empty(self) -> str:
        """A new database with nothing in it."""
        kept, self.template = self.template, "template1"
        try:
            return self.create()
        finally:
            self.template = kept

    def drop(self, url: str) -> None:
        self._admin.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)".encode())

    def stop(self) -> None:
        self.halt("immediate")
        shutil.rmtree(self._directory)
