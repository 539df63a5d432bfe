"""A time limit for each test: one that hangs fails with the stacks of all threads, and the run goes on.

The limit is an alarm in the main thread, where tests run. A main thread that is stuck where Python sees no signal is
ended with its process by pytest's own faulthandler_timeout (pyproject.toml), and xdist starts another worker.
"""

import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.sizes import size

SECONDS = float(size(45, full=600))
FOR_TEARDOWN = 10.0  # what a test that hung may take to clean up
PYTEST = re.compile(r"/(_pytest|execnet|pluggy|xdist)/|/tests/limit\.py$")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("limit")
    seconds = SECONDS if marker is None else float(marker.args[0])

    def fail(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, FOR_TEARDOWN)
        pytest.fail(f"{item.nodeid} took more than {seconds} s\n\n{stacks()}", pytrace=False)

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stacks() -> str:
    """What every thread of this process is doing, without pytest's own part of it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(f"{names.get(ident, ident)}:\n{_stack(frame)}" for ident, frame in sys._current_frames().items())


def _stack(frame: FrameType) -> str:
    steps = [step for step in traceback.extract_stack(frame) if not PYTEST.search(step.filename)]
    return "".join(traceback.format_list(steps))
