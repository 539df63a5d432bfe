"""
A host's API over HTTP: what is sent again, what is not, and what a refusal means.

    a rate limit (429, some 403)   it was not done: wait as long as the host asks, then send it again
    5xx, a broken connection       sent again if that is harmless; else Unsure, and the caller looks before it repeats
    401 403 404 409 422 …          a failure with the host's own words

Nothing waits beyond the call's time, and a call that is cancelled waits no longer: a request runs in a thread of its
own, which is left alone. The token is in no message and no body that is read; it goes to the host's own address, and
follows no redirect away.
"""

import itertools
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import TypeAdapter, ValidationError

from crewhall.errors import Conflict, Failure, Forbidden, InvalidInput, LimitExceeded, NotFound, Unavailable
from crewhall.outside.hosting.answers import HostResponse, error_text, has_more, items_of, redirect_of, requested_wait
from crewhall.stop import Stop

ATTEMPTS = 5
REDIRECTS = 3
LONGEST_PAUSE = 20.0
SPARE_SECONDS = 2.0  # of a call's time that is kept back from waiting
ANSWER_BYTES = 64 * 1024 * 1024
ANSWER_SECONDS = 60.0
LEAST_TOKEN = 8  # characters; a shorter one is a word that stands in any text
TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
MOST_PAGES = 1000
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol)
ModelT = TypeVar("ModelT")
log = logging.getLogger(__name__)


class Unsure(Unavailable):
    """The host did not answer a request that must not be sent twice; it may have happened."""


@dataclass(frozen=True)
class Access:
    """How a host is reached: its name, its address in a browser, that of its API, and a token."""

    kind: str
    title: str
    web: str
    api: str
    token: str = field(repr=False)
    source: str  # where the token comes from, for a hint
    besides: str = ""  # what else to say when the repository is not there


@dataclass(frozen=True)
class Patience:
    """How long one call may take, how it pauses between attempts, and whom it tells that it waits.

    `beat` is called before each request and while it runs, and with the seconds of a pause before that.
    """

    stop: Stop
    pause: float = 0.5
    tell: Callable[[str], None] = lambda text: None
    beat: Callable[[float], None] = lambda seconds: None


class _Broken(Exception):
    """No answer, or none that can be read."""

    def __init__(self, error: Exception) -> None:
        super().__init__(type(error).__name__)
        self.was_sent = not isinstance(error, NOT_SENT)
        self.what = (
            "answers with something else than JSON" if isinstance(error, httpx2.DecodingError) else "does not answer"
        )


