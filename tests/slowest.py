"""What a run ends with: the ten tests and the five fixtures that took longest, over all worker processes."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

TESTS, FIXTURES = 10, 5


class Slowest:
    """Seconds by test, and by fixture, its set-up alone; a worker process sends its own to the first process."""

    def __init__(self) -> None:
        self.tests: dict[str, float] = defaultdict(float)
        self.fixtures: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            self.fixtures[fixturedef.argname] += time.perf_counter() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["fixtures"] = dict(self.fixtures)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for name, seconds in getattr(node, "workeroutput", {}).get("fixtures", {}).items():  # none if it crashed
            self.fixtures[name] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, seconds, count in (("tests", self.tests, TESTS), ("fixtures", self.fixtures, FIXTURES)):
            terminalreporter.section(f"the {title} that took longest: {sum(seconds.values()):.0f} s in all")
            for name, took in sorted(seconds.items(), key=lambda row: -row[1])[:count]:
                terminalreporter.line(f"{took:7.2f} s  {name}")
