"""What the tests of pulls by every way in stand on: a pretended GitHub, a change, and hubs that know the host."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crewhall.fakehosts.github import FakeGitHub

TOKEN = "ghp_theHubsOwnTokenForGitHub"
FILES = [{"path": "checks/b.md", "content": "# B\n", "action": "create"}]
CHANGE: dict[str, Any] = {
    "repo_owner": "octo",
    "repo_name": "ops",
    "title": "Add jellyfin health",
    "body": "Nobody looks at it yet.",
    "files": FILES,
    "change_type": "check",
}
REPO = {"repo_owner": "octo", "repo_name": "ops"}


@contextmanager
def github(*repositories: str, **tokens: str) -> Iterator[FakeGitHub]:
    """A pretended GitHub with these repositories of octo's; it knows the hub's token, and others by their logins."""
    with FakeGitHub(tokens={TOKEN: "octocat", **{token: login for login, token in tokens.items()}}) as host:
        for name in repositories or ("ops",):
            host.add_repository("octo", name, files={"checks/a.md": b"# A\n"})
        yield host


def change(title: str, count: int = 1, **more: Any) -> dict[str, Any]:
    """A change of so many files, which no other title has."""
    files = [
        {"path": f"checks/{title.lower().replace(' ', '-')}-{n}.md", "content": f"{title}\n"} for n in range(count)
    ]
    return CHANGE | {"title": title, "files": files} | more


def told_to_host(host: FakeGitHub) -> set[str]:
    """The tokens that the host was shown."""
    return {exchange.headers["authorization"].split()[-1] for exchange in host.exchanges}
