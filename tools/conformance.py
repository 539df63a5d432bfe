"""
The MCP project's own conformance suite against a real hub: every server scenario that needs no fixtures.

The suite expects test tools in the server for its other scenarios; ours are a hall's. `make conformance`.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.edges.program import Program
from tools.npm import NODE, PROGRAMS, install, say
from tools.stubs.loopback import with_token

SUITE = {"@modelcontextprotocol/conformance": "0.2.0-alpha.12"}
SCENARIOS = {
    "2026-07-28": (
        "server-stateless",
        "caching",
        "http-header-validation",
        "dns-rebinding-protection",
        "tools-list",
        "resources-list",
        "prompts-list",
        "sep-2164-resource-not-found",
        "input-required-result-unsupported-methods",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
        "input-required-result-missing-input-response",
    ),
    "2025-11-25": (
        "server-initialize",
        "ping",
        "dns-rebinding-protection",
        "tools-list",
        "resources-list",
        "prompts-list",
    ),
}
# Checks of server-stateless that call a tool of the suite's own, which no hall has. They may fail as not testable only.
NEEDS_TOOL = {
    "sep-2575-server-rejects-undeclared-capability": "test_missing_capability",
    "sep-2575-missing-capability-http-400": "test_missing_capability",
    "sep-2575-http-server-no-independent-requests-on-stream": "test_streaming_elicitation",
    "sep-2575-server-no-log-without-loglevel": "test_logging_tool",
}
# It poses as the hub's own page, and the suite can send no token, which a hub asks of every browser.
AS_BROWSER = "dns-rebinding-protection"


@dataclass
class Outcome:
    """What became of a scenario: its checks, and what the suite said if it made none."""

    checks: list[dict[str, Any]]
    said: str

    def having(self, status: str) -> list[str]:
        return [check["id"] for check in self.checks if check["status"] == status and not needs_tool(check)]

    @property
    def passed(self) -> bool:
        return bool(self.checks) and not self.having("FAILURE")

    def line(self) -> str:
        """Passed of total, as the suite counts them, and the checks that did not pass."""
        if not self.checks:
            return f"no result: {self.said.strip()[-500:]}"
        right, wrong = self.having("SUCCESS"), self.having("FAILURE")
        notes = {
            "failed": wrong,
            "warned": self.having("WARNING"),
            "need a tool of the suite": [check["id"] for check in self.checks if needs_tool(check)],
        }
        told = [f"{what}: {', '.join(ids)}" for what, ids in notes.items() if ids]
        return "; ".join([f"{len(right)}/{len(right) + len(wrong)}", *told])


def needs_tool(check: dict[str, Any]) -> bool:
    """Whether a check failed for want of a tool of the suite's own, and for nothing else."""
    tool = NEEDS_TOOL.get(check["id"])
    want = f"Not testable: server does not list the diagnostic tool '{tool}'"
    return tool is not None and str(check.get("errorMessage")).startswith(want)


def run(scenario: str, version: str, url: str) -> Outcome:
    """Run one scenario of the suite against the hub at this URL."""
    with TemporaryDirectory() as place:
        words = ["server", "--url", f"{url}/mcp", "--scenario", scenario, "--spec-version", version, "-o", place]
        program = [str(PROGRAMS / "node"), str(PROGRAMS / "conformance"), *words]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
        results = list(Path(place).glob("*/checks.json"))
        checks = [check for result in results for check in json.loads(result.read_text())]
    return Outcome(checks, done.stdout + done.stderr)


def run_all(url: str, url_with_token: str) -> bool:
    """Run every scenario and print a line for each; whether all passed."""
    passed = []
    for version, scenarios in SCENARIOS.items():
        for scenario in scenarios:
            outcome = run(scenario, version, url_with_token if scenario == AS_BROWSER else url)
            passed.append(outcome.passed)
            note = " (through a forwarder that adds the operator's token)" if scenario == AS_BROWSER else ""
            say(f"{'ok  ' if outcome.passed else 'FAIL'} {version} {scenario} {outcome.line()}{note}")
    say(f"{sum(passed)} of {len(passed)} scenarios passed")
    return all(passed)


def main() -> int:
    install(NODE | SUITE)
    with TemporaryDirectory() as place, Program(Path(place) / "hall", real=True).up() as up:
        token = (Path(place) / "hall" / "operator.token").read_text().strip()
        with with_token(up.url, token) as forwarder:
            return 0 if run_all(up.url, forwarder) else 1


if __name__ == "__main__":
    sys.exit(main())
