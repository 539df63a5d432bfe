"""A PostgreSQL of the bench's own with ordinary settings: it syncs, on the disk where temporary files are."""

import csv
import glob
import io
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

TICKS = os.sysconf("SC_CLK_TCK")
SETTLING = 10.5  # a backend that idles tells its statistics after ten seconds


class Cluster:
    """A server in a directory, and who may ask it what goes on."""

    def __init__(self) -> None:
        self.programs = Path(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))[-1]).parent
        self.directory = Path(tempfile.mkdtemp(prefix="crewhall-bench-pg-"))
        self.port = _free_port()
        if os.getuid() == 0:
            shutil.chown(self.directory, "postgres")
        self._run("initdb", "-D", f"{self.directory}/data", "-U", "hall", "--auth=trust", "-E", "UTF8")
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self.directory}"
        options += " -c max_connections=200 -c logging_collector=on -c log_destination=csvlog"
        self._run("pg_ctl", "-D", f"{self.directory}/data", "-w", "-o", options, "start")
        self.admin = psycopg.connect(self.url("postgres"), autocommit=True)
        self._postmaster = int((self.directory / "data" / "postmaster.pid").read_text().splitlines()[0])

    def _run(self, program: str, *words: str) -> None:
        user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        command = [*user, str(self.programs / program), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=120)

    def url(self, database: str) -> str:
        return f"postgresql://hall@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        self.admin.execute(f"CREATE DATABASE {database}".encode())
        return self.url(database)

    def ended(self, database: str) -> tuple[int, int]:
        """Transactions committed and rolled back, a statement alone too; what backends haven't told yet is missing."""
        query = "SELECT xact_commit, xact_rollback FROM pg_stat_database WHERE datname = %s"
        row = self.admin.execute(query, (database,)).fetchone()
        assert row is not None
        return row[0], row[1]

    def settle(self) -> None:
        """Wait until idle backends have told their statistics."""
        time.sleep(SETTLING)

    def cpu(self, without: int) -> float:
        """Processor seconds of all the server's processes, those that ended too; one backend's are not counted."""
        children = Path(f"/proc/{self._postmaster}/task/{self._postmaster}/children").read_text().split()
        return sum(cpu(int(pid)) for pid in children if int(pid) != without) + cpu(self._postmaster, ended=True)

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Every statement goes into the log."""
        self._log("all")
        try:
            yield
        finally:
            self._log("none")

    def log(self, database: str) -> list[list[str]]:
        """What the log has of a database's statements by now; it is written by a process of its own."""
        logs = sorted((self.directory / "data" / "log").glob("*.csv"))
        rows = [row for log in logs for row in csv.reader(io.StringIO(log.read_text(), newline=""))]
        return [row for row in rows if row[2] == database and row[11] == "LOG"]

    def _log(self, which: str) -> None:
        self.admin.execute(f"ALTER SYSTEM SET log_statement = '{which}'".encode())
        self.admin.execute("SELECT pg_reload_conf()")
        time.sleep(0.3)  # each backend reads it before its next statement

    def stop(self) -> None:
        self.admin.close()
        self._run("pg_ctl", "-D", f"{self.directory}/data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.directory)


def cpu(pid: int, *, ended: bool = False) -> float:
    """Processor seconds of a process, or of it and its children that ended; 0 for one that is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11 : 15 if ended else 13])) / TICKS


def cpu_of_all() -> float:
    """Processor seconds of everything on the machine."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / TICKS


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
