"""How GitHub shows users, repositories and git: the JSON of each, with all that GitHub's description requires."""

import base64
from typing import Any
from urllib.parse import quote

from crewhall.fakehosts.objects import Commit, FakeTreeEntry, Person
from crewhall.fakehosts.state import FakeRepository

Shape = dict[str, Any]
USER_LINKS = "events followers following gists organizations received_events repos starred subscriptions"  # …_url
LINKS = (  # all that a repository has below it; templates at GitHub, which nobody here fills in
    "archive assignees blobs branches collaborators comments commits compare contents contributors deployments "
    "downloads events forks git_commits git_refs git_tags hooks issue_comment issue_events issues keys labels "
    "languages merges milestones notifications pulls releases stargazers statuses subscribers subscription tags "
    "teams trees"
)
UNSIGNED = {"verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None}
COUNTS = "forks forks_count network_count size stargazers_count subscribers_count watchers watchers_count"
NEVER = "archived disabled fork has_discussions has_downloads has_pages has_projects has_wiki private"


class GitHubGitShapes:
    """The shapes of one host: `url` is where people look, `api` where programs do."""

    def __init__(self, url: str, api: str) -> None:
        self.url, self.api = url, api

    def user(self, login: str) -> Shape:
        here = f"{self.api}/users/{login}"
        return {
            "login": login,
            "id": sum(login.encode()),
            "node_id": node("User", login),
            "avatar_url": f"{self.url}/avatars/{login}",
            "gravatar_id": "",
            "url": here,
            "html_url": f"{self.url}/{login}",
            "type": "User",
            "site_admin": False,
            **links(here, USER_LINKS),
        }

    def own_user(self, login: str) -> Shape:
        nothing = dict.fromkeys(("bio", "blog", "company", "email", "hireable", "location"))
        counts = dict.fromkeys(("followers", "following", "public_gists", "public_repos"), 0)
        times = {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}
        return {**self.user(login), "name": login, **nothing, **counts, **times}

    def repository(self, repo: FakeRepository) -> Shape:
        full, here, web = f"{repo.owner}/{repo.name}", self.of(repo), self.web(repo)
        open_ones = sum(one.state == "open" for one in [*repo.issues.values(), *repo.pulls.values()])
        times = dict.fromkeys(("created_at", "pushed_at", "updated_at"), "2026-01-01T00:00:00Z")
        return {
            "id": repo.id,
            "node_id": node("Repository", full),
            "name": repo.name,
            "full_name": full,
            "owner": self.user(repo.owner),
            "url": here,
            "html_url": web,
            "git_url": f"{web}.git",
            "clone_url": f"{web}.git",
            "svn_url": web,
            "ssh_url": f"git@example.com:{full}.git",
            "default_branch": repo.default_branch,
            "has_issues": repo.has_issues,
            "open_issues": open_ones,
            "open_issues_count": open_ones,
            "permissions": {"admin": False, "push": repo.may_push, "pull": True},
            **times,
            **links(here, LINKS),
            **dict.fromkeys(COUNTS.split(), 0),
            **dict.fromkeys(NEVER.split(), False),
            **dict.fromkeys(("description", "homepage", "language", "license", "mirror_url")),
        }

    def of(self, repo: FakeRepository) -> str:
        return f"{self.api}/repos/{repo.owner}/{repo.name}"

    def web(self, repo: FakeRepository) -> str:
        return f"{self.url}/{repo.owner}/{repo.name}"

    def ref(self, repo: FakeRepository, branch: str) -> Shape:
        sha, ref = repo.branches[branch], f"refs/heads/{branch}"
        there = {"sha": sha, "type": "commit", "url": f"{self.of(repo)}/git/commits/{sha}"}
        return {"ref": ref, "node_id": node("Ref", ref), "url": f"{self.of(repo)}/git/{quote(ref)}", "object": there}

    def branch(self, repo: FakeRepository, name: str, commit: Commit) -> Shape:
        here = f"{self.of(repo)}/branches/{quote(name)}"
        links = {"self": here, "html": f"{self.web(repo)}/tree/{quote(name)}"}
        is_on = name in repo.protected
        guard = {"protected": is_on, "protection": {"enabled": is_on}, "protection_url": f"{here}/protection"}
        return {"name": name, "commit": self.commit(repo, commit), "_links": links, **guard}

    def git_commit(self, repo: FakeRepository, commit: Commit) -> Shape:
        git = f"{self.of(repo)}/git"
        web = f"{self.web(repo)}/commit"
        return {
            "sha": commit.sha,
            "node_id": node("Commit", commit.sha),
            "url": f"{git}/commits/{commit.sha}",
            "html_url": f"{web}/{commit.sha}",
            "author": vars(commit.author),
            "committer": vars(commit.committer),
            "message": commit.message,
            "tree": {"sha": commit.tree, "url": f"{git}/trees/{commit.tree}"},
            "parents": [
                {"sha": sha, "url": f"{git}/commits/{sha}", "html_url": f"{web}/{sha}"} for sha in commit.parents
            ],
            "verification": UNSIGNED,
        }

    def commit(self, repo: FakeRepository, commit: Commit) -> Shape:
        git, here = self.git_commit(repo, commit), f"{self.of(repo)}/commits/{commit.sha}"
        inner = {name: git[name] for name in ("author", "committer", "message", "tree", "url", "verification")}
        outer = {name: git[name] for name in ("sha", "node_id", "html_url", "parents")}
        people = {"author": self.user(commit.author.name), "committer": self.user(commit.committer.name)}
        return {
            **outer,
            **people,
            "commit": {**inner, "comment_count": 0},
            "url": here,
            "comments_url": f"{here}/comments",
        }

    def entry(self, repo: FakeRepository, path: str, entry: FakeTreeEntry) -> Shape:
        shown: Shape = {"path": path, "mode": entry.mode, "type": entry.kind, "sha": entry.sha}
        if entry.kind == "blob":
            shown["size"] = len(repo.objects.blobs[entry.sha])
        place = {"blob": "blobs", "tree": "trees"}.get(entry.kind, "commits")
        return {**shown, "url": f"{self.of(repo)}/git/{place}/{entry.sha}"}


def links(here: str, names: str) -> dict[str, str]:
    return {f"{name}_url": f"{here}/{name}" for name in names.split()}


def node(kind: str, name: str) -> str:
    """An id as GraphQL has it."""
    return base64.b64encode(f"{kind}:{name}".encode()).decode()


def person(given: dict[str, str] | None, login: str, now: str) -> Person:
    """Who a commit is by: as the request says, else whose token it is."""
    mine = {"name": login, "email": f"{login}@users.noreply.example.com", "date": now}
    return Person(**{name: (given or {}).get(name) or mine[name] for name in mine})
