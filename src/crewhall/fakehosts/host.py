"""
A pretended host, whatever its API: its repositories, and the way from a request to an answer that is written down.

    request ─▶ fault? ─▶ token ─▶ repository ─▶ route ─▶ answer ─▶ written down ─▶ sent

All work is done under one lock.
"""

import re
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import unquote, urlencode

from crewhall.fakehosts.faults import Fault, Faults
from crewhall.fakehosts.objects import FILE, FakeTreeEntry
from crewhall.fakehosts.records import Refusal
from crewhall.fakehosts.routes import FakeRepositories, Routes
from crewhall.fakehosts.server import FakeHostServer, FakeRequest, FakeResponse, MalformedBody
from crewhall.fakehosts.smart_http import GitWords, SmartHttp
from crewhall.fakehosts.state import FakeRepository

REPOSITORY = re.compile(r"/repos/([^/]+)/([^/]+)(/.*)?|/repositories/(\d+)(/.*)?")


@dataclass(frozen=True)
class Exchange:
    """A request and what was answered. The path is as sent, without the prefix; a dropped one has the status 0."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    status: int
    answer: Any
    answer_headers: dict[str, str]
    fault: str = ""  # the kind of the one that it met


@dataclass
class Limit:
    """The most items of a page, and of a tree: in one page at Gitea, before it is truncated at GitHub."""

    page: int
    tree: int


class FakeHost(ABC):
    """A pretended host; in a `with` it listens. What differs between hosts is in their classes."""

    prefix: ClassVar[str]
    routes: ClassVar[Routes]  # below the API's root
    repository_routes: ClassVar[Routes]  # below a repository
    public: ClassVar[frozenset[str]] = frozenset()  # paths that need no token
    git_words: ClassVar[GitWords]

    def __init__(self, tokens: Mapping[str, str], limit: Limit) -> None:
        self.tokens, self.limit = dict(tokens), limit
        self.repositories: FakeRepositories = FakeRepositories()
        self.exchanges: list[Exchange] = []
        self.git_exchanges: list[Exchange] = []  # of git push and git fetch, which are no part of the API
        self._smart_http, self._ending = SmartHttp(self.repositories, self.tokens, self.git_words), ExitStack()
        self.lock = threading.Condition()  # told of every exchange
        self._faults, self._server = Faults(), FakeHostServer(self.prefix, self.reply)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.api = self.url + self.prefix
        self._thread = threading.Thread(target=self._server.serve, name=f"pretended {type(self).__name__}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._faults.open_gates()
        self._smart_http.stop.cancel("the host ends")
        self._server.wake_and_stop()
        self._thread.join()
        self._server.close()
        self._ending.close()

    @cached_property
    def directory(self) -> Path:
        """Where the bare repositories are, from when git first needs one until the host ends."""
        return Path(self._ending.enter_context(tempfile.TemporaryDirectory(prefix="crewhall-host-")))

    def add_repository(
        self,
        owner: str,
        name: str,
        files: Mapping[str, bytes] | None = None,
        *,
        default_branch: str = "main",
        modes: Mapping[str, str] | None = None,
    ) -> FakeRepository:
        """A repository with these files in one commit on its default branch; an empty one when there are none."""
        with self.lock:
            number = len(self.repositories) + 1
            place = partial(self._bare_place, number)
            repository = FakeRepository(number, owner, name, default_branch, self.lock, place)
            put = repository.objects.put_blob
            flat = {
                path: FakeTreeEntry((modes or {}).get(path, FILE), put(content))
                for path, content in (files or {}).items()
            }
            if flat:
                repository.set_branch(default_branch, repository.put_commit(flat, (), "First commit"))
            self.repositories[(owner, name)] = repository
            return repository

    def _bare_place(self, number: int) -> Path:
        return self.directory / f"{number}.git"

    def fail(self, fault: Fault) -> None:
        """Do this wrong from now on."""
        self._faults.add(fault)

    def forbid(self, owner: str, name: str, *, push: bool = True) -> None:
        """Let nobody write to a repository; with `push=False`, let them again."""
        self.repositories[(owner, name)].may_push = not push

    def rename(self, owner: str, name: str, new_name: str) -> None:
        """Give a repository another name; what is asked under the old one is sent on to where it is now."""
        with self.lock:
            self.repositories.rename(owner, name, new_name)

    def wait_for(self, count: int, seconds: float = 5.0) -> bool:
        """Wait until so many exchanges are written down; False when they did not come in time."""
        with self.lock:
            return self.lock.wait_for(lambda: len(self.exchanges) >= count, seconds)

    # What differs between hosts

    @abstractmethod
    def error(self, refusal: Refusal) -> dict[str, Any]:
        """The body of a refusal."""

    def usual_headers(self) -> dict[str, str]:
        """Headers of every answer."""
        return {}

    @abstractmethod
    def stranger(self, token: str) -> Refusal:
        """What is said to who has no token, or an unknown one."""

    @abstractmethod
    def redirect(self, request: FakeRequest, repository: FakeRepository, rest: str) -> FakeResponse:
        """The response to a request under a repository's old name."""

    # From a request to its answer

    def reply(self, request: FakeRequest) -> tuple[FakeResponse | None, float]:
        """The answer, None for a closed connection, and how many seconds later; it is written down."""
        fault = self._faults.next(request.method, request.path)
        kind = fault.kind if fault else None
        if fault and kind == "hold":
            fault.gate.hold()
        with self.lock:
            answer = None if kind in ("answer", "drop") else self._work(request)
            if fault and kind in ("answer", "fail_after"):
                answer = self._wrong(fault)
            if kind == "drop_after":
                answer = None
            self._note(request, answer, kind or "")
        return answer, fault.seconds if fault and kind == "slow" else 0.0

    def _wrong(self, fault: Fault) -> FakeResponse:
        words = HTTPStatus(fault.status).phrase
        own = self.error(Refusal(fault.status, words))
        given = own | fault.body if isinstance(fault.body, dict) else fault.body
        return FakeResponse(fault.status, own if given is None else given, self.usual_headers() | fault.headers)

    def _note(self, request: FakeRequest, answer: FakeResponse | None, fault: str) -> None:
        told = answer.body if answer and not isinstance(answer.body, (str, bytes)) else None
        status, headers = (answer.status, answer.headers) if answer else (0, {})
        (self.git_exchanges if request.is_git else self.exchanges).append(
            Exchange(
                request.method,
                request.path,
                request.query,
                request.headers,
                request.body,
                status,
                told,
                dict(headers),
                fault,
            )
        )
        self.lock.notify_all()

    def _work(self, request: FakeRequest) -> FakeResponse:
        try:
            answer = self._route(request)
        except Refusal as refusal:
            answer = FakeResponse(refusal.status, self.error(refusal))
        answer.headers = self.usual_headers() | answer.headers
        return answer

    def _route(self, request: FakeRequest) -> FakeResponse:
        if request.is_git:
            return self._smart_http.respond(request)
        if not request.is_inside:
            raise Refusal(404, "Not Found")
        token = re.sub(r"(?i)^(bearer|token) +", "", request.headers.get("authorization", ""))
        if token not in self.tokens and request.path not in self.public:
            raise self.stranger(token)
        if isinstance(request.body, MalformedBody):
            raise Refusal(400, "Problems parsing JSON")
        known = replace(request, login=self.tokens.get(token, ""))
        if match := REPOSITORY.fullmatch(request.path):
            return self._route_below(known, match)
        function, parts = self.routes.find(request.method, request.path)
        return function(self, known, *parts)

    def _route_below(self, request: FakeRequest, match: re.Match[str]) -> FakeResponse:
        owner, name, rest, number, rest_too = match.groups()
        found = (
            self.repositories.find_by_id(int(number))
            if number
            else self.repositories.find_by_name(unquote(owner), unquote(name))
        )
        if found is None:
            raise Refusal(404, "Not Found")
        if not number and found.name.lower() != unquote(name).lower():
            return self.redirect(
                request, found, (rest or "") + (f"?{urlencode(request.query)}" if request.query else "")
            )
        function, parts = self.repository_routes.find(request.method, rest or rest_too or "")
        if request.method != "GET" and not found.may_push:
            raise Refusal(403, "Resource not accessible by this token")
        return function(self, found, request, *parts)

    def page(self, request: FakeRequest, items: list[Any], size: str, shape: Callable[[Any], Any]) -> FakeResponse:
        """One page of a list, and where its neighbours are."""
        most, page = min(request.number(size, 30), self.limit.page), request.number("page", 1)
        last = max(1, -(-len(items) // most))
        numbers = {"prev": page - 1, "next": page + 1, "last": last, "first": 1}
        wanted = ("next", "last") * (page < last) + ("prev", "first") * (page > 1)
        links = [f'<{self._address(request, numbers[rel])}>; rel="{rel}"' for rel in wanted]
        headers = {"link": ", ".join(links)} if links else {}
        return FakeResponse(200, [shape(one) for one in items[(page - 1) * most : page * most]], headers)

    def _address(self, request: FakeRequest, page: int) -> str:
        return f"{self.api}{request.path}?{urlencode({**request.query, 'page': page})}"
