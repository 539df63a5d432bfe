"""Gitea as it is below all its routes: its errors, its pages, its redirects."""

from collections.abc import Callable, Mapping
from typing import Any

from crewhall.fakehosts.gitea_shapes import GiteaShapes
from crewhall.fakehosts.host import FakeHost, Limit
from crewhall.fakehosts.records import Refusal
from crewhall.fakehosts.server import FakeRequest, FakeResponse
from crewhall.fakehosts.smart_http import GitWords
from crewhall.fakehosts.state import FakeRepository


class GiteaBase(FakeHost):
    """What is Gitea's own, without its routes."""

    prefix = "/api/v1"
    git_words = GitWords(
        "Gitea", "User permission denied", "Gitea: Not allowed to push to protected branch ${ref#refs/heads/}"
    )
    public = frozenset({"/version", "/settings/api"})

    def __init__(self, tokens: Mapping[str, str], limit: Limit | None = None) -> None:
        super().__init__(tokens, limit or Limit(page=50, tree=1000))
        self.shapes = GiteaShapes(self.url, self.api)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        return {"message": refusal.message, "url": f"{self.url}/api/swagger"}

    def stranger(self, token: str) -> Refusal:
        return Refusal(401, "invalid username, password or token" if token else "token is required")

    def redirect(self, request: FakeRequest, repository: FakeRepository, rest: str) -> FakeResponse:
        there = f"{self.shapes.of(repository)}{rest}"
        return FakeResponse(307, None, {"location": there})

    def counted_page(self, request: FakeRequest, items: list[Any], shape: Callable[[Any], Any]) -> FakeResponse:
        page = self.page(request, items, "limit", shape)
        page.headers["x-total-count"] = str(len(items))
        return page


def sha_of(repo: FakeRepository, ref: str) -> str:
    commit = repo.commit(ref)
    if commit is None:
        raise Refusal(404, f"object does not exist [id: {ref}, rel_path: ]")
    return commit.sha
