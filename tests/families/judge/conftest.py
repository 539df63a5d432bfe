"""Halls whose judge is the fake Claude: on SQLite unless a test asks for both databases."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.families.all import registry
from tests.conftest import Clock, Live, settings_for
from tests.families.judge.judge_site import CONTRACT, SECRET, JudgeSite, command_for
from tests.outside.repos import commit, fingerprint, git


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Like that of all tests, but one database: what the family does to it is little."""
    if getattr(request, "param", "sqlite") == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return shutil.copy(request.getfixturevalue("sqlite_file"), str(tmp_path / "hall.db"))


@pytest.fixture(scope="session")
def model_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working tree with one commit, to be copied."""
    root = tmp_path_factory.mktemp("model") / "tree"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("def add(a, b):\n    return a + b\n")
    (root / "src" / "b.py").write_text("from a import add\n")
    (root / ".gitignore").write_text("ignored/\n")
    git(root, "init", "-q", "-b", "main")
    commit(root, "first")
    return root


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the fake Claude finds its scripts and leaves its notes."""
    (tmp_path / "stage").mkdir()
    return tmp_path / "stage"


@pytest.fixture
def command(place: Path) -> list[str]:
    return command_for(place)


@pytest.fixture
def site_in(model_tree: Path, tmp_path: Path, place: Path) -> Iterator[Callable[..., JudgeSite]]:
    """Judge sites, each with a tree and a script of its own: `site_in(hub, "one")`."""
    sites: list[JudgeSite] = []

    def make(hub: Hub, name: str = "tree") -> JudgeSite:
        sites.append(JudgeSite.at(hub, tmp_path / name, place / name, model_tree))
        return sites[-1]

    yield make
    for site in sites:
        site.cli.close()


@pytest.fixture
def site(
    make_hub: Callable[..., Hub], clock: Clock, site_in: Callable[..., JudgeSite], command: list[str]
) -> JudgeSite:
    return site_in(make_hub(clock=clock, judge__command=command, programs__variables="SHOP_*"))


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory, sqlite_file: Path, model_tree: Path) -> Iterator[JudgeSite]:
    """One site for all tests of a module; they ask with `fresh` and leave the tree as it was."""
    base = tmp_path_factory.mktemp("shared")
    (base / "stage").mkdir()
    file = shutil.copy(sqlite_file, str(base / "hall.db"))
    hub = Hub(settings_for(file, base / "home", judge__command=command_for(base / "stage")), registry())
    site = JudgeSite.at(hub, base / "tree", base / "stage" / "tree", model_tree)
    yield site
    site.cli.close()
    hub.close()


@pytest.fixture
def live_judge(serve: Callable[..., Live], command: list[str]) -> Callable[..., Live]:
    """A live hub with the fake Claude as its judge."""

    def start(**more: Any) -> Live:
        return serve(judge__command=command, **more)

    return start


@pytest.fixture
def outside(site: JudgeSite, tmp_path: Path) -> Iterator[Path]:
    """A directory beside the tree, with files as in it, and links that lead there; it stays as it is."""
    place = tmp_path / "outside"
    (place / "src").mkdir(parents=True)
    contract = json.loads((site.root / CONTRACT).read_text()) | {"changed_files": ["src/a.py"], "note": SECRET}
    for name in ("file.json", "src/a.py"):
        (place / name).write_text(json.dumps(contract))
    (site.root / "out").symlink_to(place, target_is_directory=True)
    (site.root / "up").symlink_to("..", target_is_directory=True)
    (site.root / "file.json").symlink_to(place / "file.json")
    (site.root / "far.json").symlink_to("../outside/file.json")
    before = fingerprint(place)
    yield place
    assert fingerprint(place) == before
