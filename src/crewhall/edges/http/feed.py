"""
Events as they happen: one reader of the log for the whole hub, and watchers that each keep a cursor.

    log ──▶ feed's thread ──▶ the latest, kept in memory ──▶ each watcher takes what is after its cursor
     └──────────── who is further behind than that reads the log itself ──────────▶ WebSocket, subscriptions/listen

A watcher asks for what follows its cursor, so it loses nothing and sees nothing twice, whatever its pace; and since
the feed holds nothing for it, one that stops reading costs the hub no memory and is dropped after a while.
"""

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from crewhall.edges.http.guard import credentials
from crewhall.edges.hub.dispatch import Door
from crewhall.errors import Failure, InvalidInput
from crewhall.families.work.event.model import Event
from crewhall.store.events import events_after, pruned_through, wait_for_event
from crewhall.store.transaction import Row, Store, Tx

log = logging.getLogger(__name__)
KEPT = 4096  # events in memory
PAGE = 500
PAGES = 64  # texts that watchers of one pace share
GATHER_SECONDS = 0.03  # what comes this close together goes out as one
WAIT_SECONDS = 1.0
CHECK_SECONDS = 1.0  # how often a watcher's token or cookie is looked at again
CLOSE_CODES = {401: 4401, 410: 4410}
BUG = 1011
MESSAGE_BYTES = 256 * 1024  # WebSocket clients refuse a message of 1 MiB, unless told otherwise


class Told(NamedTuple):
    """One event, with the text that every watcher gets of it."""

    seq: int
    what: str
    subject: str
    text: str


class Feed:
    """The hub's reader of the event log. It begins with its first watcher."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._kept: deque[Told] = deque()
        self._kept_after = 0  # every event after this one is in memory
        self._pages: dict[tuple[int, str | None], tuple[str, int]] = {}
        self._listeners: dict[object, Callable[[list[Told]], None]] = {}
        self._changed = asyncio.Event()
        self._begun: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.position = 0  # the newest event that watchers can see

    async def begin(self) -> None:
        """Read the log from now on; twice is once."""
        if self._begun is None:
            self._begun = asyncio.create_task(self._begin())
        await asyncio.shield(self._begun)

    async def _begin(self) -> None:
        self.position = self._kept_after = await self._door.thread(lambda: newest_event(self._door.hub.store))
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._follow, args=(loop, self.position), name="crewhall-feed")
        self._thread.daemon = True
        self._thread.start()

    def _follow(self, loop: asyncio.AbstractEventLoop, position: int) -> None:
        """In the feed's thread: read what is new, and hand it to the loop."""
        store = self._door.hub.store
        while not self._stop.is_set():
            try:
                if not wait_for_event(store, position, WAIT_SECONDS, self._stop):
                    continue
                with store.read() as tx:
                    rows = tx.all("events_after", after=position, limit=PAGE, topic=None, subject=None, actor=None)
            except Exception as error:
                log.warning("the event log cannot be read", extra={"error": error})
                self._stop.wait(WAIT_SECONDS)
                continue
            if rows:
                position = rows[-1]["seq"]
                with suppress(RuntimeError):  # the loop has closed
                    loop.call_soon_threadsafe(self._put, [told(row) for row in rows])
            self._stop.wait(GATHER_SECONDS)

    def _put(self, events: list[Told]) -> None:
        self._kept.extend(events)
        while len(self._kept) > KEPT:
            self._kept_after = self._kept.popleft().seq
        self.position = events[-1].seq
        self._pages.clear()
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in list(self._listeners.values()):
            listener(events)

    def listen(self, listener: Callable[[list[Told]], None]) -> Callable[[], None]:
        """Have every batch told to a listener; what comes back ends it."""
        token = object()
        self._listeners[token] = listener

        def end() -> None:
            self._listeners.pop(token, None)

        return end

    async def page_after(self, cursor: int, topic: str | None) -> tuple[str, int]:
        """The events after a cursor as the text of a message, and the cursor after them; empty when there are none.

        Raises CursorExpired.
        """
        key = (cursor, topic)
        if key not in self._pages:
            page = self._from_memory(cursor, topic) if cursor >= self._kept_after else None
            page = page or await self._from_log(cursor, topic)
            if len(self._pages) >= PAGES:
                self._pages.clear()
            self._pages[key] = page
        return self._pages[key]

    def _from_memory(self, cursor: int, topic: str | None) -> tuple[str, int]:
        events = [event for event in self._kept if event.seq > cursor and _fits(event, topic)]
        return _page(events, max(cursor, self.position), self.position)

    async def _from_log(self, cursor: int, topic: str | None) -> tuple[str, int]:
        def read() -> tuple[list[Any], int]:
            with self._door.hub.store.read() as tx:
                return events_after(tx, cursor, PAGE, topic=topic), newest_in(tx)

        position = self.position
        rows, newest = await self._door.thread(read)
        # At least the feed's position: a watcher behind it that finds nothing would come again at once, for ever.
        after = rows[-1]["seq"] if len(rows) == PAGE else max(cursor, newest, position)
        return _page([told(row) for row in rows], after, newest)

    def seen(self) -> int:
        """The newest event that watchers can see; all of them, as long as nobody watches."""
        return self.position if self._thread is not None else 2**63

    async def beyond(self, cursor: int) -> None:
        """Wait for an event after the cursor."""
        while self.position <= cursor:
            await self._changed.wait()

    def close(self) -> None:
        self._stop.set()
        self._door.hub.store.announce()
        if self._thread is not None:
            self._thread.join(WAIT_SECONDS * 2)


