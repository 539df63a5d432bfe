"""python -m tools.make_venv DIRECTORY LOCK: an environment with a lock file's packages and this checkout.

`make` runs it. The Python that runs it becomes the environment's. Standard library only.
"""

import subprocess
import sys
from pathlib import Path

from tools.whole import Refused, filling, note


def install(directory: Path, lock: Path) -> None:
    with filling(directory):
        if not (directory / "bin" / "pip").exists():
            note(f"making {directory} with Python {sys.version.split()[0]}")
            make(directory)
        note(f"installing {lock}")
        pip(directory, "--require-hashes", "-r", str(lock))
        pip(directory, "--no-deps", "--no-build-isolation", "-e", ".")


def make(directory: Path) -> None:
    """Make the environment; Debian keeps venv in a package apart from Python."""
    words = [sys.executable, "-m", "venv", str(directory)]
    if subprocess.run(words, check=False, capture_output=True, close_fds=False).returncode != 0:
        subprocess.run(["tools/apt-install", "python3-venv"], check=False, close_fds=False)
        subprocess.run(words, check=True, close_fds=False)


def pip(directory: Path, *words: str) -> None:
    """Run `pip install`. If pip fails, an environment that worked before still does, unless pip broke off a package."""
    command = [str(directory / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *words]
    done = subprocess.run(command, check=False, close_fds=False)
    if done.returncode > 0 and is_whole(directory):
        raise Refused(f"pip ended with code {done.returncode}; see its message above")
    done.check_returncode()


def is_whole(directory: Path) -> bool:
    """Whether every installed package is complete: pip writes a package's RECORD last."""
    return all((about / "RECORD").exists() for about in directory.glob("lib/python*/site-packages/*.dist-info"))


if __name__ == "__main__":
    try:
        install(Path(sys.argv[1]), Path(sys.argv[2]))
    except (Refused, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
