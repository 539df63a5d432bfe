"""
Run the tests in four processes, with their files in memory, and no skips where we may install what they need.

    python -m tools.test [WORDS]      all of them, or pytest with these words
    python -m tools.test --quick      without PostgreSQL, npm, a browser and other programs: `make check`
    python -m tools.test --soak       all at full size, then the properties again and again, with fresh examples
"""

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
WORKERS = ["-n", "4", "--dist", "worksteal"]  # on two cores: three left a third of them idle
# At full size, a test takes its time.
SOAK = [*WORKERS, "--hypothesis-profile=soak", "--timeout=1000", "-o", "faulthandler_timeout=1200"]
ROUNDS = 5
SLOW_ROOMS = ("client", "edges", "hosts", "outside")  # their tests run git, a hub or another program


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


def run(words: list[str], **variables: str) -> int:
    with place() as where:
        environment = os.environ | where | variables
        # Every process would compile the tests again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.run([sys.executable, "-m", "pytest", *words], env=environment, check=False).returncode


def soak() -> int:
    """The first exit code that is not 0, after all of it."""
    codes = [run(SOAK, CREWHALL_TEST_FULL="1", **no_skips())]
    codes += [run([*SOAK, "-m", "hypothesis"], **no_skips()) for _ in range(ROUNDS)]
    return next(filter(None, codes), 0)


def no_skips() -> dict[str, str]:
    return {"CREWHALL_TEST_NO_SKIPS": "1"} if may_install() else {}


def main(words: list[str]) -> int:
    if words == ["--quick"]:
        return run(
            ["-n", "2", "--dist", "worksteal", "-m", "not slow", *(f"--ignore=tests/{room}" for room in SLOW_ROOMS)]
        )
    if words == ["--soak"]:
        return soak()
    return run(words or WORKERS, **no_skips())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
