"""What tests start by the handover ends as the forked process does: tests of killed hubs rely on it."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.edges.interfaces import CREWHALL
from tests.edges.prefork import environment
from tests.edges.program import PASSED_ON
from tests.edges.stdio import end, hubs, the_hub


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
def test_a_command_ends_as_the_process_that_was_forked_for_it(tmp_path: Path, number: int, code: int) -> None:
    words = [CREWHALL, "--home", str(tmp_path), "up", "--port", "0"]
    started = subprocess.Popen(words, env=PASSED_ON | environment(), stdout=subprocess.DEVNULL)
    eventually(lambda: hubs(tmp_path), 30)
    assert the_hub(tmp_path) != started.pid, "it was forked"
    end(the_hub(tmp_path), number)
    assert started.wait(10) == code


def test_a_signal_reaches_the_process_that_was_forked(tmp_path: Path) -> None:
    words = [CREWHALL, "--home", str(tmp_path), "up", "--port", "0"]
    started = subprocess.Popen(words, env=PASSED_ON | environment(), stdout=subprocess.DEVNULL)
    eventually(lambda: hubs(tmp_path), 30)
    started.terminate()
    assert started.wait(20) == 0 and hubs(tmp_path) == []
