"""
Interrupt the first `make up` and the first `make test` of a fresh clone at each install step; the next run must work.

Takes about a minute and a half for each interruption. `make soak` runs it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.npm import say

ROOT = Path(__file__).parents[1]
SECONDS = 300.0  # within which a step begins, and a whole set-up ends
# A small part of the tests that needs the environment, the development tools and the programs from npm.
SOME_TESTS = "ARGS=tests/test_setup.py tests/client/test_together.py tests/edges/test_config_clients.py"


def is_making(clone: Path) -> bool:
    """The environment is being made: Python is in it, pip is not yet."""
    return (clone / ".venv/bin/python").exists() and not (clone / ".venv/bin/pip").exists()


def is_installing(clone: Path) -> bool:
    """pip has put some packages in place, and goes on."""
    return len(list(clone.glob(".venv/lib/python*/site-packages/*.dist-info"))) > 20


def is_fetching(clone: Path) -> bool:
    """npm has put some packages in place, and goes on."""
    modules = clone / ".npm/node_modules"
    return modules.is_dir() and len(list(modules.iterdir())) > 20


@dataclass(frozen=True)
class Step:
    command: str
    moment: Callable[[Path], bool]

    def __str__(self) -> str:
        return f"make {self.command}, {self.moment.__name__}"


STEPS = (
    Step("up", is_making),
    Step("up", is_installing),
    Step("test", is_making),
    Step("test", is_installing),
    Step("test", is_fetching),
)


def words(command: str) -> list[str]:
    return ["make", command, "ARGS=--port 0" if command == "up" else SOME_TESTS]


def start(clone: Path, command: str, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as out:
        return subprocess.Popen(
            words(command), cwd=clone, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def interrupt(clone: Path, step: Step, number: int, log: Path) -> None:
    """Start the command, and send the signal to all its processes when the moment has come."""
    process = start(clone, step.command, log)
    wait_until(lambda: process.poll() is not None or step.moment(clone))
    if process.poll() is not None:
        raise RuntimeError(f"{step} was over before it could be interrupted; see {log}")
    os.killpg(process.pid, number)
    process.wait(60)


def works(clone: Path, command: str, log: Path) -> bool:
    """Whether the command now does what it should: a hub comes up, or the tests pass."""
    home = clone.parent / "home"
    process = start(clone, command, log)
    if command == "test":
        return process.wait(SECONDS) == 0
    before = log.read_text().count("Crewhall is up")
    wait_until(lambda: process.poll() is not None or log.read_text().count("Crewhall is up") > before)
    is_up = process.poll() is None and home.is_dir()
    os.killpg(process.pid, signal.SIGINT)
    process.wait(60)
    return is_up


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {SECONDS:.0f} s")
        time.sleep(0.005)


def check(step: Step, number: int) -> bool:
    with TemporaryDirectory(prefix="crewhall-interrupts-", ignore_cleanup_errors=True) as place:
        clone, log = Path(place) / "clone", Path(place) / "log"
        os.environ["CREWHALL_HOME"] = str(Path(place) / "home")
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        began = time.monotonic()
        interrupt(clone, step, number, log)
        passed = works(clone, step.command, log)
        took = f"{time.monotonic() - began:.0f} s"
        say(f"{'ok  ' if passed else 'FAIL'} {step}, {signal.Signals(number).name}: {took}")
        if not passed:
            say(log.read_text())
        return passed


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may ignore it, and make inherits that
    passed = [check(step, number) for step in STEPS for number in (signal.SIGINT, signal.SIGKILL)]
    say(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
