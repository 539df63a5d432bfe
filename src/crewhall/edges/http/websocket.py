"""The live edge: events over a WebSocket, to each watcher from its own cursor."""

import asyncio
import json
import logging
import time
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from crewhall.edges.http.feed import Feed, page_text
from crewhall.edges.http.guard import credentials
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.errors import Failure, InvalidInput

log = logging.getLogger(__name__)
CHECK_SECONDS = 1.0  # how often a watcher's token or cookie is looked at again
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
        actor = await self._dispatcher.actor(credentials(websocket.scope, self._dispatcher.hub.settings))
        with self._dispatcher.stream(actor):
            await self._serve(websocket)

    async def _serve(self, websocket: WebSocket) -> None:
        after, topic = _query(websocket)
        await self._feed.begin()
        await websocket.accept()
        self.watchers += 1
        sending = asyncio.create_task(self._send(websocket, after, topic))
        leaving = asyncio.create_task(_wait_for_leave(websocket))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.watchers -= 1
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, websocket: WebSocket, after: int | None, topic: str | None) -> None:
        cursor = self._feed.position if after is None else after
        settings = self._dispatcher.hub.settings
        who, seen_at = credentials(websocket.scope, settings), time.monotonic()
        try:
            # The first message comes at once, though it may have no events: it tells the cursor to come back with.
            await websocket.send_text(page_text([], cursor, self._feed.position))
            while True:
                text, cursor = await self._feed.page_after(cursor, topic)
                if text:
                    await asyncio.wait_for(websocket.send_text(text), settings["events.slow_seconds"])
                left = CHECK_SECONDS - (time.monotonic() - seen_at)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._feed.beyond(cursor), max(0.0, left))
                if time.monotonic() - seen_at >= CHECK_SECONDS:
                    await self._dispatcher.actor(who)
                    seen_at = time.monotonic()
        except Failure as failure:
            await websocket.send_text(json.dumps(failure.body()))
            await websocket.close(CLOSE_CODES.get(failure.status, BUG), failure.code)
        except TimeoutError:
            log.warning("a watcher does not read and is dropped", extra={"cursor": cursor})
            websocket.scope["state"]["transport"].abort()
        except WebSocketDisconnect:
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
