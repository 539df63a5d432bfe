"""
Both pretended hosts, and our own `Host` on each of them.

Whatever passes between the two is held against the host's description when a test is over: what we sent, and what the
pretended host answered. Without the descriptions that check finds nothing.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from crewhall.errors import Failure
from crewhall.fakehosts import faults
from crewhall.fakehosts.faults import Fault
from crewhall.fakehosts.gitea import FakeGitea
from crewhall.fakehosts.github import FakeGitHub
from crewhall.fakehosts.host import Exchange, FakeHost, Limit
from crewhall.outside.hosting import gitea as gitea_module
from crewhall.outside.hosting import github as github_module
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import BranchChange, FileChange, HostRepository
from crewhall.outside.hosting.wire import Access, Patience
from crewhall.stop import Stop
from tests.hosts.descriptions import HostName, problems

NAMES: tuple[HostName, ...] = ("github", "gitea")
TOKEN = "ghp_Secret0123456789"
TINY = 0.0001
HERE = HostRepository("octo", "ops", "main")
BRANCH, MARK = "claude-ops/check/disk-space", "Crewhall-Pull: pl_1"
FILES = {"README.md": b"Hello\n", "checks/a.md": b"a\n", "checks/deep/b.md": b"b\n", "run.sh": b"#!/bin/sh\n"}
FILES |= {"link": b"README.md", "module": b"a submodule's place"}
MODES = {"run.sh": "100755", "link": "120000", "module": "160000"}


def create(path: str, content: bytes = b"new\n") -> FileChange:
    return FileChange(path, "create", content)


def update(path: str, content: bytes = b"other\n") -> FileChange:
    return FileChange(path, "update", content)


def delete(path: str) -> FileChange:
    return FileChange(path, "delete")


def branch_change(*files: FileChange, base: str = "main", branch: str = BRANCH) -> BranchChange:
    return BranchChange(base, branch, f"Check the disks\n\n{MARK}", MARK, files)


def failure_of(act: Callable[[], Any]) -> Failure:
    """The failure that something ends with; no failure tells the token, and each says what to do."""
    with pytest.raises(Failure) as caught:
        act()
    failure = caught.value
    assert TOKEN not in str(failure.body()) and failure.message and failure.hint
    return failure


def response_fault(body: object, status: int = 200, **more: object) -> Fault:
    """An answer of any shape: it goes out as text, so that it is not held against the description."""
    headers = faults.JSON | {str(name).replace("_", "-"): str(value) for name, value in more.items()}
    return Fault(status=status, headers=headers, body=body if isinstance(body, str) else json.dumps(body))


class HostSite:
    """A pretended host with the repository octo/ops on it, and ways to reach it."""

    def __init__(self, name: HostName, fake: FakeHost) -> None:
        self.name, self.fake = name, fake
        self.title = {"github": "GitHub", "gitea": "Gitea"}[name]
        self.repo = fake.add_repository("octo", "ops", FILES, modes=MODES)

    def host(
        self,
        *,
        stop: Stop | None = None,
        tell: Callable[[str], None] = lambda text: None,
        waits: Callable[[float], None] = lambda seconds: None,
        token: str = TOKEN,
        web: str | None = None,
    ) -> Host:
        """Our host there; it pauses for next to no time, and `waits` is told of each pause before it begins."""
        module, web = {"github": github_module, "gitea": gitea_module}[self.name], web or self.fake.url
        access = Access(self.name, self.title, web, module.api_of(web), token, "GITHUB_TOKEN")
        kind: type[Host] = github_module.GitHub if self.name == "github" else gitea_module.Gitea
        patience = Patience(stop or Stop(30.0), TINY, tell, lambda seconds: waits(seconds) if seconds else None)
        return kind(access, patience)

    @property
    def requests(self) -> list[tuple[str, str]]:
        """What was asked of it: method and path below the repository."""
        return [(one.method, one.path.removeprefix("/repos/octo/ops")) for one in self.fake.exchanges]


def description_problems(name: HostName, exchanges: list[Exchange]) -> list[str]:
    """What the description has against any of them."""
    return [one for exchange in exchanges for one in problems(name, exchange)]


@pytest.fixture
def place() -> Iterator[Callable[..., HostSite]]:
    """Places, as many as a test needs: `place("github")`, `place("gitea", page=10, tree=3)`."""
    with ExitStack() as stack:
        made: list[HostSite] = []

        def make(name: HostName, page: int = 50, tree: int = 1000) -> HostSite:
            kind: type[FakeGitHub | FakeGitea] = FakeGitHub if name == "github" else FakeGitea
            fake = stack.enter_context(kind(tokens={TOKEN: "octocat"}, limit=Limit(page, tree)))
            made.append(HostSite(name, fake))
            return made[-1]

        yield make
    found = [one for each in made for one in description_problems(each.name, each.fake.exchanges)]
    assert not found, "\n".join(found)


@pytest.fixture
def github(place: Callable[..., HostSite]) -> HostSite:
    return place("github", page=100, tree=100_000)


@pytest.fixture
def gitea(place: Callable[..., HostSite]) -> HostSite:
    return place("gitea")


@pytest.fixture(params=NAMES)
def pretend(request: pytest.FixtureRequest) -> HostSite:
    """Each of the two, one after the other."""
    found: HostSite = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def host(pretend: HostSite) -> Iterator[Host]:
    with pretend.host() as found:
        yield found
