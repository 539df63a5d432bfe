import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewhall.outside.git import GitRepository
from crewhall.outside.tmux import Tmux
from tests.outside.repos import make_repository


@pytest.fixture
def no_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own git settings have no say in these tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def repo(tmp_path: Path, no_own_settings: None) -> GitRepository:
    return make_repository(tmp_path / "shop")


@pytest.fixture
def tmux(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tmux]:
    """A server of the test's own, whose socket is where the developer's TMUX_TMPDIR has no say."""
    monkeypatch.delenv("TMUX_TMPDIR", raising=False)
    server = Tmux(f"test-{secrets.token_hex(4)}")
    yield server
    monkeypatch.delenv("TMUX_TMPDIR", raising=False)
    subprocess.run(["tmux", "-L", server.name, "kill-server"], capture_output=True, timeout=20, check=False)
    Path(f"/tmp/tmux-{os.getuid()}", server.name).unlink(missing_ok=True)