class Session:
    """Requests to one host for one call. Close it after use."""

    def __init__(self, access: Access, patience: Patience, headers: Mapping[str, str]) -> None:
        self.access = access
        self.has_written = False  # something that may have changed the host was sent
        self.is_unanswered = False  # and to one such request there was no answer: it may happen yet
        self._patience = patience
        if not re.fullmatch("[!-~]*", access.token):  # it cannot even be sent, and an error would show it
            raise Forbidden(f"the token for {access.title} is none", hint=f"It comes from {access.source}.")
        self._client = _client({"User-Agent": "crewhall", **headers})

    def close(self) -> None:
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        again: bool | None = None,
        expect: tuple[int, ...] = (),
    ) -> HostResponse:
        """Send a request and return the host's response, if its status is below 300 or expected.

        `again` says whether sending it twice is harmless; reading and removing is. Raises Unsure when it is not and
        the host failed, LimitExceeded when the host asks to wait for too long, and another Failure for a refusal.
        """
        harmless = method in ("GET", "DELETE") if again is None else again
        url = self.access.api + path
        for attempt in itertools.count(1):
            answer = self._attempt(method, url, query, body)
            pause = self._pause(answer, attempt, harmless)
            if pause is None:
                break
            self._wait(pause, answer)
        assert not isinstance(answer, _Broken)
        if answer.status < 300 or answer.status in expect:
            return answer
        raise (
            self._redirect_refusal(method, path, answer) if answer.status < 400 else self._refusal(method, path, answer)
        )

    def pages(self, path: str, query: Mapping[str, Any], size: str, most: int) -> Iterator[Any]:
        """The bodies of a list's pages, one after the other; `size` is the host's word for how many, `most` its limit.

        A host may give fewer than it was asked for, so a short page alone does not end the list.
        """
        seen = 0
        for page in range(1, MOST_PAGES + 1):
            answer = self.request("GET", path, query={**query, size: most, "page": page})
            yield answer.body
            items = items_of(answer.body)
            seen += len(items)
            if not items or not has_more(answer, seen, len(items) >= most):
                return

    def read(self, kind: type[ModelT], body: Any) -> ModelT:
        """A body as what we need of it. Raises Unavailable when it is something else."""
        try:
            found: ModelT = _adapter(kind).validate_python(body)
            return found
        except ValidationError as error:
            place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            raise Unavailable(
                f"{self.access.title} answered in a way that Crewhall does not know, at '{place[:80]}'",
                hint=f"Is {self.access.api} its API? A proxy between may have answered in its place.",
            ) from None

    def _attempt(self, method: str, url: str, query: Any, body: Any) -> HostResponse | _Broken:
        """One request, with the redirects that it leads to."""
        try:
            for _ in range(REDIRECTS):
                answer = self._exchange(method, url, query, body)
                target = redirect_of(url, method, answer)
                if target is None:
                    return answer
                url, query = target, None
            return answer
        except _Broken as broken:
            log.debug("no answer", extra={"host": self.access.kind, "method": method, "error": str(broken)})
            return broken

    def _exchange(self, method: str, url: str, query: Any, body: Any) -> HostResponse:
        """Send, and wait for the answer or the call's end, whichever comes first. Raises _Broken and what stop does."""
        began, coming = time.monotonic(), Future[HostResponse]()

        def send() -> None:
            try:
                coming.set_result(self._send(method, url, query, body))
            except Exception as error:
                coming.set_exception(error)

        self._patience.stop.check()
        self._patience.beat(0.0)
        is_write = method != "GET"
        self.has_written |= is_write
        was_unanswered, self.is_unanswered = self.is_unanswered, self.is_unanswered or is_write
        threading.Thread(target=send, name="crewhall-host", daemon=True).start()
        while True:
            try:
                answer = coming.result(0.1)
                break
            except NotYet:
                self._patience.stop.check()
                self._patience.beat(0.0)
                if time.monotonic() - began > ANSWER_SECONDS:
                    raise _Broken(TimeoutError()) from None
            except (httpx2.TransportError, httpx2.DecodingError, httpx2.InvalidURL) as error:
                broken = _Broken(error)
                self.is_unanswered = was_unanswered or (is_write and broken.was_sent)
                raise broken from None
        if answer.status < 500:  # what a proxy says in the host's place is no answer
            self.is_unanswered = was_unanswered
        told = {"host": self.access.kind, "method": method, "path": urlsplit(url).path, "status": answer.status}
        log.debug("asked", extra={**told, "ms": round((time.monotonic() - began) * 1000)})
        return answer

    def _send(self, method: str, url: str, query: Any, body: Any) -> HostResponse:
        headers = {"Authorization": f"token {self.access.token}"} if self.access.token else {}
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        with self._client.stream(method, url, params=query or None, content=content, headers=headers) as response:
            raw = bytearray()
            for piece in response.iter_bytes():
                raw += piece
                if len(raw) > ANSWER_BYTES:
                    raise httpx2.DecodingError("the answer is too long")
        try:
            found = without_token(raw, self.access.token) if raw else None
        except (ValueError, RecursionError):
            if response.status_code < 300:
                raise httpx2.DecodingError("the answer is no JSON") from None
            found = None  # a proxy refuses in its own words
        return HostResponse(response.status_code, found, response.headers, _one_line(error_text(found)))

    def _pause(self, answer: HostResponse | _Broken, attempt: int, harmless: bool) -> float | None:
        """How long to wait before it is sent again; None when the answer stands. Raises when it is hopeless."""
        backoff = min(self._patience.pause * 2.0 ** (attempt - 1), LONGEST_PAUSE)
        if isinstance(answer, _Broken):
            if answer.was_sent and not harmless:
                raise self._unsure(answer.what)
            if attempt >= ATTEMPTS:
                raise self._unavailable(answer.what)
            return backoff
        asked = requested_wait(answer, time.time())
        if asked is not None:
            wait = max(asked, backoff)
            if attempt >= ATTEMPTS or not self._has_time(wait):
                raise self._limit_exceeded(wait)
            return wait
        if answer.status < 500:
            return None
        if not harmless:
            raise self._unsure(f"failed with {answer.status}")
        if attempt >= ATTEMPTS:
            raise self._unavailable(f"fails with {answer.status}")
        return backoff

    def _has_time(self, seconds: float) -> bool:
        left = self._patience.stop.seconds_left
        return left is None or seconds < left - SPARE_SECONDS

    def _wait(self, seconds: float, answer: HostResponse | _Broken) -> None:
        why = "did not answer" if isinstance(answer, _Broken) else f"answered {answer.status}"
        self._patience.tell(f"{self.access.title} {why}; waiting {seconds:.0f} s before the next attempt")
        if seconds:
            self._patience.beat(seconds)
            self._patience.stop.wait(seconds)

    def _redirect_refusal(self, method: str, path: str, answer: HostResponse) -> Unavailable:
        there = _one_line(_hide(answer.headers.get("location", ""), self.access.token)) or "nowhere"
        return Unavailable(
            f"{self.access.title} sends {method} {path} on to {there}, which is not followed",
            hint=f"Is {self.access.web} the host's own address? Give the one that it sends to.",
        )

    def _refusal(self, method: str, path: str, answer: HostResponse) -> Failure:
        title, said = self.access.title, answer.error_text or f"HTTP {answer.status}"
        if answer.status == 401:
            return Forbidden(f"{title} does not take the token: {said}", hint=f"It comes from {self.access.source}.")
        if answer.status == 403:
            return Forbidden(
                f"{title} refuses this: {said}",
                hint=f"The token from {self.access.source} lacks a permission: it needs to read the repository, and to "
                "write contents and pull requests (and issues, to create them).",
            )
        if answer.status == 404:
            return NotFound(
                f"{title} knows no {path}: {said}",
                hint=f"{self.access.besides}Check owner, name and number. To a token that may not see it "
                f"({self.access.source}), a private repository looks the same.",
            )
        if answer.status in (409, 423):
            return Conflict(f"{title} refuses this now: {said}", hint="Look at what is there, then try again.")
        if answer.status in (400, 410, 412, 413, 422):
            return InvalidInput(f"{title} does not accept this: {said}", hint="Correct what it names.")
        return Unavailable(f"{title} answered {method} {path} with {answer.status}: {said}", hint="Try again later.")

    def _unsure(self, what: str) -> Unsure:
        return Unsure(
            f"{self.access.title} {what}: it may have happened", hint="Look there first; list_prs shows pull requests."
        )

    def _unavailable(self, what: str) -> Unavailable:
        return Unavailable(
            f"{self.access.title} {what} ({self.access.web})", hint=f"Asked {ATTEMPTS} times. Try again later."
        )

    def _limit_exceeded(self, seconds: float) -> LimitExceeded:
        wait = int(seconds + 0.999)
        return LimitExceeded(
            f"{self.access.title}'s rate limit is used up; it asks to wait {wait} s",
            hint="Try again after that time; pulls_health tells how much is left.",
            retry_after=wait,
        )


