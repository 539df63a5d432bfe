"""Where reviewed work lands: a fake host that has a test's repository, whose pull requests are merged there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crewhall.fakehosts.gitea import FakeGitea
from crewhall.fakehosts.github import FakeGitHub
from crewhall.fakehosts.host import FakeHost
from crewhall.fakehosts.state import FakeRepository
from tests.edges.raw_http import http
from tests.outside.repos import git

TOKEN = "the-hubs-own-token-of-this-host"
HOSTS = {"github": FakeGitHub, "gitea": FakeGitea}
MERGES = {"github": ("PUT", {"merge_method": "merge"}), "gitea": ("POST", {"do": "merge"})}


@dataclass
class Landing:
    """A repository on a fake host; `settings` let a hub open pull requests there."""

    kind: str
    host: FakeHost
    repo: FakeRepository

    @property
    def settings(self) -> str:
        own = f'{self.kind}_url = "{self.host.url}"\n{self.kind}_token = "{TOKEN}"'
        return f'[pulls]\n{own}\npause = "1ms"\n'

    def publish(self, repository: Path | str) -> None:
        """Push the repository's main branch there; the host is its origin from now on."""
        url = f"{self.host.url}/octo/shop.git"
        git(repository, "remote", "add", "origin", url)
        git(repository, "push", "-q", url.replace("//", f"//any:{TOKEN}@"), "main")

    def merge(self, number: int) -> None:
        """Merge a pull request, as a person does on the host."""
        method, body = MERGES[self.kind]
        url = f"{self.host.api}/repos/octo/shop/pulls/{number}/merge"
        answer = http.request(method, url, json=body, headers={"Authorization": f"token {TOKEN}"})
        assert answer.status_code == 200, answer.text


@contextmanager
def landing(kind: str) -> Iterator[Landing]:
    """A host of this kind, with an empty repository octo/shop."""
    with HOSTS[kind]({TOKEN: "octocat"}) as host:
        yield Landing(kind, host, host.add_repository("octo", "shop"))
