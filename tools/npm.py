"""Programs from npm at pinned versions, in .npm/ of this checkout, which git ignores. Linux only."""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

PLACE = Path(__file__).parents[1] / ".npm"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"  # where Debian and its kin keep them
PROGRAMS = PLACE / "node_modules" / ".bin"
# The conformance suite does not start on Node 20; this one stands before the machine's own.
NODE = {f"node-linux-{'arm64' if platform.machine() == 'aarch64' else 'x64'}": "24.21.0"}


def install(packages: dict[str, str]) -> None:
    """Have these packages in PROGRAMS at these versions; npm is asked for what is missing only. Two take turns."""
    PLACE.mkdir(exist_ok=True)
    with (PLACE / "lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        missing = [f"{name}@{version}" for name, version in packages.items() if installed(name) != version]
        if missing:
            _ask_npm(missing)


def _ask_npm(missing: list[str]) -> None:
    if shutil.which("npm") is None:
        sys.exit(f"npm is needed to install {' '.join(missing)}: install Node.js, of any version, with npm")
    say(f"installing {' '.join(missing)} (npm)")
    # Two of the clients put their native program in place by a script: scripts run, whatever the machine's settings.
    options = ["--save-exact", "--no-package-lock", "--ignore-scripts=false", "--no-audit", "--no-fund"]
    words = ["npm", "install", "--loglevel=error", "--fetch-retries=1", "--prefix", str(PLACE), *options, *missing]
    # Node knows no certificate that was added to this machine's, unless it is told of them.
    known = {"NODE_EXTRA_CA_CERTS": CERTIFICATES} if Path(CERTIFICATES).exists() else {}
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=known | os.environ)


def installed(name: str) -> str | None:
    """The version of a package that is in place."""
    about = PLACE / "node_modules" / name / "package.json"
    return str(json.loads(about.read_text())["version"]) if about.exists() else None


def say(line: str) -> None:
    """Print a line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
