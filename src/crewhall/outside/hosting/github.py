"""
GitHub, and GitHub Enterprise, by its REST API.

A branch is made from the inside out by the git data API: blobs for what is no text, one tree, one commit, and last the
ref that shows them. Until then nothing can be seen, and what a failure leaves behind is garbage that GitHub collects.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from pydantic import BaseModel

from crewhall.errors import Conflict, Forbidden, Unavailable
from crewhall.outside.hosting.host import Host, once
from crewhall.outside.hosting.model import (
    FILE,
    BranchChange,
    BranchHead,
    Check,
    FileChange,
    HostRepository,
    Limits,
    Tree,
    TreeEntry,
)
from crewhall.outside.hosting.shapes import RefShape, ShaShape, TreeShape


def api_of(web: str) -> str:
    """The address of the API of the GitHub with this address in a browser."""
    parts = urlsplit(web)
    place = parts.netloc.lower()
    if place in ("github.com", "www.github.com"):
        return "https://api.github.com"
    if place.endswith(".ghe.com"):
        return f"{parts.scheme}://api.{place}"
    return f"{web.rstrip('/')}/api/v3"


class CommitShape(BaseModel):
    message: str
    tree: ShaShape


class GitHubHeadShape(BaseModel):
    sha: str
    commit: CommitShape


class GitHubBranchShape(BaseModel):
    commit: GitHubHeadShape


class RunShape(BaseModel):
    name: str
    conclusion: str | None
    html_url: str | None = None


class RunsShape(BaseModel):
    check_runs: list[RunShape]


class CoreShape(BaseModel):
    limit: int
    remaining: int
    reset: int


class ResourcesShape(BaseModel):
    core: CoreShape


class LimitsShape(BaseModel):
    resources: ResourcesShape


class GitHub(Host):
    page = ("per_page", 100)
    newest_first: ClassVar[Mapping[str, str]] = {"sort": "created", "direction": "desc"}
    only_issues = newest_first  # they can't be had without the pulls
    headers: ClassVar[Mapping[str, str]] = {
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }

    def branches(self, repo: HostRepository, prefix: str) -> list[str]:
        # 409 is GitHub's word for a repository without any commit.
        answer = self.session.request("GET", f"{repo.path}/git/matching-refs/heads/{quote(prefix)}", expect=(409,))
        if answer.status == 409:
            return []
        return [one.ref.removeprefix("refs/heads/") for one in self.session.read(list[RefShape], answer.body)]

    def read_head(self, body: Any) -> BranchHead:
        found = self.session.read(GitHubBranchShape, body).commit
        return BranchHead(found.sha, found.commit.message, found.commit.tree.sha)

    def tree(self, repo: HostRepository, base: BranchHead, change: BranchChange) -> Tree:
        """It takes one request; of a tree that is too large for that, the directories that matter are read."""
        found = self._read_tree(repo, base.tree, recursive="1")
        if not found.truncated:
            return _entries(found)
        known = {"": TreeEntry("040000", "tree", base.tree)}
        for directory in sorted({upper for file in change.files for upper in _above(file.path)}):
            at = known.get(directory)
            if at is not None and at.type == "tree":
                known |= self._level(repo, directory, at.sha)
        return known

    def _level(self, repo: HostRepository, directory: str, sha: str) -> dict[str, TreeEntry]:
        found = self._read_tree(repo, sha)
        if found.truncated:
            raise Unavailable(f"'{directory}/' has more files than GitHub lists", hint="Use git itself here.")
        return _entries(found, f"{directory}/" if directory else "")

    def _read_tree(self, repo: HostRepository, sha: str, **query: str) -> TreeShape:
        return self.session.read(
            TreeShape, self.session.request("GET", f"{repo.path}/git/trees/{sha}", query=query).body
        )

    def make_branch(self, repo: HostRepository, change: BranchChange, base: BranchHead, tree: Tree) -> str:
        entries = [self._entry(repo, file, tree.get(file.path)) for file in change.files]
        made = self._make(repo, "trees", {"base_tree": base.tree, "tree": entries})
        commit = self._make(repo, "commits", {"message": change.message, "tree": made, "parents": [base.sha]})
        once(lambda: self._show(repo, change.branch, commit), lambda: self._at(repo, change.branch, commit))
        return commit

    def _entry(self, repo: HostRepository, file: FileChange, found: TreeEntry | None) -> dict[str, Any]:
        entry: dict[str, Any] = {"path": file.path, "mode": found.mode if found else FILE, "type": "blob"}
        if file.action == "delete":
            return entry | {"sha": None}
        if b"\0" not in file.content:
            with suppress(UnicodeDecodeError):
                return entry | {"content": file.content.decode()}
        body = {"content": base64.b64encode(file.content).decode(), "encoding": "base64"}
        return entry | {"sha": self._make(repo, "blobs", body)}

    def _make(self, repo: HostRepository, kind: str, body: dict[str, Any]) -> str:
        """A git object. Nothing refers to it yet, so that making it twice does no harm."""
        answer = self.session.request("POST", f"{repo.path}/git/{kind}", body=body, again=True)
        return self.session.read(ShaShape, answer.body).sha

    def _show(self, repo: HostRepository, branch: str, commit: str) -> str:
        """Make the ref. One that has our commit is ours, of an attempt before."""
        body = {"ref": f"refs/heads/{branch}", "sha": commit}
        answer = self.session.request("POST", f"{repo.path}/git/refs", body=body, expect=(422,))
        if answer.status == 422 and self._at(repo, branch, commit) is None:
            raise Conflict(
                f"GitHub did not make the branch '{branch}': {answer.error_text}",
                hint="Somebody else may have made it just now: list_prs tells.",
            )
        return commit

    def _at(self, repo: HostRepository, branch: str, commit: str) -> str | None:
        found = self.head(repo, branch)
        return commit if found is not None and found.sha == commit else None

    def delete_branch(self, repo: HostRepository, branch: str) -> None:
        answer = self.session.request("DELETE", f"{repo.path}/git/refs/heads/{quote(branch)}", expect=(404, 422))
        # 422 is GitHub's word for a ref that is not there, and for one that a rule protects.
        if answer.status == 422 and self.head(repo, branch) is not None:
            raise Forbidden(
                f"GitHub does not remove the branch '{branch}': {answer.error_text}",
                hint="A rule of the repository keeps it.",
            )

    def narrowing(self, repo: HostRepository, branch: str, base: str | None = None) -> dict[str, str]:
        return {"head": f"{repo.owner}:{branch}"} | ({} if base is None else {"base": base})

    def label_values(self, repo: HostRepository, labels: Sequence[str]) -> Sequence[str | int]:
        return list(labels)

    def checks(self, repo: HostRepository, sha: str) -> Iterator[Check]:
        for page in self.session.pages(f"{repo.path}/commits/{sha}/check-runs", {}, *self.page):
            for one in self.session.read(RunsShape, page).check_runs:
                yield Check(one.name, one.conclusion or "pending", one.html_url)
        yield from super().checks(repo, sha)

    def limits(self) -> Limits | None:
        answer = self.session.request("GET", "/rate_limit", expect=(404,))
        if answer.status == 404:  # an Enterprise server without rate limits
            return None
        core = self.session.read(LimitsShape, answer.body).resources.core
        return Limits(core.limit, core.remaining, core.reset)


def _entries(found: TreeShape, start: str = "") -> dict[str, TreeEntry]:
    return {start + one.path: TreeEntry(one.mode, one.type, one.sha) for one in found.tree or []}


def _above(path: str) -> list[str]:
    """The directories that a path is in, from the top on."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]
