"""What the tests need from npm: there at its pinned version, or the test is skipped with the reason."""

import shutil
import subprocess

import pytest

from tests.postgres import missing
from tools.npm import install, installed


def have(packages: dict[str, str], title: str) -> None:
    """The packages are there at these versions; without npm, or when it can't get them, the test is skipped."""
    is_here = all(installed(name) == version for name, version in packages.items())
    if not is_here and shutil.which("npm") is None:
        missing(f"npm, by which {title} is installed,")
    try:
        install(packages)
    except subprocess.CalledProcessError as error:  # what a registry gives is not in this machine's hands
        pytest.skip(f"npm could not install {title}: exit code {error.returncode}")
