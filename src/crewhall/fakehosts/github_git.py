"""GitHub's git data API: branches, references, blobs, trees and commits."""

import base64
import binascii
from typing import Any

from crewhall.fakehosts.github_base import GitHubBase, created_response, invalid
from crewhall.fakehosts.github_shapes import person
from crewhall.fakehosts.objects import FILE, FOLDER, FakeTreeEntry
from crewhall.fakehosts.records import Refusal
from crewhall.fakehosts.routes import Routes
from crewhall.fakehosts.server import FakeRequest, FakeResponse
from crewhall.fakehosts.state import FakeRepository
from crewhall.paths import is_below

git = Routes()


@git.on("GET", "/branches/{branch*}")
def branch(host: GitHubBase, repo: FakeRepository, request: FakeRequest, name: str) -> FakeResponse:
    if name not in repo.branches:
        raise Refusal(404, "Branch not found")
    return FakeResponse(200, host.shapes.branch(repo, name, repo.commits[repo.branches[name]]))


@git.on("GET", "/git/ref/{ref*}")
def ref_get(host: GitHubBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    _not_empty(repo)
    name = ref.removeprefix("heads/")
    if name == ref or name not in repo.branches:
        raise Refusal(404, "Not Found")
    return FakeResponse(200, host.shapes.ref(repo, name))


@git.on("GET", "/git/matching-refs/{ref*}")
def refs_matching(host: GitHubBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    _not_empty(repo)
    found = [name for name in sorted(repo.branches) if f"heads/{name}".startswith(ref)]
    return FakeResponse(200, [host.shapes.ref(repo, name) for name in found])


@git.on("POST", "/git/refs")
def ref_create(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    _not_empty(repo)
    ref, sha = request.need("ref", "sha")
    name = ref.removeprefix("refs/heads/")
    if name == ref or not _is_name(name):
        raise Refusal(422, f"{ref} is not a valid ref name.")
    if name in repo.branches:
        raise Refusal(422, "Reference already exists")
    if sha not in repo.commits:
        raise Refusal(422, "Object does not exist")
    if repo.clashes(name):
        raise Refusal(422, "Reference update failed")
    repo.set_branch(name, sha)
    return created_response(host.shapes.ref(repo, name))


@git.on("PATCH", "/git/refs/{ref*}")
def ref_update(host: GitHubBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    name, (sha,) = _existing(repo, ref), request.need("sha")
    if sha not in repo.commits:
        raise Refusal(422, "Object does not exist")
    if not request.fields.get("force") and repo.merge_base(repo.branches[name], sha) != repo.branches[name]:
        raise Refusal(422, "Update is not a fast forward")
    repo.set_branch(name, sha)
    return FakeResponse(200, host.shapes.ref(repo, name))


@git.on("DELETE", "/git/refs/{ref*}")
def ref_delete(host: GitHubBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    repo.drop_branch(_existing(repo, ref))
    return FakeResponse(204)


@git.on("POST", "/git/blobs")
def blob_create(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    _not_empty(repo)
    content, encoding = request.fields.get("content", ""), request.fields.get("encoding", "utf-8")
    try:
        raw = base64.b64decode(content, validate=False) if encoding == "base64" else content.encode()
    except binascii.Error:
        raise invalid("Blob", "content") from None
    sha = repo.objects.put_blob(raw)
    return created_response({"sha": sha, "url": f"{host.shapes.of(repo)}/git/blobs/{sha}"})


@git.on("POST", "/git/trees")
def tree_create(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    _not_empty(repo)
    (entries,) = request.need("tree")
    base = request.fields.get("base_tree")
    if base is not None and repo.tree(base) is None:
        raise Refusal(422, "base_tree is not a valid tree oid")
    flat = repo.objects.flat(repo.tree(base) or "") if base else {}
    for entry in entries:
        _put(repo, flat, entry)
    return created_response(_tree(host, repo, repo.objects.put_tree(flat), deep=False))


def _put(repo: FakeRepository, flat: dict[str, FakeTreeEntry], entry: dict[str, Any]) -> None:
    """Change the files as one entry of the request says: write, delete, or put a whole folder."""
    path, mode, sha = entry.get("path", ""), entry.get("mode", FILE), entry.get("sha")
    if not _is_path(path):
        raise Refusal(422, "tree.path contains a malformed path component")
    if ("content" in entry) == ("sha" in entry):
        raise Refusal(422, "Must supply either tree.sha or tree.content. Request will be rejected if both are present.")
    below_it = [one for one in flat if is_below(one, path)]
    if "sha" in entry and sha is None and not below_it:
        raise Refusal(422, "GitRPC::BadObjectState")
    for one in below_it:
        del flat[one]
    if "content" in entry:
        flat[path] = FakeTreeEntry(mode, repo.objects.put_blob(entry["content"].encode()))
    elif mode == FOLDER and sha in repo.objects.trees:
        flat |= {f"{path}/{name}": one for name, one in repo.objects.flat(sha).items()}
    elif sha in repo.objects.blobs:
        flat[path] = FakeTreeEntry(mode, sha)
    elif sha is not None:
        raise Refusal(422, f"tree.sha {sha} is not a valid {FakeTreeEntry(mode, sha).kind}")


@git.on("GET", "/git/trees/{sha*}")
def tree_get(host: GitHubBase, repo: FakeRepository, request: FakeRequest, sha: str) -> FakeResponse:
    _not_empty(repo)
    tree = repo.tree(sha)
    if tree is None:
        raise Refusal(404, "Not Found")
    return FakeResponse(200, _tree(host, repo, tree, deep="recursive" in request.query))


def _tree(host: GitHubBase, repo: FakeRepository, sha: str, *, deep: bool) -> dict[str, Any]:
    rows = list(repo.objects.walk(sha) if deep else repo.objects.trees[sha].items())
    shown = [host.shapes.entry(repo, path, entry) for path, entry in rows[: host.limit.tree]]
    url = f"{host.shapes.of(repo)}/git/trees/{sha}"
    return {"sha": sha, "url": url, "tree": shown, "truncated": len(rows) > host.limit.tree}


@git.on("POST", "/git/commits")
def commit_create(host: GitHubBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    _not_empty(repo)
    message, tree = request.need("message", "tree")
    parents = tuple(request.fields.get("parents", ()))
    if tree not in repo.objects.trees:
        raise Refusal(422, "Tree SHA does not exist")
    if any(sha not in repo.commits for sha in parents):
        raise Refusal(422, "Parent SHA does not exist or is not a commit object")
    author = person(request.fields.get("author"), request.login, repo.now())
    sha = repo.put_commit(tree, parents, message, author)
    return created_response(host.shapes.git_commit(repo, repo.commits[sha]))


@git.on("GET", "/git/commits/{sha}")
def commit_get(host: GitHubBase, repo: FakeRepository, request: FakeRequest, sha: str) -> FakeResponse:
    _not_empty(repo)
    if sha not in repo.commits:
        raise Refusal(404, "Not Found")
    return FakeResponse(200, host.shapes.git_commit(repo, repo.commits[sha]))


@git.on("GET", "/compare/{basehead*}")
def compare(host: GitHubBase, repo: FakeRepository, request: FakeRequest, basehead: str) -> FakeResponse:
    base, head = (repo.commit(ref.rpartition(":")[2]) for ref in (*basehead.split("..."), "")[:2])
    if base is None or head is None:
        raise Refusal(404, "Not Found")
    ahead, behind = repo.ahead(base.sha, head.sha), repo.ahead(head.sha, base.sha)
    status = "diverged" if ahead and behind else "ahead" if ahead else "behind" if behind else "identical"
    here = f"{host.shapes.of(repo)}/compare/{base.sha}...{head.sha}"
    web = f"{host.url}/{repo.owner}/{repo.name}/compare/{base.sha}...{head.sha}"
    return FakeResponse(
        200,
        {
            "url": here,
            **dict.fromkeys(("html_url", "permalink_url", "diff_url", "patch_url"), web),
            "base_commit": host.shapes.commit(repo, base),
            "merge_base_commit": host.shapes.commit(repo, repo.commits[repo.merge_base(base.sha, head.sha)]),
            "status": status,
            "ahead_by": len(ahead),
            "behind_by": len(behind),
            "total_commits": len(ahead),
            "commits": [host.shapes.commit(repo, one) for one in reversed(ahead)],
        },
    )


def _not_empty(repo: FakeRepository) -> None:
    if not repo.branches:
        raise Refusal(409, "Git Repository is empty.")


def _existing(repo: FakeRepository, ref: str) -> str:
    _not_empty(repo)
    name = ref.removeprefix("heads/")
    if name == ref or name not in repo.branches:
        raise Refusal(422, "Reference does not exist")
    return name


def _is_path(path: str) -> bool:
    return all(part not in ("", ".", "..", ".git") for part in path.split("/")) and "\0" not in path


def _is_name(name: str) -> bool:
    """Whether git takes it as a branch's name, about."""
    is_odd = any(one in name for one in (" ", "~", "^", ":", "?", "*", "[", "\\", "..", "@{", "//"))
    return not is_odd and not name.endswith(("/", ".lock", ".")) and not name.startswith(("/", "-"))
