"""
A pretended GitHub, as its Enterprise Server is: the API below /api/v3, pages below the same address.

    with FakeGitHub(tokens={"ghp_x": "octocat"}) as host:
        host.add_repository("octo", "ops", files={"README.md": b"Hello"})
"""

import time

from crewhall.fakehosts.github_base import HOUR, REQUESTS, GitHubBase
from crewhall.fakehosts.github_git import git
from crewhall.fakehosts.github_pulls import talk
from crewhall.fakehosts.routes import Routes
from crewhall.fakehosts.server import FakeRequest, FakeResponse
from crewhall.fakehosts.state import FakeRepository

top, below = Routes(), Routes()


@top.on("GET", "/rate_limit")
def rate_limit(host: GitHubBase, request: FakeRequest) -> FakeResponse:
    left, reset = max(0, REQUESTS - len(host.exchanges)), int(time.time()) + HOUR
    rate = {"limit": REQUESTS, "remaining": left, "reset": reset, "used": REQUESTS - left}
    return FakeResponse(200, {"resources": {"core": rate, "search": rate}, "rate": rate})


@top.on("GET", "/user")
def user(host: GitHubBase, request: FakeRequest) -> FakeResponse:
    return FakeResponse(200, host.shapes.own_user(request.login))


@below.on("GET", "")
def repository(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    return FakeResponse(200, host.shapes.repository(repo))


class FakeGitHub(GitHubBase):
    routes, repository_routes = top, Routes(below, git, talk)
