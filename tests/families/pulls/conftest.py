"""Halls that open pulls on pretended hosts: on SQLite unless a test asks for both databases."""

import itertools
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import NOWHERE, Hub, Origin, Progress, Tick
from crewhall.errors import Failure
from crewhall.fakehosts.faults import Fault
from crewhall.fakehosts.gitea import FakeGitea
from crewhall.fakehosts.github import FakeGitHub
from crewhall.fakehosts.host import Exchange
from crewhall.fakehosts.state import FakeRepository
from crewhall.families.all import registry
from crewhall.families.pulls.steps import OPENING
from crewhall.identity import Actor
from crewhall.journal import settle_all
from crewhall.stop import Stop
from crewhall.store.transaction import Row
from tests.conftest import BOTH, Clock, settings_for
from tests.families.work.workflows import sql
from tests.hosts.descriptions import problems

KINDS = ("github", "gitea")
TOKENS = {"github": "ghp_Hubs0wnT0ken", "gitea": "gta_Hubs0wnT0ken"}
PERSON = Actor("operator", "operator", proof="token")
PREFIX = "claude-ops/"
EVER = 1_000  # times that a fault comes, more than anybody asks
FIRST = {"checks/disk.md": b"old\n", "checks/gone.md": b"bye\n", "README.md": b"Hello\n"}
PULL = {"title": "Add jellyfin health", "body": "It was missing.", "change_type": "check"}
FILE = {"path": "checks/jellyfin.md", "content": "# Jellyfin\n"}
BRANCH = "claude-ops/check/add-jellyfin-health"

