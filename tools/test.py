"""Run the tests: in two processes, and with no skips where this machine can install what they need."""

import os
import shutil
import subprocess
import sys


def may_install() -> bool:
    if shutil.which("apt-get") is None:
        return False
    return os.getuid() == 0 or subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0


def main() -> int:
    environment = os.environ | ({"CREWHALL_TEST_NO_SKIPS": "1"} if may_install() else {})
    words = sys.argv[1:] or ["-n", "2", "--dist", "worksteal"]
    return subprocess.run([sys.executable, "-m", "pytest", *words], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
