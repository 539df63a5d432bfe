"""A review by `crewhall judge review` without a hub: however that command ends, its CLI ends with it."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crewhall.app import Hub
from tests.edges.interfaces import CREWHALL
from tests.edges.program import PASSED_ON
from tests.families.judge.judge_site import CONTRACT, JudgeSite, command_for, rules

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform != "linux", reason="what left its group is found on Linux alone")
def test_a_command_that_is_ended_takes_a_cli_along_that_does_not_want_to_end(
    make_hub: Callable[..., Hub], site_in: Callable[..., JudgeSite], place: Path, tmp_path: Path
) -> None:
    hub, commands = make_hub(), []
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
        site = site_in(hub, number.name)
        site.cli.plays(rules(waits="ever", deaf=True, strays=2))
        told = {"CREWHALL_HOME": str(tmp_path / "home"), "CREWHALL_JUDGE_COMMAND": shlex.join(command_for(place))}
        words = [CREWHALL, "judge", "review", "--contract-path", CONTRACT]
        null = subprocess.DEVNULL
        process = subprocess.Popen(words, cwd=site.root, env=PASSED_ON | told, stdout=null, stderr=null)
        commands.append((number, site, process))
    for number, site, command in commands:
        site.cli.wait_for()
        site.cli.wait_for(2, "stray")
        command.send_signal(number)
        assert command.wait(10) != 0
        site.cli.wait_until_gone(5)
        assert site.report_names() == [], number
