"""GitHub as it is below all its routes: its headers, its errors, its redirects."""

import time
from collections.abc import Mapping
from typing import Any

from crewhall.fakehosts.github_pull_shapes import GitHubShapes
from crewhall.fakehosts.host import FakeHost, Limit
from crewhall.fakehosts.records import Refusal
from crewhall.fakehosts.server import FakeRequest, FakeResponse
from crewhall.fakehosts.smart_http import GitWords
from crewhall.fakehosts.state import FakeRepository

HOUR, REQUESTS = 3600, 5000


class GitHubBase(FakeHost):
    """What is GitHub's own, without its routes."""

    prefix = "/api/v3"
    git_words = GitWords(
        "GitHub",
        "Permission to {repository}.git denied to {login}.",
        "error: GH006: Protected branch update failed for $ref.",
    )

    def __init__(self, tokens: Mapping[str, str], limit: Limit | None = None) -> None:
        super().__init__(tokens, limit or Limit(page=100, tree=100_000))
        self.shapes = GitHubShapes(self.url, self.api)

    def error(self, refusal: Refusal) -> dict[str, Any]:
        body = {"message": refusal.message, "documentation_url": f"{self.url}/docs", "status": str(refusal.status)}
        return {**body, "errors": refusal.errors} if refusal.errors else body

    def usual_headers(self) -> dict[str, str]:
        number = len(self.exchanges)
        return {
            "x-github-request-id": f"{number:04X}",
            "x-ratelimit-limit": str(REQUESTS),
            "x-ratelimit-remaining": str(max(0, REQUESTS - number)),
            "x-ratelimit-reset": str(int(time.time()) + HOUR),
        }

    def stranger(self, token: str) -> Refusal:
        return Refusal(401, "Bad credentials" if token else "Requires authentication")

    def redirect(self, request: FakeRequest, repository: FakeRepository, rest: str) -> FakeResponse:
        status, words = (301, "Moved Permanently") if request.method == "GET" else (307, "Temporary Redirect")
        there = f"{self.api}/repositories/{repository.id}{rest}"
        return FakeResponse(status, {**self.error(Refusal(status, words)), "url": there}, {"location": there})


def created_response(body: dict[str, Any]) -> FakeResponse:
    return FakeResponse(201, body, {"location": body["url"]})


def invalid(resource: str, field: str, code: str = "invalid") -> Refusal:
    return Refusal(422, "Validation Failed", [{"resource": resource, "field": field, "code": code}])
