"""What many tests of the edges start from: a program, a home, and live hubs that the tests of a module share."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from crewhall.app import Hub
from crewhall.families.all import registry
from tests.conftest import Agent, Live, settings_for
from tests.edges.program import Program

MadeT = TypeVar("MadeT")
_numbers = itertools.count(1)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """crewhall with a home of its own, in which there is nothing yet."""
    return Program(tmp_path / "home")


def make_home(parent: Path, settings: str = "") -> Path:
    """A hall's directory whose hubs take any free port, with more settings in TOML."""
    home = parent / "home"
    home.mkdir()
    (home / "config.toml").write_text(f"[server]\nport = 0\n\n{settings}")
    return home


class SharedHubs:
    """A module's live hubs, each started when a test first asks for it; it may hold what other tests left there."""

    def __init__(self, request: pytest.FixtureRequest, stack: ExitStack) -> None:
        self._request = request
        self._stack = stack
        self._lives: dict[tuple[Any, str], Live] = {}
        self._made: dict[tuple[Any, str], Any] = {}

    def find(self, name: Any, kind: str, **more: Any) -> Live:
        """The hub of this name on this kind of database; the first caller sets how it is started."""
        if (name, kind) not in self._lives:
            self._lives[name, kind] = self._start(kind, **more)
        return self._lives[name, kind]

    def furnished(self, kind: str, furnish: Callable[[Live], MadeT]) -> tuple[Live, MadeT]:
        """The hub of a fresh hall in which this has made something, once, and what it made."""
        live = self.find(furnish, kind)
        if (furnish, kind) not in self._made:
            self._made[furnish, kind] = furnish(live)
        made: MadeT = self._made[furnish, kind]
        return live, made

    def _start(self, kind: str, tools: Any = None, clock: Any = None, **more: Any) -> Live:
        home = self._request.getfixturevalue("tmp_path_factory").mktemp("shared")
        if kind == "sqlite":
            database = shutil.copy(self._request.getfixturevalue("sqlite_file"), str(home / "hall.db"))
        else:
            cluster = self._request.getfixturevalue("cluster")
            database = cluster.create()
            self._stack.callback(cluster.drop, database)
        hub = Hub(settings_for(database, home / "home", **more), tools or registry(), clock=clock)
        live = Live(self._stack.enter_context(closing(hub)))
        self._stack.callback(live.stop)
        return live


@pytest.fixture(scope="module")
def shared_hubs(request: pytest.FixtureRequest) -> Iterator[SharedHubs]:
    with ExitStack() as stack:
        yield SharedHubs(request, stack)


def newcomer(live: Live, role: str = "worker") -> Agent:
    """An agent with a token and a name that no other in a shared hall has."""
    return Agent(live.hub, f"newcomer {next(_numbers)}", role)
