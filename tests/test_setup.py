"""What `make up` and `make test` install: whole, or made again. `make soak` interrupts the real installs."""

import fcntl
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import eventually
from tools.npm import has
from tools.whole import Refused, filling

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FILLS = """
import subprocess, sys, time
from pathlib import Path
from tools.whole import filling
with filling(Path(sys.argv[1])):
    (Path(sys.argv[1]) / "half").touch()
    subprocess.run([sys.executable, "-c", "print('installing', flush=True); input()"], close_fds=False)
"""


def installing(directory: Path) -> "subprocess.Popen[str]":
    """A process that fills the directory by a child, until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", FILLS, str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "installing\n"
    return process


def is_free(directory: Path) -> bool:
    with directory.with_name(f"{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_install_is_started_over_once_its_installer_has_ended(tmp_path: Path, number: int) -> None:
    directory = tmp_path / "place"
    process = installing(directory)
    process.send_signal(number)
    process.wait(10)
    assert (directory / "half").exists()
    assert is_free(directory) == (number == signal.SIGINT), "the child of a killed parent still writes"
    process.communicate()
    eventually(lambda: is_free(directory))
    with filling(directory):
        assert not (directory / "half").exists()
        (directory / "all").touch()
    with filling(directory):
        assert (directory / "all").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "place.lock"]


def test_an_installer_that_gives_up_leaves_what_was_there(tmp_path: Path) -> None:
    directory = tmp_path / "place"
    with filling(directory):
        (directory / "old").touch()
    with pytest.raises(Refused), filling(directory):
        raise Refused("no network")
    with filling(directory):
        assert (directory / "old").exists()
    with pytest.raises(OSError, match="full"), filling(directory):
        raise OSError("the disk is full")
    with filling(directory):
        assert not (directory / "old").exists()


def test_a_removal_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    directory = tmp_path / "place"
    (tmp_path / "place.old" / "bin").mkdir(parents=True)
    directory.mkdir()
    (directory / "unfinished").touch()
    with filling(directory):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "place.lock"]


def test_a_package_without_its_program_is_not_installed(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "one"
    assert not has({"one": "1.0.0"}, tmp_path)
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"version": "1.0.0", "bin": {"one": "bin/one.exe"}}))
    assert not has({"one": "1.0.0"}, tmp_path)
    (package / "bin").mkdir()
    (package / "bin" / "one.exe").touch()
    assert has({"one": "1.0.0"}, tmp_path) and not has({"one": "1.0.1"}, tmp_path)
    (tmp_path / "unfinished").touch()
    assert not has({"one": "1.0.0"}, tmp_path)


def test_the_development_lock_has_what_make_up_installs_at_the_same_versions() -> None:
    """So `make up` after `make test` installs nothing."""
    few, all_of_them = (_pins(ROOT / name) for name in ("requirements.lock", "requirements-dev.lock"))
    assert few and few <= all_of_them


def _pins(lock: Path) -> set[tuple[str, str]]:
    return set(re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.MULTILINE))
