"""The pages: files of `web/`, no build step, nothing from elsewhere; and the one-time link that signs a browser in."""

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

from crewhall.app import Hub
from crewhall.config import Settings
from crewhall.edges.http.guard import cookie_name, credentials
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.errors import Forbidden, NotFound, Unauthorized
from crewhall.identity import LINK_MS, Credentials, hash_of, make_token
from crewhall.store.events import DAY_MS
from crewhall.store.transaction import Tx

WEB = files("crewhall.edges.web")
ASSETS = ("hall.css", "hall.js", "api.js", "icon.svg")
POLICY = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Pages:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def routes(self) -> list[Route]:
        return [
            Route("/", self._hall),
            Route("/api/docs", lambda _: _file("api.html")),
            Route("/web/{name}", self._asset),
        ]

    async def _hall(self, request: Request) -> Response:
        key = request.query_params.get("key")
        who = credentials(request.scope, self.dispatcher.hub.settings)
        if key is not None and request.method == "GET":
            await self._refuse_instances(who)
            signed_in = await self._sign_in(key, cookie_name(request.scope))
            # A link that was clicked twice, in a browser that is signed in, is no reason to send it away.
            if signed_in is not None or who.cookie is None:
                return signed_in or _file("welcome.html", 401)
        try:
            await self.dispatcher.actor(who)
        except Unauthorized:
            return _file("welcome.html", 401)
        return _file("hall.html")

    async def _refuse_instances(self, who: Credentials) -> None:
        """Raise Forbidden when a process of an instance opens a link: it is for the operator's browser."""
        actor = await self.dispatcher.actor(Credentials(is_local=True, sender=who.sender))
        if actor.instance is not None:
            raise Forbidden(
                f"the link is for the operator, and this process belongs to {actor.instance}",
                hint="Open it in a browser of your own, outside the instance's session.",
            )

    async def _asset(self, request: Request) -> Response:
        if request.path_params["name"] not in ASSETS:
            raise NotFound("there is no such file", hint="The hall's page is at /.")
        return _file(request.path_params["name"])

    async def _sign_in(self, key: str, name: str) -> Response | None:
        days = self.dispatcher.hub.settings["auth.browser_days"]
        cookie = await self.dispatcher.thread(lambda: use_link(self.dispatcher.hub, key, days))
        if cookie is None:
            return None
        answer = RedirectResponse("/", 303, POLICY)
        answer.set_cookie(name, cookie, max_age=days * DAY_MS // 1000, httponly=True, samesite="strict", path="/")
        return answer


def _file(name: str, status: int = 200) -> Response:
    return FileResponse(str(WEB.joinpath(name)), status, POLICY)


def use_link(hub: Hub, key: str, days: int) -> str | None:
    """A cookie for the browser that brought the key of an unused link, or None."""
    now = hub.clock()
    with hub.own_work() as tx:
        if tx.one("link_use", hash=hash_of(key), now=now) is None:
            return None
        return make_token(tx, "browser", "dashboard", now, expires_at=now + days * DAY_MS)


def make_link(tx: Tx, url: str, now: int) -> str:
    """A link that signs one browser in, once."""
    return f"{url}/?key={make_token(tx, 'link', 'link', now, expires_at=now + LINK_MS)}"


def url_of(settings: Settings, port: int) -> str:
    """Where this machine reaches the hub; one that binds every address is reached by loopback."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings["server.host"], settings["server.host"])  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
