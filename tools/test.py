"""Run the tests: in two processes, with their files in memory, and no skips where we may install what they need."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux keeps files in memory
ROOM = 4 << 30  # twice what a run takes


def may_install() -> bool:
    if shutil.which("apt-get") is None:
        return False
    return os.getuid() == 0 or subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0


@contextmanager
def place() -> Iterator[dict[str, str]]:
    """Where the tests keep their files, as a variable: in memory where there is room, else where this machine says.

    The tests kill processes, never the machine: to wait for a disk would prove nothing more.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="crewhall-test-", dir=MEMORY, ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o711)  # PostgreSQL runs as another user where we are root  # noqa: S103
        yield {"TMPDIR": directory}


def main() -> int:
    no_skips = {"CREWHALL_TEST_NO_SKIPS": "1"} if may_install() else {}
    words = sys.argv[1:] or ["-n", "2", "--dist", "worksteal"]
    with place() as where:
        environment = os.environ | no_skips | where
        return subprocess.run([sys.executable, "-m", "pytest", *words], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
