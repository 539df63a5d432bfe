"""What the tests need from npm: there at its pinned version, or the test is skipped with the reason."""

import shutil

import pytest

from tests.postgres import missing
from tools.npm import has


def need(packages: dict[str, str]) -> None:
    """Skip the test unless these packages are here; `make test` installs them first."""
    if has(packages):
        return
    names = " and ".join(packages)
    if shutil.which("npm") is None:
        missing(f"npm, for {names},")
    pytest.skip(f"{names} from npm is not here: see what npm said when make test began")
