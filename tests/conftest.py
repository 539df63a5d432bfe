"""What the tests stand on: both databases, a hall, a clock, a hub on a real port."""

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from crewhall import config
from crewhall.app import Hub
from crewhall.config import Settings
from crewhall.edges.hub.serve import HubServer, bind
from crewhall.edges.web.pages import url_of
from crewhall.families.all import registry
from crewhall.identity import OPERATOR, Actor, Credentials, make_token, operator_token
from crewhall.store.open import open_store
from crewhall.store.sql import Queries
from crewhall.tool import Registry
from tests.postgres import Cluster
from tests.slowest import Slowest
from tools.test import SLOW_ROOMS

BOTH = ("sqlite", "postgres")
os.environ["PATH"] += ":/usr/sbin:/sbin"  # where runuser is, and a plain `su` does not look
gc.set_threshold(50_000)  # thousands of tests stay, and to look through them again and again is a tenth of their time
# `nohup`, a shell's `&` and some CI runners ignore these, and every child inherits that: tests of Ctrl-C would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
# The same verdict twice: `make soak` looks for new examples, and one that fails there becomes an @example.
hypothesis.settings.register_profile("test", derandomize=True, database=None, deadline=None, max_examples=50)
hypothesis.settings.register_profile("soak", deadline=None, print_blob=True)
hypothesis.settings.load_profile("test")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Slowest())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What `make check` leaves out: PostgreSQL, these rooms, and what is marked slow in the others."""
    here = Path(__file__).parent
    for item in items:
        room = item.path.relative_to(here).parts[0] if item.path.is_relative_to(here) else ""
        if room in SLOW_ROOMS or _uses_postgres(item):
            item.add_marker("slow")


def _uses_postgres(item: pytest.Item) -> bool:
    given = getattr(item, "callspec", None)
    return "cluster" in getattr(item, "fixturenames", ()) or (given is not None and "postgres" in given.params.values())


def pytest_collection_finish() -> None:
    gc.freeze()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    server = Cluster()
    template = server.create()
    open_store(template, Queries([])).close()
    server.template = template.rpartition("/")[2]
    yield server
    server.stop()


@pytest.fixture
def postgres_url(cluster: Cluster) -> Iterator[str]:
    url = cluster.create()
    yield url
    cluster.drop(url)


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a fresh hall's file is: every step of the schema taken, and nothing in it."""
    path = tmp_path_factory.mktemp("template") / "hall.db"
    open_store(str(path), Queries([])).close()
    return path


@pytest.fixture(params=BOTH)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh hall's database: a path or a URL."""
    if request.param == "sqlite":
        return shutil.copy(request.getfixturevalue("sqlite_file"), str(tmp_path / "hall.db"))
    url: str = request.getfixturevalue("postgres_url")
    return url


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def settings_for(database: str, home: Path, **more: Any) -> Settings:
    """The settings of a test's hall. `server__port=0` sets server.port."""
    flags = {key.replace("__", "."): value for key, value in more.items()}
    where = {"database.url" if "://" in database else "database.path": database}
    return config.load({}, {"home": str(home), "server.port": 0, **where, **flags})


@pytest.fixture
def make_hub(database: str, tmp_path: Path) -> Iterator[Callable[..., Hub]]:
    """Hubs of one hall; each call starts another one."""
    hubs: list[Hub] = []

    def make(tools: Registry | None = None, clock: Callable[[], int] | None = None, **more: Any) -> Hub:
        hubs.append(Hub(settings_for(database, tmp_path / "home", **more), tools or registry(), clock=clock))
        return hubs[-1]

    yield make
    for hub in hubs:
        hub.close()


@pytest.fixture
def hub(make_hub: Callable[..., Hub], clock: Clock) -> Hub:
    return make_hub(clock=clock)


class Agent:
    """An agent of a test: its id, its token, and calls made with that token."""

    def __init__(self, hub: Hub, name: str = "ada", role: str = "worker") -> None:
        made = hub.call("agent_token_create", {"name": name, "role": role}, OPERATOR)
        self.id: str = made["agent_id"]
        self.token: str = made["token"]
        self._hub = hub

    @property
    def actor(self) -> Actor:
        return self._hub.identify(Credentials(token=self.token))

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return self._hub.call(tool, arguments, self.actor)


@pytest.fixture
def operator(hub: Hub) -> Callable[..., dict[str, Any]]:
    """Calls as the operator: `operator("agent_get", id=…)`."""

    def ask(tool: str, /, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, OPERATOR)

    return ask


class Live:
    """A hub on a real port, in a thread of the test."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        listener = bind(hub.settings)
        self.port: int = listener.getsockname()[1]
        self.url = url_of(hub.settings, self.port)
        with hub.own_work() as tx:
            self.token = operator_token(tx, hub.settings.home, hub.clock())
        ready = threading.Event()

        def note_ready() -> None:
            self.loop = asyncio.get_running_loop()
            ready.set()

        self.server = HubServer(hub, listener, note_ready)
        self._thread = threading.Thread(target=self.server.serve_forever, name="live-hub")
        self._thread.start()
        assert ready.wait(20)

    def link_key(self) -> str:
        """The key of a fresh one-time link."""
        with self.hub.own_work() as tx:
            return make_token(tx, "link", "link", self.hub.clock(), expires_at=self.hub.clock() + 60_000)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture
def serve(make_hub: Callable[..., Hub]) -> Iterator[Callable[..., Live]]:
    """Live hubs: `serve()` for the product's tools, `serve(tools=…)` for others."""
    lives: list[Live] = []

    def start(**more: Any) -> Live:
        lives.append(Live(make_hub(**more)))
        return lives[-1]

    yield start
    for live in lives:
        live.stop()


@pytest.fixture
def live(serve: Callable[..., Live]) -> Live:
    return serve()


@contextlib.contextmanager
def serve_for_module(home: Path) -> Iterator[Live]:
    """One live hub on SQLite for all tests of a module that only get refusals from it."""
    with contextlib.closing(Hub(settings_for(str(home / "hall.db"), home), registry())) as hub:
        live = Live(hub)
        yield live
        live.stop()


def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """What the condition gives once it is true; the test fails when that takes too long."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < end:
        with contextlib.suppress(AssertionError, FileNotFoundError):
            found = condition()
            if found:
                return found
        pause.wait(0.01)
    raise AssertionError(f"not within {seconds} s: {condition}")
