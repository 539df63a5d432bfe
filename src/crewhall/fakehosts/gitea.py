"""
A pretended Gitea (Forgejo is alike): the API below /api/v1, pages below the same address.

    with FakeGitea(tokens={"secret": "octocat"}) as host:
        host.add_repository("octo", "ops", files={"README.md": b"Hello"})
"""

from crewhall.fakehosts.gitea_base import GiteaBase
from crewhall.fakehosts.gitea_git import git
from crewhall.fakehosts.gitea_pulls import talk
from crewhall.fakehosts.routes import Routes
from crewhall.fakehosts.server import FakeRequest, FakeResponse
from crewhall.fakehosts.state import FakeRepository

top, below = Routes(), Routes()


@top.on("GET", "/version")
def version(host: GiteaBase, request: FakeRequest) -> FakeResponse:
    return FakeResponse(200, {"version": "1.26.0"})


@top.on("GET", "/settings/api")
def settings(host: GiteaBase, request: FakeRequest) -> FakeResponse:
    sizes = {"default_max_blob_size": 10_485_760, "default_max_response_size": 104_857_600}
    pages = {"max_response_items": host.limit.page, "default_paging_num": min(30, host.limit.page)}
    return FakeResponse(200, {**pages, "default_git_trees_per_page": host.limit.tree, **sizes})


@top.on("GET", "/user")
def user(host: GiteaBase, request: FakeRequest) -> FakeResponse:
    return FakeResponse(200, host.shapes.user(request.login))


@below.on("GET", "")
def repository(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    return FakeResponse(200, host.shapes.repository(repo))


class FakeGitea(GiteaBase):
    routes, repository_routes = top, Routes(below, git, talk)