on_both = pytest.mark.parametrize("database", BOTH, indirect=True)
on_github = pytest.mark.parametrize("kind", ["github"], indirect=True)
Host = FakeGitHub | FakeGitea


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Like that of all tests, but one database: what the family does to it is little."""
    if getattr(request, "param", "sqlite") == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return shutil.copy(request.getfixturevalue("sqlite_file"), str(tmp_path / "hall.db"))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fake_host(kind: str, token: str | None = None) -> Host:
    return (FakeGitHub if kind == "github" else FakeGitea)({token or TOKENS[kind]: "octocat"})


@pytest.fixture
def host(kind: str) -> Iterator[Host]:
    """A pretended host with octo/ops. All that it was asked, and answered of its own, is as its description says."""
    with fake_host(kind) as there:
        there.add_repository("octo", "ops", FIRST)
        yield there
    exchanges = [replace(one, status=0) if one.fault == "answer" else one for one in there.exchanges]
    assert [problem for one in exchanges for problem in problems(kind, one)] == []  # type: ignore[arg-type]


def set_up(kind: str, host: Host, token: str | None = None) -> dict[str, Any]:
    """The settings by which a hub reaches a host, and tries again at once."""
    settings = {f"pulls__{kind}_url": host.url, f"pulls__{kind}_token": TOKENS[kind] if token is None else token}
    return settings | {"pulls__pause": "1ms"}


class Site:
    """A hall, and a repository on the host that the hall is set up for."""

    def __init__(self, hub: Hub, host: Host, kind: str = "github") -> None:
        self.hub, self.host, self.kind = hub, host, kind
        self.owner, self.name = "octo", "ops"
        self._numbers = itertools.count(1)

    @property
    def repo(self) -> FakeRepository:
        return self.host.repositories[(self.owner, self.name)]

    def move_to_new_repository(self) -> "Site":
        """The same hall with a repository that nobody has touched."""
        self.name = f"ops-{next(self._numbers)}"
        self.host.add_repository(self.owner, self.name, FIRST)
        return self

    def ask(
        self,
        tool: str,
        /,
        *,
        actor: Actor = PERSON,
        origin: Origin = NOWHERE,
        stop: Stop | None = None,
        progress: Progress | None = None,
        **given: Any,
    ) -> dict[str, Any]:
        about = {} if tool == "pulls_health" else {"repo_owner": self.owner, "repo_name": self.name}
        return self.hub.call(tool, {**about, **given}, actor, origin=origin, stop=stop, progress=progress)

    def create(self, **given: Any) -> dict[str, Any]:
        return self.ask("create_pr", **{**PULL, "files": [FILE], **given})

    def refusal(self, tool: str = "create_pr", **given: Any) -> Failure:
        """The failure that a call meets; it must meet one that says what to do next."""
        with pytest.raises(Failure) as caught:
            self.create(**given) if tool == "create_pr" else self.ask(tool, **given)
        assert caught.value.message and caught.value.hint
        return caught.value

    def branches(self) -> list[str]:
        """Those that were made for pulls."""
        return sorted(name for name in self.repo.branches if name.startswith(PREFIX))

    def open_heads(self) -> list[str]:
        return sorted(pull.head for pull in self.repo.pulls.values() if pull.state == "open")

    def rows(self) -> list[Row]:
        return sql(self.hub, "SELECT * FROM pull ORDER BY created_at, id")

    def leases(self) -> list[int]:
        """When the operations that are under way, or were left, may be settled."""
        return [row["lease_until"] for row in sql(self.hub, "SELECT lease_until FROM operation")]

    def settle(self, clock: Clock) -> None:
        """Do what the chore does when all leases are over."""
        clock.now = max([clock.now, *self.leases()])
        settle_all(OPENING, Tick(self.hub, clock.now, awake_since=0))

    def pull_events(self) -> list[str]:
        """What events say of pulls, the oldest first."""
        events = self.ask_events()
        return [one["what"] for one in events if one["what"].startswith("pull.")]

    def ask_events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.hub.call("event_list", {"limit": 500}, PERSON)["events"]
        return events

    def fail(self, one: Exchange | tuple[str, str], **how: Any) -> None:
        """Let the host do wrong what it was asked in a good run, or what has a method and a pattern; here alone."""
        method, path = one if isinstance(one, tuple) else (one.method, _pattern(one))
        here = f"^/repos/{self.owner}/{self.name}(?=/|$)"
        self.host.fail(Fault(method=method, path=f"{here}{path}", **{"times": EVER, **how}))


def _pattern(one: Exchange) -> str:
    """What follows the repository in a path that is like this one: names of objects differ between runs."""
    return re.sub("/[0-9a-f]{40}(?=/|$)", "/[0-9a-f]{40}", "/".join(["", *one.path.split("/")[4:]])) + "$"


def writes(exchanges: Sequence[Exchange]) -> list[Exchange]:
    return [one for one in exchanges if one.method != "GET"]


@pytest.fixture
def site(make_hub: Callable[..., Hub], clock: Clock, host: Host, kind: str) -> Site:
    return Site(make_hub(clock=clock, **set_up(kind, host)), host, kind)


class Both:
    """A hall with both hosts, each with octo/ops."""

    def __init__(self, hub: Hub, github: Host, gitea: Host) -> None:
        self.hub, self.github, self.gitea = hub, github, gitea
        self.site = Site(hub, github)

    def hosts_called(self, **given: Any) -> list[str]:
        """Which hosts a call asks."""
        before = len(self.github.exchanges), len(self.gitea.exchanges)
        self.site.ask("list_prs", **given)
        after = len(self.github.exchanges), len(self.gitea.exchanges)
        return [kind for kind, old, new in zip(("github", "gitea"), before, after, strict=True) if new > old]

    def is_silent(self) -> bool:
        return not self.github.exchanges and not self.gitea.exchanges


@pytest.fixture
def both(make_hub: Callable[..., Hub]) -> Iterator[Both]:
    with fake_host("github") as github, fake_host("gitea") as gitea:
        for one in (github, gitea):
            one.add_repository("octo", "ops", FIRST)
        yield Both(make_hub(**{**set_up("github", github), **set_up("gitea", gitea)}), github, gitea)


@pytest.fixture
def other_hall(tmp_path: Path, sqlite_file: Path, clock: Clock, site: Site) -> Iterator[Site]:
    """A hall with a database of its own that works on the same repository."""
    path = shutil.copy(sqlite_file, tmp_path / "other.db")
    hub = Hub(settings_for(str(path), tmp_path / "other", **set_up(site.kind, site.host)), registry(), clock=clock)
    yield Site(hub, site.host, site.kind)
    hub.close()


def bridge(**variables: str) -> Origin:
    """A call by a bridge with these variables in its environment."""
    return Origin(bridge="br_1", variables=variables)


def together(*calls: Callable[[], dict[str, Any]]) -> list[dict[str, Any] | Failure]:
    """What comes of calls that begin at the same moment."""
    start, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number: int, call: Callable[[], dict[str, Any]]) -> None:
        start.wait(20)
        try:
            results[number] = call()  # type: ignore[call-overload]
        except Failure as failure:
            results[number] = failure  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=one) for one in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert None not in results
    return results  # type: ignore[return-value]
