"""
Gitea, and Forgejo, by its REST API: the change-files call makes a branch and its commit at once.

It needs the id of each file that it changes, which one recursive read of the tree tells, in pages.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import BaseModel

from crewhall.errors import Conflict, Unavailable
from crewhall.outside.hosting.host import Host, once
from crewhall.outside.hosting.model import BranchChange, BranchHead, FileChange, HostRepository, Limits, Tree, TreeEntry
from crewhall.outside.hosting.shapes import LabelShape, RefShape, ShaShape, TreeShape
from crewhall.outside.hosting.wire import MOST_PAGES

TREE_PAGE = 1000
LABEL_COLOR = "#1f6feb"


def api_of(web: str) -> str:
    """The address of the API of the Gitea with this address in a browser."""
    return f"{web.rstrip('/')}/api/v1"


class GiteaHeadShape(BaseModel):
    id: str
    message: str


class GiteaBranchShape(BaseModel):
    commit: GiteaHeadShape


class ChangedShape(BaseModel):
    commit: ShaShape


class Gitea(Host):
    page = ("limit", 50)
    only_issues: ClassVar[Mapping[str, str]] = {"type": "issues"}

    def branches(self, repo: HostRepository, prefix: str) -> list[str]:
        answer = self.session.request("GET", f"{repo.path}/git/refs/heads/{quote(prefix)}", expect=(404,))
        if answer.status == 404:
            return []
        found = answer.body if isinstance(answer.body, list) else [answer.body]  # older ones give a single one alone
        return [one.ref.removeprefix("refs/heads/") for one in self.session.read(list[RefShape], found)]

    def read_head(self, body: Any) -> BranchHead:
        found = self.session.read(GiteaBranchShape, body).commit
        return BranchHead(found.id, found.message)

    def tree(self, repo: HostRepository, base: BranchHead, change: BranchChange) -> Tree:
        known: dict[str, TreeEntry] = {}
        for page in range(1, MOST_PAGES + 1):
            query = {"recursive": "true", "page": page, "per_page": TREE_PAGE}
            answer = self.session.request("GET", f"{repo.path}/git/trees/{base.sha}", query=query)
            found = self.session.read(TreeShape, answer.body)
            known |= {one.path: TreeEntry(one.mode, one.type, one.sha) for one in found.tree or []}
            if not found.truncated or not found.tree:
                return known
        raise Unavailable("the repository has more files than can be looked through", hint="Use git itself here.")

    def make_branch(self, repo: HostRepository, change: BranchChange, base: BranchHead, tree: Tree) -> str:
        body = {
            "branch": change.base,
            "new_branch": change.branch,
            "message": change.message,
            "files": [_operation(file, tree.get(file.path)) for file in change.files],
        }
        return once(lambda: self._change_files(repo, change, body), lambda: self._ours(repo, change))

    def _change_files(self, repo: HostRepository, change: BranchChange, body: dict[str, Any]) -> str:
        answer = self.session.request("POST", f"{repo.path}/contents", body=body, expect=(404, 409, 422))
        if answer.status < 300:
            return self.session.read(ChangedShape, answer.body).commit.sha
        found = self._ours(repo, change)
        if found is None:
            raise Conflict(
                f"Gitea did not make the branch '{change.branch}': {answer.error_text}",
                hint="Somebody else may have made it, or changed a file, just now. Look, then try again.",
            )
        return found

    def _ours(self, repo: HostRepository, change: BranchChange) -> str | None:
        """The commit at the branch, when it has our mark: made by an attempt that Gitea did not answer."""
        found = self.head(repo, change.branch)
        return found.sha if found is not None and change.mark in found.message else None

    def delete_branch(self, repo: HostRepository, branch: str) -> None:
        self.session.request("DELETE", f"{repo.path}/branches/{quote(branch)}", expect=(404,))

    def narrowing(self, repo: HostRepository, branch: str, base: str | None = None) -> dict[str, str]:
        # There is a call by base and head, and it may answer with a closed pull that had the same names.
        return {} if base is None else {"base_branch": base}

    def label_values(self, repo: HostRepository, labels: Sequence[str]) -> Sequence[str | int]:
        known = self._labels(repo) if labels else {}
        for name in labels:
            if name not in known:
                known[name] = self._create_label(repo, name)
        return [known[name] for name in labels]

    def _labels(self, repo: HostRepository) -> dict[str, int]:
        found = sorted(self.list_items(LabelShape, f"{repo.path}/labels"), key=lambda one: -one.id)
        return {one.name: one.id for one in found}  # of two that have one name, the older

    def _create_label(self, repo: HostRepository, name: str) -> int:
        """The id of a new label; Gitea would make a second one of that name without a word."""
        fields = {"name": name, "color": LABEL_COLOR}

        def send() -> int:
            return self.session.read(
                LabelShape, self.session.request("POST", f"{repo.path}/labels", body=fields).body
            ).id

        return once(send, lambda: self._labels(repo).get(name))

    def limits(self) -> Limits | None:
        self.session.request("GET", "/user")  # it limits nothing; whether the token is good is worth knowing
        return None


def _operation(file: FileChange, found: TreeEntry | None) -> dict[str, Any]:
    operation: dict[str, Any] = {"operation": file.action, "path": file.path}
    if found is not None:
        operation["sha"] = found.sha
    if file.action != "delete":
        operation["content"] = base64.b64encode(file.content).decode()
    return operation
