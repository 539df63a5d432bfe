"""Gitea's branches, references, trees and commits, and its change of many files at once."""

import base64
import binascii
from typing import Any

from crewhall.fakehosts.gitea_base import GiteaBase, sha_of
from crewhall.fakehosts.objects import FILE, FakeTreeEntry, Person
from crewhall.fakehosts.records import Refusal
from crewhall.fakehosts.routes import Routes
from crewhall.fakehosts.server import FakeRequest, FakeResponse
from crewhall.fakehosts.state import FakeRepository
from crewhall.paths import is_below

SHOWN_FILES = 30  # that the answer to a change of files has at the most
git = Routes()


@git.on("GET", "/branches")
def branches(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    return host.counted_page(request, sorted(repo.branches), lambda name: host.shapes.branch(repo, name))


@git.on("GET", "/branches/{branch*}")
def branch_get(host: GiteaBase, repo: FakeRepository, request: FakeRequest, name: str) -> FakeResponse:
    return FakeResponse(200, host.shapes.branch(repo, _branch(repo, name)))


@git.on("POST", "/branches")
def branch_create(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    (name,) = request.need("new_branch_name")
    old = request.fields.get("old_ref_name") or request.fields.get("old_branch_name") or repo.default_branch
    commit = repo.commit(old)
    if commit is None:
        raise Refusal(404, "The old branch does not exist")
    if name in repo.branches:
        raise Refusal(409, "The branch already exists.")
    if repo.clashes(name):
        raise Refusal(409, f"branch name conflicts with an existing branch [name: {name}]")
    repo.set_branch(name, commit.sha)
    return FakeResponse(201, host.shapes.branch(repo, name))


@git.on("DELETE", "/branches/{branch*}")
def branch_delete(host: GiteaBase, repo: FakeRepository, request: FakeRequest, name: str) -> FakeResponse:
    if name == repo.default_branch:
        raise Refusal(403, "can not delete default or pull request target branch")
    repo.drop_branch(_branch(repo, name))
    return FakeResponse(204)


@git.on("GET", "/git/refs")
def refs(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    return refs_below(host, repo, request, "")


@git.on("GET", "/git/refs/{ref*}")
def refs_below(host: GiteaBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    """All that begin so, in a list, even when it is one."""
    found = [name for name in sorted(repo.branches) if f"heads/{name}".startswith(ref)]
    if not found:
        raise Refusal(404, "The target couldn't be found.")
    return FakeResponse(200, [host.shapes.ref(repo, name) for name in found])


@git.on("GET", "/git/trees/{sha*}")
def tree(host: GiteaBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    sha = repo.tree(ref)
    if sha is None:
        raise Refusal(404, f"object does not exist [id: {ref}, rel_path: ]")
    is_deep = request.query.get("recursive") in ("true", "1")
    rows = list(repo.objects.walk(sha) if is_deep else repo.objects.trees[sha].items())
    page, size = request.number("page", 1), request.number("per_page", host.limit.tree)
    size = min(size, host.limit.tree)
    shown = [host.shapes.entry(repo, path, one) for path, one in rows[(page - 1) * size : page * size]]
    about = {"sha": sha, "url": f"{host.shapes.of(repo)}/git/trees/{sha}", "page": page, "total_count": len(rows)}
    return FakeResponse(200, {**about, "tree": shown, "truncated": page * size < len(rows)})


@git.on("GET", "/git/commits/{sha}")
def commit(host: GiteaBase, repo: FakeRepository, request: FakeRequest, ref: str) -> FakeResponse:
    return FakeResponse(200, host.shapes.commit(repo, repo.commits[sha_of(repo, ref)]))


@git.on("POST", "/contents")
def change_files(host: GiteaBase, repo: FakeRepository, request: FakeRequest) -> FakeResponse:
    """All files in one commit, on a branch or on a new one."""
    (files,) = request.need("files")
    branch = request.fields.get("branch") or repo.default_branch
    target = request.fields.get("new_branch") or branch
    if repo.branches:
        _branch(repo, branch)
    if target != branch and (target in repo.branches or repo.clashes(target)):
        raise Refusal(422, f"branch already exists [name: {target}]")
    flat = repo.entries(branch) if repo.branches else {}
    for file in files:
        _change(repo, flat, file)
    above = repo.branches.get(branch)
    sha = repo.put_commit(
        flat, (above,) if above else (), _message(request.fields, files), _author(request, repo.now())
    )
    repo.set_branch(target, sha)
    kept = [one["path"] for one in files if one["path"] in flat][:SHOWN_FILES]
    shown = [host.shapes.file(repo, target, path, flat[path]) for path in kept]
    unsigned = {"verified": False, "reason": "gpg.error.not_signed_commit", "signature": "", "payload": ""}
    done = {"commit": host.shapes.file_commit(repo, repo.commits[sha]), "files": shown, "verification": unsigned}
    return FakeResponse(201, done)


def _change(repo: FakeRepository, flat: dict[str, FakeTreeEntry], file: dict[str, str]) -> None:
    """Change the files as one operation says; renames are not pretended."""
    path, operation = file.get("path", ""), file.get("operation", "")
    if any(part in ("", ".", "..", ".git") for part in path.split("/")):
        raise Refusal(422, f"path contains a malformed path component [path: {path}]")
    if operation not in ("create", "update", "upload", "delete"):
        raise Refusal(422, "[Operation]: In")
    if operation == "create" and any(is_below(one, path) or is_below(path, one) for one in flat):
        raise Refusal(422, f"repository file already exists [path: {path}]")
    if operation in ("update", "delete"):
        _same(flat, path, file.get("sha", ""))
    old = flat.pop(path, None)
    if operation != "delete":
        flat[path] = FakeTreeEntry(old.mode if old else FILE, repo.objects.put_blob(_decode(file.get("content", ""))))


def _same(flat: dict[str, FakeTreeEntry], path: str, sha: str) -> None:
    """Whether the caller knows the file that is there."""
    if path not in flat:
        raise Refusal(404, f"repository file does not exist [path: {path}]")
    if not sha:
        raise Refusal(422, "a SHA or commit ID must be provided when updating a file")
    if flat[path].sha != sha:
        raise Refusal(422, f"sha does not match [given: {sha}, expected: {flat[path].sha}]")


def _decode(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise Refusal(422, f"illegal base64 data: {error}") from None


def _message(given: dict[str, Any], files: list[dict[str, str]]) -> str:
    return given.get("message") or "\n".join(f"{one['operation'].capitalize()} {one['path']}" for one in files)


def _author(request: FakeRequest, now: str) -> Person:
    given = request.fields.get("author") or {}
    return Person(given.get("name") or request.login, given.get("email") or f"{request.login}@noreply.example.com", now)


def _branch(repo: FakeRepository, name: str) -> str:
    if name not in repo.branches:
        raise Refusal(404, f"branch does not exist [name: {name}]")
    return name
