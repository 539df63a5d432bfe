"""
What every HTTP request passes before anything reads it: its size, its Host and Origin, and who sent it.

    body over the limit ─▶ 413    unknown Host ─▶ 421    foreign Origin ─▶ 403    no or wrong token ─▶ 401
"""

import logging
import re
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crewhall.config import Settings
from crewhall.edges.http.peer import Peer
from crewhall.errors import Failure, Forbidden, InvalidInput, TooLarge
from crewhall.identity import Credentials

log = logging.getLogger(__name__)
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
BROWSER = (b"origin", b"sec-fetch-site")  # not sec-fetch-mode: Node's fetch sends that too
PROXY = (b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"cf-connecting-ip", b"x-original-host")
NOT_LOCAL = frozenset((*BROWSER, *PROXY))  # headers of who is not a plain process of this machine
FORWARDED = b"x-forwarded-"  # and those that begin so
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="crewhall"'}  # goes with 401
ONCE = ("authorization", "cookie", "origin")
HOST = re.compile(r"(\[[0-9a-z:.%]+\]|[^\s@/\\?#:\[\]]+)(:\d{0,5})?", re.IGNORECASE)


class UnknownHost(Forbidden):
    """The Host header names a place that this hub does not serve: DNS rebinding looks like this."""

    status = 421


class WrongMethod(InvalidInput):
    """The path is there, and not for this HTTP method."""

    status = 405


def credentials(scope: Scope, settings: Settings) -> Credentials:
    """What this request says about its sender. An empty token is a wrong one, never none.

    Raises Unavailable when that is a local process, and the system cannot be asked whose.
    """
    peer: Peer | None = scope.get("state", {}).get("peer")
    if peer:
        peer.ask()
    sender = peer.sender if peer else None
    names = {name for name, _ in scope["headers"]}
    headers = Headers(scope=scope)
    if b"authorization" in names:
        scheme, _, token = headers["authorization"].partition(" ")
        return Credentials(token=token.strip() if scheme.lower() == "bearer" else "", sender=sender)
    cookie = cookie_parser(headers["cookie"]).get(cookie_name(scope)) if b"cookie" in names else None
    if cookie is not None:
        return Credentials(cookie=cookie, sender=sender)
    is_forwarded = not names.isdisjoint(NOT_LOCAL) or any(name.startswith(FORWARDED) for name in names)
    is_direct = not is_forwarded and _is_loopback(headers.get("host", ""))
    is_local = bool(settings["auth.local_without_token"] and is_direct and peer and peer.is_same_user)
    return Credentials(is_local=is_local, sender=sender)


def cookie_name(scope: Scope) -> str:
    """Cookies know no ports: the name has it, so that two hubs of a machine do not sign each other's browser out."""
    return f"crewhall-{(scope.get('server') or ('', 0))[1]}"


def refuse_twice(headers: Headers) -> None:
    """Raise InvalidInput if a header that says who sends is there twice: readers take one or the other."""
    for name in ONCE:
        if len(headers.getlist(name)) > 1:
            raise InvalidInput(f"the header '{name}' is there twice", hint="Send it once.")


def refuse_foreign(headers: Headers, settings: Settings) -> None:
    """Raise Forbidden for a Host that we do not answer to, or an Origin that is not our own page."""
    given = headers.getlist("host")
    host = given[0] if len(given) == 1 else ""  # two of them name no place
    if _name(host) not in known_hosts(settings):
        raise UnknownHost(
            f"this hub does not answer to the host '{host[:100]}'",
            hint="Use 127.0.0.1 or localhost, or add the name to server.hosts (CREWHALL_SERVER_HOSTS).",
        )
    origin = headers.get("origin")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        raise Forbidden(
            f"requests from the page at '{origin[:100]}' are refused",
            hint="Only the hub's own pages may call it from a browser.",
        )


def known_hosts(settings: Settings) -> tuple[str, ...]:
    """The names that this hub answers to: the machine's own, the address it binds, what the settings add."""
    bound = settings["server.host"]
    return (*LOOPBACK_NAMES, f"[{bound}]" if ":" in bound else bound, *settings["server.hosts"])


def _name(host: str) -> str:
    """The Host header without its port; empty when it is no name."""
    found = HOST.fullmatch(host)
    return found[1].lower() if found else ""


def _is_loopback(host: str) -> bool:
    """Whether the Host header names this machine itself, and no name that may lead here through a proxy."""
    name = _name(host)
    return name in LOOPBACK_NAMES or bool(re.fullmatch(r"127(\.\d{1,3}){3}", name))


class Guard:
    """Middleware around every route: refuses what is too large or foreign, in one body on every path."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            refuse_foreign(headers, self.settings)
            refuse_twice(headers)
            self._refuse_large(headers.get("content-length", ""))
            await self.app(scope, self._counting(receive), send)
        except Failure as failure:
            await refusal(failure)(scope, receive, send)
        except ClientDisconnect:
            log.debug("a client went away before its request was whole")

    def _refuse_large(self, length: str) -> None:
        if length.isdigit() and int(length) > self.settings["server.max_body_bytes"]:
            raise self._too_large()

    def _counting(self, receive: Receive) -> Callable[[], Awaitable[Message]]:
        """Count a body that did not tell its length."""
        seen = 0

        async def receive_counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.settings["server.max_body_bytes"]:
                raise self._too_large()
            return message

        return receive_counted

    def _too_large(self) -> TooLarge:
        most = self.settings["server.max_body_bytes"]
        return TooLarge(f"the request is larger than {most} bytes", hint="Send less, or keep large things in files.")


def refusal(failure: Failure, tool_name: str | None = None) -> JSONResponse:
    """A failure as an HTTP answer."""
    headers = CHALLENGE if failure.status == 401 else None
    return JSONResponse(failure.body(tool_name), failure.status, headers)
