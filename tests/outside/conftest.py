from pathlib import Path

import pytest

from crewhall.outside.git import GitRepository
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