def without_token(raw: bytes | bytearray, token: str) -> Any:
    """A body as JSON in which no text has the token, however its letters were written. Raises ValueError.

    It is UTF-8, as JSON is between programs: in UTF-16, which `json.loads` takes too, the token has other bytes.
    """
    found = json.loads(raw.decode("utf-8-sig"))
    is_escaped = b"\\u00" in raw or b"\\/" in raw
    if len(token) < LEAST_TOKEN or not (is_escaped or token.encode() in raw):
        return found
    return json.loads(_hide(json.dumps(found, ensure_ascii=False), json.dumps(token)[1:-1]))


def _hide(text: str, token: str) -> str:
    return text.replace(token, "[token]") if len(token) >= LEAST_TOKEN else text


def _one_line(text: str) -> str:
    """A host's words for a message: short, in one line."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+", " ", text)[:300]


def _client(headers: Mapping[str, str]) -> httpx2.Client:
    """A client that goes by the environment's proxies. Raises Unavailable when they can't be used."""
    try:
        return httpx2.Client(verify=_trusted(), timeout=TIMEOUT, headers=headers)
    except (ValueError, ImportError, httpx2.InvalidURL, httpx2.UnsupportedProtocol):
        raise Unavailable(
            "the hub's environment names a proxy that cannot be used",
            hint="Look at HTTPS_PROXY, HTTP_PROXY and ALL_PROXY where the hub starts; they are to be http:// or https://.",
        ) from None


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
_trusted = cache(httpx2.create_ssl_context)  # reading the certificates takes 50 ms, more than many a call
