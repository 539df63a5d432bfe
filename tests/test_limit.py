"""The suite's own guards: a time limit for every test, Ctrl-C whoever started the run, the same verdict twice."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
HANGS = """
import re, threading
import pytest

def other():
    threading.Event().wait()

@pytest.mark.parametrize("number", range(2))
@pytest.mark.timeout(0.5)
def test_waits_for_ever(number):
    threading.Thread(target=other, name="the other", daemon=True).start()
    threading.Event().wait()

def test_hears_no_signal():
    re.match("(a+)+$", "a" * 40 + "b")

@pytest.mark.parametrize("number", range(4))
def test_is_well(number):
    pass
"""


def run(directory: Path, *words: str) -> str:
    """What pytest prints for the tests in a directory, with this suite's limits."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *words, str(directory)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=40)
    return done.stdout + done.stderr


def test_a_test_that_hangs_fails_with_all_stacks_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    out = run(tmp_path, "-n2", "--dist=load", "-o", "faulthandler_timeout=3")
    assert "3 failed, 4 passed" in out, out
    assert out.count("Timeout (>0.5s)") >= 2 and out.count("Stack of the other") >= 2
    assert ">       threading.Event().wait()" in out and "in other\n" in out, "the test's own thread, and the other"
    assert "test_hears_no_signal" in out.partition("Timeout (0:00:03)!")[2], "faulthandler shows where it hangs"


def test_signals_reach_us_and_our_children_whoever_started_the_run() -> None:
    """Under `nohup` and behind a shell's `&`, these are ignored, and a child inherits that."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGQUIT)] == [signal.SIG_DFL] * 2


def test_properties_try_the_same_examples_in_every_run(pytestconfig: pytest.Config) -> None:
    is_soak = pytestconfig.getoption("--hypothesis-profile") == "soak"
    assert hypothesis.settings().derandomize is not is_soak
    assert is_soak or hypothesis.settings().database is None, "no example of an earlier run comes first"


SLOW = """
import time
import pytest
from tests.slowest import Slowest

def pytest_configure(config):
    config.pluginmanager.register(Slowest())

@pytest.fixture
def heavy():
    time.sleep(0.05)

@pytest.fixture
def light(heavy):
    pass
"""


def test_a_run_ends_with_what_took_longest_in_all_its_processes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SLOW)
    cases = "import time\n" + "".join(f"def test_{n}(light): time.sleep({n % 2} / 5)\n" for n in range(20))
    (tmp_path / "test_slow.py").write_text(cases)
    tests, _, fixtures = run(tmp_path, "-n2").partition("tests that took longest")[2].partition("fixtures")
    listed = [(float(took), int(n)) for took, n in re.findall(r"([\d.]+) s  test_slow.py::test_(\d+)", tests)]
    assert {n for _, n in listed} == set(range(1, 20, 2)), "ten, and not those that took no time"
    assert [took for took, _ in listed] == sorted((took for took, _ in listed), reverse=True)
    seconds = {name: float(took) for took, name in re.findall(r"([\d.]+) s  (\w+)", fixtures)}
    assert seconds["heavy"] >= 20 * 0.05, "of both processes"
    assert seconds["light"] < seconds["heavy"] / 2, "each by itself"
