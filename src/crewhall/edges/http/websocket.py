"""The live edge: events over a WebSocket, to each watcher from its own cursor."""

import asyncio
import json
import logging

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from crewhall.edges.http.feed import Feed, page_text
from crewhall.edges.http.guard import credentials
from crewhall.edges.http.watcher import Watcher
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.errors import Failure, InvalidInput
from crewhall.identity import Credentials

log = logging.getLogger(__name__)
CLOSE_CODES = {401: 4401, 410: 4410}
BUG = 1011


class LiveEdge:
    """`/api/v1/events?after=N&topic=…` as a WebSocket: messages as event_list answers, from any cursor on."""

    def __init__(self, dispatcher: Dispatcher, feed: Feed) -> None:
        self._dispatcher = dispatcher
        self._feed = feed
        self.watchers = 0

    def routes(self) -> list[BaseRoute]:
        return [WebSocketRoute("/api/v1/events", self._watch), Route("/api/v1/events", _refuse_plain_get)]

    async def _watch(self, websocket: WebSocket) -> None:
        who = credentials(websocket.scope, self._dispatcher.hub.settings)
        actor = await self._dispatcher.actor(who)
        with self._dispatcher.stream(actor):
            await self._serve(websocket, who)

    async def _serve(self, websocket: WebSocket, who: Credentials) -> None:
        after, topic = _query(websocket)
        await self._feed.begin()
        await websocket.accept()
        cursor = self._feed.position if after is None else after
        watcher = Watcher(self._feed, websocket.scope["state"]["transport"].get_protocol(), cursor, topic)
        self.watchers += 1
        sending = asyncio.create_task(self._send(websocket, watcher))
        leaving = asyncio.create_task(_wait_for_leave(websocket))
        try:
            with self._dispatcher.doorkeeper.watch(who, watcher.refuse):
                await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.watchers -= 1
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, websocket: WebSocket, watcher: Watcher) -> None:
        slow_seconds = self._dispatcher.hub.settings["events.slow_seconds"]
        try:
            # The first message comes at once, though it may have no events: it tells the cursor to come back with.
            await websocket.send_text(page_text([], watcher.cursor, self._feed.position))
            try:
                await watcher.follow(slow_seconds)
            except Failure as failure:
                await asyncio.wait_for(websocket.send_text(json.dumps(failure.body())), slow_seconds)
                await websocket.close(CLOSE_CODES.get(failure.status, BUG), failure.code)
        except TimeoutError:
            log.warning("a watcher does not read and is dropped", extra={"cursor": watcher.cursor})
            websocket.scope["state"]["transport"].abort()
        except (WebSocketDisconnect, ClientDisconnected):
            log.debug("a watcher went away")


class UpgradeNeeded(InvalidInput):
    """This path is a WebSocket's."""

    status = 426


async def _refuse_plain_get(_: Request) -> Response:
    raise UpgradeNeeded("this path is a WebSocket's", hint="A plain GET has /api/v1/event/list.")


async def _wait_for_leave(websocket: WebSocket) -> None:
    """Wait until the watcher disconnects; its messages are ignored."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


def _query(websocket: WebSocket) -> tuple[int | None, str | None]:
    """The cursor and the topic that the watcher asks for. Raises InvalidInput."""
    query = websocket.query_params
    unknown = sorted(set(query) - {"after", "topic"})
    if unknown:
        raise InvalidInput(f"unknown argument '{unknown[0][:80]}'", hint="It takes after (a cursor) and topic.")
    after, topic = query.get("after"), query.get("topic")
    if after is not None and not (after.isascii() and after.isdigit() and int(after) <= 2**53):
        raise InvalidInput(f"after is '{after[:40]}'", hint="Give an event's number, or 0 for the oldest kept.")
    if topic is not None and not 1 <= len(topic) <= 100:
        raise InvalidInput("topic is empty or too long", hint="Give a noun (agent) or a kind (agent.registered).")
    return None if after is None else int(after), topic
