"""A PostgreSQL server that may be stopped or crash: it writes to the disk as one for production does."""

from tests.postgres import Cluster


class Server(Cluster):
    options = ("max_connections=200", "fsync=on")

    def restart(self, how: str) -> None:
        self.halt(how)
        self.start()

    def open_writes(self, hub: str) -> int:
        """How many transactions of this hub have written something and wait for it to go on."""
        theirs = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND backend_xid IS NOT NULL"
        row = self._admin.execute(f"{theirs} AND state = 'idle in transaction'".encode(), [hub]).fetchone()
        assert row is not None
        return int(row[0])

    def end_backends(self) -> int:
        """End every connection except the one of this test; how many there were."""
        others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        row = self._admin.execute(f"{others} AND backend_type = 'client backend'".encode()).fetchone()
        assert row is not None
        return int(row[0])
