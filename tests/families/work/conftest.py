"""Fixtures of work's tests: a hub for a whole module, a site with a real repository, a git that notes its calls."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crewhall.app import Hub
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from tests.conftest import BOTH, Clock, settings_for
from tests.families.work.repositories import GitWatch, WorkspaceSite
from tests.families.work.workflows import Ask
from tests.postgres import Cluster


@pytest.fixture(scope="module", params=BOTH)
def common_hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """One hub on each database, for tests of a module that only read, or are refused, or add what no other looks at."""
    home = tmp_path_factory.mktemp("common")
    if request.param == "sqlite":
        database = shutil.copy(request.getfixturevalue("sqlite_file"), str(home / "hall.db"))
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        database = cluster.create()
        request.addfinalizer(lambda: cluster.drop(database))
    hub = Hub(settings_for(database, home), registry(), clock=Clock())
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def common(common_hub: Hub) -> Ask:
    """Calls to it as the operator."""
    return lambda tool, /, **arguments: common_hub.call(tool, arguments, OPERATOR)


@pytest.fixture
def site(hub: Hub, tmp_path: Path) -> WorkspaceSite:
    """A hub and a small repository, in which its workflows work."""
    return WorkspaceSite(hub, tmp_path / "shop")


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitWatch:
    """The git that every process of the test finds."""
    return GitWatch(tmp_path / "bin", monkeypatch)