def newest_event(store: Store) -> int:
    """The number of the newest event, though it may be pruned by now."""
    with store.read() as tx:
        return newest_in(tx)


def newest_in(tx: Tx) -> int:
    return max(int(tx.value("event_newest")), pruned_through(tx))


def told(row: Row) -> Told:
    """A row of the log as every edge tells it."""
    event = Event.from_row(row)
    return Told(event.seq, event.what, event.subject, event.model_dump_json())


def _fits(event: Told, topic: str | None) -> bool:
    return topic is None or event.what == topic or event.what.startswith(f"{topic}.")


def _page(events: list[Told], cursor: int, newest: int) -> tuple[str, int]:
    """As many of the events as a message takes, and the cursor after them: the one given if all are in it."""
    if not events:
        return "", cursor
    texts: list[str] = []
    size = 0
    for event in events:
        size += len(event.text)
        if texts and size > MESSAGE_BYTES:
            cursor = events[len(texts) - 1].seq
            break
        texts.append(event.text)
    return _text(texts, cursor, newest), cursor


def _text(events: list[str], cursor: int, newest: int) -> str:
    return f'{{"events":[{",".join(events)}],"cursor":{cursor},"newest":{newest}}}'


class LiveEdge:
    """`/api/v1/events?after=N&topic=…` as a WebSocket: messages as event_list answers, from any cursor on."""

    def __init__(self, door: Door, feed: Feed) -> None:
        self._door = door
        self._feed = feed
        self.watchers = 0

    def routes(self) -> list[BaseRoute]:
        return [WebSocketRoute("/api/v1/events", self._watch), Route("/api/v1/events", _plainly)]

    async def _watch(self, websocket: WebSocket) -> None:
        await self._door.actor(credentials(websocket.scope, self._door.hub.settings))
        after, topic = _asked(websocket)
        await self._feed.begin()
        await websocket.accept()
        self.watchers += 1
        sending = asyncio.create_task(self._send(websocket, after, topic))
        leaving = asyncio.create_task(_gone(websocket))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.watchers -= 1
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, websocket: WebSocket, after: int | None, topic: str | None) -> None:
        cursor = self._feed.position if after is None else after
        settings = self._door.hub.settings
        who, seen_at = credentials(websocket.scope, settings), time.monotonic()
        try:
            # The first message comes at once, though it may have no events: it tells the cursor to come back with.
            await websocket.send_text(_text([], cursor, self._feed.position))
            while True:
                text, cursor = await self._feed.page_after(cursor, topic)
                if text:
                    await asyncio.wait_for(websocket.send_text(text), settings["events.slow_seconds"])
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._feed.beyond(cursor), CHECK_SECONDS)
                if time.monotonic() - seen_at >= CHECK_SECONDS:
                    await self._door.actor(who)
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


async def _plainly(_: Request) -> Response:
    raise UpgradeNeeded("this path is a WebSocket's", hint="A plain GET has /api/v1/event/list.")


async def _gone(websocket: WebSocket) -> None:
    """Wait for the watcher's end; what it says is of no interest."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


def _asked(websocket: WebSocket) -> tuple[int | None, str | None]:
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
