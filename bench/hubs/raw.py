"""The first floor: a claim as a bare transaction by pgbench, and what a lock and NOTIFY in it cost."""

import re
import subprocess
import tempfile
from pathlib import Path

import psycopg

from bench.hubs.cluster import Cluster
from bench.hubs.hall import AGENTS

SECONDS = 2
ROWS = 50_000 * SECONDS  # more than it can claim
TABLES = """
CREATE TABLE raw_task (id integer PRIMARY KEY, workflow text, holder text, epoch integer, updated bigint, about text);
CREATE TABLE raw_event (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at bigint, actor text, what text,
                        subject text, data text, xact xid8);
"""
FRESH = f"""
TRUNCATE raw_task, raw_event;
INSERT INTO raw_task SELECT n, 'wf_0123456789ab', NULL, 0, 0, repeat('what is to be done ', 10)
  FROM generate_series(0, {ROWS - 1}) AS n;
"""
CLAIM = (
    "UPDATE raw_task SET holder = 'ag_0123456789ab', epoch = epoch + 1, updated = 1 WHERE id = :id AND holder IS NULL"
)
EVENT = """INSERT INTO raw_event (at, actor, what, subject, data, xact)
VALUES (1, 'ag_0123456789ab', 'task.claimed', 'tk_0123456789ab', '{"epoch": 1}', XACT)"""
PLAIN, WITH_XACT = EVENT.replace("XACT", "NULL"), EVENT.replace("XACT", "pg_current_xact_id()")
LOCK = "SELECT pg_advisory_xact_lock(1)"
NOTIFY = "SELECT pg_notify('raw', '')"
FLUSH = "SELECT pg_logical_emit_message(true, 'raw', '')"
LATER = "SET LOCAL synchronous_commit = off"
OPEN, CLOSE = "BEGIN", "COMMIT"
FLUSHED = (LATER, CLOSE, OPEN, FLUSH, CLOSE)
# Each is one message to the server; its statements run there without a word from the client.
VARIANTS = {
    "claim": (OPEN, CLAIM, PLAIN, CLOSE),
    "a message for each statement": (OPEN, CLAIM, PLAIN, CLOSE),
    "with the transaction's id": (OPEN, CLAIM, WITH_XACT, CLOSE),
    "with the lock": (OPEN, CLAIM, LOCK, PLAIN, CLOSE),
    "with NOTIFY": (OPEN, CLAIM, PLAIN, NOTIFY, CLOSE),
    "with both": (OPEN, CLAIM, LOCK, PLAIN, NOTIFY, CLOSE),
    "NOTIFY after it": (OPEN, CLAIM, PLAIN, CLOSE, NOTIFY),
    "lock, flush after it": (OPEN, CLAIM, LOCK, PLAIN, *FLUSHED),
    "lock, flush, NOTIFY, each after": (OPEN, CLAIM, LOCK, PLAIN, *FLUSHED, NOTIFY),
    "lock, flush with NOTIFY after": (OPEN, CLAIM, LOCK, PLAIN, LATER, CLOSE, FLUSH, NOTIFY),
}
IN_TRIPS = "a message for each statement"


class Raw:
    """A database with a table of tasks and one of events."""

    def __init__(self, cluster: Cluster) -> None:
        self._pgbench = cluster.programs / "pgbench"
        self._url = cluster.create("raw")
        self._connection = psycopg.connect(self._url, autocommit=True)
        self._connection.execute(TABLES)

    def rate(self, variant: str) -> float:
        """Transactions a second, by as many connections as there are agents."""
        self._connection.execute(FRESH)
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write(f"\\set n :n + 1\n\\set id :client_id * {ROWS // AGENTS} + :n\n")
            between = ";\n" if variant == IN_TRIPS else " \\;\n"
            script.write(between.join(one.replace("\n", " ") for one in VARIANTS[variant]) + ";\n")
            script.flush()
            return self._run(Path(script.name))

    def _run(self, script: Path) -> float:
        words = [str(self._pgbench), "-n", "-f", str(script), "-c", str(AGENTS), "-j", "2", "-T", str(SECONDS)]
        done = subprocess.run([*words, "-D", "n=-1", self._url], capture_output=True, text=True, check=True)
        row = self._connection.execute("SELECT count(*) FROM raw_task WHERE holder IS NULL").fetchone()
        assert row is not None and row[0] > 0, "there were too few tasks for pgbench"
        found = re.search(r"tps = ([0-9.]+)", done.stdout)
        assert found, done.stdout
        return float(found[1])

    def close(self) -> None:
        self._connection.close()
