"""Real repositories for tests: made in a temporary directory, changed by the git command."""

import atexit
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from crewhall.outside.git import GitRepository, open_repository

WAYS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true"}
WHO = (
    *("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"),
    # Every commit would otherwise start another git, to look whether there is something to tidy up.
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false"),
)


def git(where: Path | str, *words: str, check: bool = True) -> str:
    """Git as a person uses it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | WAYS
    ended = subprocess.run(["git", *WHO, *words], cwd=where, env=env, capture_output=True, check=False)
    assert ended.returncode == 0 or not check, ended.stderr.decode()
    return os.fsdecode(ended.stdout).strip("\n")


def make_repository(root: Path, files: int = 3) -> GitRepository:
    """A repository with one commit: file-0 … with thirty numbered lines each."""
    shutil.copytree(_model(files), root)
    git(root, "update-index", "-q", "--refresh")  # a copied file is another one to the index
    return open_repository(str(root))


@functools.cache
def _model(files: int) -> Path:
    """The repository with so many files that is copied: a copy takes a fifth of the time."""
    root = Path(tempfile.mkdtemp(prefix="crewhall-model-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    root.chmod(0o755)
    git(root, "init", "-q", "-b", "main")
    for number in range(files):
        (root / f"file-{number}").write_text("".join(f"line {line}\n" for line in range(30)))
    commit(root, "first")
    return root


def commit(where: Path | str, message: str) -> str:
    git(where, "add", "-A")
    git(where, "commit", "-qm", message)
    return git(where, "rev-parse", "HEAD")


def change(file: Path, text: str, line: int = 0) -> None:
    """Write another text into one line of a file."""
    lines = file.read_text().splitlines()
    lines[line] = text
    file.write_text("\n".join(lines) + "\n")


def fingerprint(root: Path, skip: tuple[str, ...] = ()) -> dict[bytes, str]:
    """All that is below a directory, to the byte: contents, links, modes."""
    found: dict[bytes, str] = {}
    for top, names, files in os.walk(os.fsencode(root)):
        for name in [*names, *files]:
            path = os.path.join(top, name)
            inner = os.path.relpath(path, os.fsencode(root))
            if any(os.fsdecode(inner).startswith(part) for part in skip):
                continue
            found[inner] = f"{os.lstat(path).st_mode:o} {_content(path)}"
    return found


def _content(path: bytes) -> str:
    if os.path.islink(path):
        return os.fsdecode(os.readlink(path))
    if not os.path.isfile(path):
        return ""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def unprivileged_prefix() -> list[str]:
    """Words before a command that take away what lets root read and write everything; none for other users."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root reads everything, and without setpriv that can't be changed")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def refs(where: Path | str) -> dict[str, str]:
    """Every ref and its commit."""
    lines = git(where, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines)
