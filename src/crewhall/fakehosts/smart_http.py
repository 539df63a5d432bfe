"""
Git's smart HTTP on the socket of the API: `git push` and `git fetch`, answered by git's own `git http-backend`.

    GET  /octo/ops.git/info/refs?service=…      POST /octo/ops.git/git-upload-pack, …/git-receive-pack

A token is the password of any user, or the user's name. Who has none may read. A push is done under the host's lock,
like all work, so that the API sees none of it or all.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from urllib.parse import unquote, urlencode

from crewhall.errors import Cancelled, TimedOut
from crewhall.fakehosts.bare import NO_SETTINGS
from crewhall.fakehosts.merging import follow_push
from crewhall.fakehosts.records import Refusal
from crewhall.fakehosts.routes import FakeRepositories
from crewhall.fakehosts.server import GIT_PATH, FakeRequest, FakeResponse
from crewhall.fakehosts.state import FakeRepository
from crewhall.outside.run import run
from crewhall.stop import Stop

PUSH = "git-receive-pack"
SECONDS = 60.0
MOST_BYTES = 1_000_000_000
HOOK = """#!/bin/sh
while read -r old new ref; do
    if grep -qxF "$ref" protected; then
        echo "{protected}" >&2
        exit 1
    fi
done
"""


@dataclass(frozen=True)
class GitWords:
    """What a host says to git: its name, to a token that may not push, and of a protected branch (`$ref`)."""

    title: str
    denied: str
    protected: str


class SmartHttp:
    """The git side of a host."""

    def __init__(self, repositories: FakeRepositories, tokens: Mapping[str, str], words: GitWords) -> None:
        self._repositories, self._tokens, self._words = repositories, tokens, words
        self.stop = Stop()

    def respond(self, request: FakeRequest) -> FakeResponse:
        """The response to git, or in words that git shows to its user."""
        try:
            return self._respond(request)
        except Refusal as refusal:
            headers = {"content-type": "text/plain; charset=utf-8"}
            if refusal.status == 401:
                headers["www-authenticate"] = f'Basic realm="{self._words.title}"'
            return FakeResponse(refusal.status, f"{refusal.message}\n", headers)

    def _respond(self, request: FakeRequest) -> FakeResponse:
        match = GIT_PATH.fullmatch(request.path)
        assert match
        owner, name, service = (unquote(part) for part in match.groups())
        is_push = PUSH in (service, request.query.get("service"))
        login = self._login(request.headers.get("authorization", ""))
        repo = self._repositories.find_by_name(owner, name)
        if login is None and (is_push or repo is None):
            raise Refusal(401, "Authentication required.")
        if repo is None:
            raise Refusal(404, "Repository not found.")
        if repo.name.lower() != name.lower():
            there = f"/{repo.owner}/{repo.name}.git/{service}?{urlencode(request.query)}"
            return FakeResponse(301, "", {"location": there})
        if is_push and not repo.may_push:
            raise Refusal(403, self._words.denied.format(repository=f"{owner}/{name}", login=login))
        return self._run(repo, request, service, login)

    def _login(self, authorization: str) -> str | None:
        """Whose token it is; None without one. Raises Refusal for one that is not known."""
        if not authorization:
            return None
        try:
            user, _, password = base64.b64decode(authorization[len("basic ") :]).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user = password = ""
        login = self._tokens.get(password) or self._tokens.get(user)
        if login is None or not authorization.lower().startswith("basic "):
            raise Refusal(401, "Invalid username or token. Password authentication is not supported.")
        return login

    def _run(self, repo: FakeRepository, request: FakeRequest, service: str, login: str | None) -> FakeResponse:
        repo.bare.write_objects()
        repo.bare.write_branches(repo.branches)
        self._write_hook(repo)
        try:
            ended = run(
                ["git", "http-backend"],
                cwd=str(repo.bare.path),
                env=_environment(repo, request, service, login),
                stdin=request.raw,
                seconds=SECONDS,
                most_bytes=MOST_BYTES,
                stop=self.stop,
            )
        except (TimedOut, Cancelled) as failure:
            raise Refusal(504, failure.message) from None
        finally:
            if service == PUSH:
                follow_push(repo)
        return _read_cgi(ended.out)

    def _write_hook(self, repo: FakeRepository) -> None:
        path = repo.bare.path
        (path / "protected").write_text("".join(f"refs/heads/{name}\n" for name in repo.protected))
        hook = path / "hooks" / "pre-receive"
        hook.write_text(HOOK.format(protected=self._words.protected) + repo.hook)
        hook.chmod(0o755)


def _environment(repo: FakeRepository, request: FakeRequest, service: str, login: str | None) -> dict[str, str]:
    """The variables of CGI. git http-backend unpacks a gzipped body itself."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return clean | {
        **NO_SETTINGS,
        "GIT_PROJECT_ROOT": str(repo.bare.path.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
        "PATH_INFO": f"/{repo.bare.path.name}/{service}",
        "REQUEST_METHOD": request.method,
        "QUERY_STRING": urlencode(request.query),
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(request.raw)),
        "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
        "REMOTE_ADDR": "127.0.0.1",
        **({"REMOTE_USER": login} if login else {}),
    }


def _read_cgi(output: bytes) -> FakeResponse:
    head, _, body = output.partition(b"\r\n\r\n")
    headers = {name.lower(): value for name, value in BytesParser().parsebytes(head + b"\n\n").items()}
    status = int(headers.pop("status", "200").split(" ")[0])
    return FakeResponse(status, body, headers)
