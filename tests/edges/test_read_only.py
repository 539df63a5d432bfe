"""A hall that may not be written is told in one line, with what to do about it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from crewhall.errors import Unavailable
from crewhall.hall_directory import refuse_read_only_home
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from tests.edges.interfaces import CREWHALL
from tests.edges.program import PASSED_ON, Program
from tests.own_mounts import with_own_mounts
from tests.postgres import missing

pytestmark = pytest.mark.slow

UP = ("up", "--port", "0")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A hall in which a hub was killed: its address file and SQLite's files are there."""
    home = tmp_path / "home"
    with Program(home).up() as up:
        up.process.kill()
        up.process.wait(10)
    assert list(home.glob("hub-*.json")) and (home / "hall.db-wal").exists()
    return home


def told(home: Path, *words: str) -> tuple[int, str, str]:
    """What a command of a user without special rights says on stderr: exit code, message and hint."""
    plain: list[str] = []
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            missing("setpriv")
        plain = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]
    around = PASSED_ON | {"CREWHALL_HOME": str(home)}
    done = subprocess.run(
        [*plain, CREWHALL, *words], env=around, capture_output=True, text=True, timeout=40, check=False
    )
    message, hint = done.stderr.splitlines()
    return done.returncode, message, hint.strip()


def test_a_hub_says_that_its_directory_cannot_be_written(home: Path) -> None:
    home.chmod(0o555)
    try:
        code, message, hint = told(home, *UP)
    finally:
        home.chmod(0o700)
    assert (code, message) == (7, f"crewhall: no hub can serve {home}: it cannot be written")
    assert f"may not write {home}." in hint and "chmod u+w" in hint


@pytest.mark.parametrize("words", [UP, ("status",)])
def test_files_that_cannot_be_written_are_named_with_the_way_out(home: Path, words: tuple[str, ...]) -> None:
    for file in home.glob("hall.db*"):
        file.chmod(0o444)
    code, message, hint = told(home, *words)
    assert code == 7 and "hall.db" in message
    assert f"may not write {home / 'hall.db'}." in hint and "chmod u+w" in hint and "backup" not in hint
    assert not os.stat(home / "hall.db").st_mode & 0o200, "its owner has made it read-only"


def read_a_read_only_disk(home: Path) -> None:
    for words in (("--bind", str(home), str(home)), ("-o", "remount,ro,bind", str(home))):
        subprocess.run(["mount", *words], check=True)
    with pytest.raises(Unavailable) as refused:
        open_store(str(home / "hall.db"), Queries([]))
    assert "mounted read-only" in refused.value.hint
    with pytest.raises(Unavailable, match="cannot be written"):
        refuse_read_only_home(home)


def test_a_disk_that_is_mounted_read_only_is_told_as_such(home: Path) -> None:
    with_own_mounts(read_a_read_only_disk, home)
