"""Programs from npm at pinned versions, in .npm/ of this checkout, which git ignores. Linux only.

`python -m tools.npm` installs those that the tests use: `make test` runs it before them.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.whole import Refused, filling, note

PLACE = Path(__file__).parents[1] / ".npm"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"  # where Debian and its kin keep them
MODULES = PLACE / "node_modules"
PROGRAMS = MODULES / ".bin"
# The conformance suite does not start on Node 20; this one stands before the machine's own.
NODE = {f"node-linux-{'arm64' if platform.machine() == 'aarch64' else 'x64'}": "24.21.0"}
CLAUDE_CODE = {"@anthropic-ai/claude-code": "2.1.325"}  # a program of its own, which needs no Node
CODEX = {"@openai/codex": "0.166.0"}
GEMINI = {**NODE, "@google/gemini-cli": "0.61.0"}
OPENCODE = {"opencode-ai": "1.18.33"}
CLIENTS = CLAUDE_CODE | CODEX | GEMINI | OPENCODE
OLLAMA_MCP = {"ollama-mcp": "2.1.0"}  # the server through which examples/floor_manager.py reaches local models


def install(packages: dict[str, str]) -> None:
    """Have these packages in PROGRAMS at these versions; npm is run for the missing ones only. Two take turns.

    Raises Refused if npm cannot get them.
    """
    if has(packages):
        return
    with filling(PLACE):
        missing = [f"{name}@{version}" for name, version in packages.items() if _version(MODULES / name) != version]
        if missing:
            _run_npm(missing)


def _run_npm(missing: list[str]) -> None:
    if shutil.which("npm") is None:
        raise Refused(f"npm is needed to install {' '.join(missing)}: install Node.js, any version, with npm")
    note(f"installing {' '.join(missing)} (npm)")
    # Two of the clients put their native program in place by a script: scripts run, whatever the machine's settings.
    options = ["--save-exact", "--no-package-lock", "--ignore-scripts=false", "--no-audit", "--no-fund"]
    words = ["npm", "install", "--loglevel=error", "--fetch-retries=1", "--prefix", str(PLACE), *options, *missing]
    # Node knows no certificate that was added to this machine's, unless it is told of them.
    known = {"NODE_EXTRA_CA_CERTS": CERTIFICATES} if Path(CERTIFICATES).exists() else {}
    done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL, env=known | os.environ, close_fds=False)
    if done.returncode > 0:
        raise Refused(f"npm could not install {' '.join(missing)}: exit code {done.returncode}")
    done.check_returncode()


def has(packages: dict[str, str], place: Path = PLACE) -> bool:
    """Whether all packages are here at these versions, with their programs, and no install was interrupted."""
    found = [_version(place / "node_modules" / name) for name in packages]
    return found == list(packages.values()) and not (place / "unfinished").exists()


def _version(package: Path) -> str | None:
    """The version of a package whose programs are in place."""
    try:
        about: dict[str, Any] = json.loads((package / "package.json").read_text())
    except FileNotFoundError:
        return None
    programs = about.get("bin", {})
    files = [programs] if isinstance(programs, str) else programs.values()
    return str(about["version"]) if all((package / file).exists() for file in files) else None


def say(line: str) -> None:
    """Print a line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Install what the tests use. Without it they still run, and those that need it are skipped."""
    try:
        install(CLIENTS | OLLAMA_MCP)
    except Refused as refusal:
        note(f"{refusal}; the tests that need it are skipped")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
