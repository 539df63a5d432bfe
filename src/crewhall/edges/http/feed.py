"""
Events as they happen: one reader of the log for the whole hub, and watchers that each keep a cursor.

    log ──▶ feed's thread ──▶ the latest, kept in memory ──▶ each watcher takes what is after its cursor
     └──────── a watcher that is further behind reads the log itself ────────────────▶ WebSocket, subscriptions/listen

A watcher asks for what follows its cursor, so it loses nothing and sees nothing twice, whatever its pace; and since
the feed holds nothing for it, one that stops reading costs the hub no memory and is dropped after a while.
"""

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.families.work.event.model import Event
from crewhall.store.events import events_after, events_kept_after, newest_event, newest_seen, wait_for_event
from crewhall.store.transaction import Row, Tx

log = logging.getLogger(__name__)
KEPT = 4096  # events in memory
PAGE = 500
OWNED = ("task.", "checkpoint.", "workspace.", "message.broadcast")  # events whose owners are looked up
PAGES = 64  # texts that watchers of one pace share
GATHER_SECONDS = 0.03  # what comes this close together goes out as one
WAIT_SECONDS = 1.0
MESSAGE_BYTES = 256 * 1024  # WebSocket clients refuse a message of 1 MiB, unless told otherwise


class FeedEvent(NamedTuple):
    """An event, with the JSON that every watcher gets."""

    seq: int
    what: str
    subject: str
    text: str
    owners: tuple[str, ...] = ()  # the workflow of a task or workspace, the agents of a message


class Feed:
    """The hub's one reader of the event log. It starts with the first watcher."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._kept: deque[FeedEvent] = deque()
        self._kept_after = 0  # every event after this one is in memory
        self._pages: dict[tuple[int, str | None], tuple[str, int]] = {}
        self._listeners: dict[object, Callable[[list[FeedEvent]], None]] = {}
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
        self.position = self._kept_after = await self._dispatcher.thread(
            lambda: newest_seen(self._dispatcher.hub.store)
        )
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._follow, args=(loop, self.position), name="crewhall-feed")
        self._thread.daemon = True
        self._thread.start()

    def _follow(self, loop: asyncio.AbstractEventLoop, position: int) -> None:
        """In the feed's thread: read what is new, and hand it to the loop."""
        store = self._dispatcher.hub.store
        while not self._stop.is_set():
            try:
                if not wait_for_event(store, position, WAIT_SECONDS, self._stop):
                    continue
                with store.read(of_events=True) as tx:
                    rows = events_kept_after(tx, position, PAGE)
                    events = _with_owners(tx, [feed_event(row) for row in rows])
            except Exception as error:
                log.warning("the event log cannot be read", extra={"error": error})
                self._stop.wait(WAIT_SECONDS)
                continue
            if rows:
                position = rows[-1]["seq"]
                with suppress(RuntimeError):  # the loop has closed
                    loop.call_soon_threadsafe(self._put, events)
            self._stop.wait(GATHER_SECONDS)

    def _put(self, events: list[FeedEvent]) -> None:
        self._kept.extend(events)
        while len(self._kept) > KEPT:
            self._kept_after = self._kept.popleft().seq
        self.position = events[-1].seq
        self._pages.clear()
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in list(self._listeners.values()):
            listener(events)

    def listen(self, listener: Callable[[list[FeedEvent]], None]) -> Callable[[], None]:
        """Give every batch to a listener; the function that comes back ends that."""
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
            with self._dispatcher.hub.store.read(of_events=True) as tx:
                return events_after(tx, cursor, PAGE, topic=topic), newest_event(tx)

        position = self.position
        rows, newest = await self._dispatcher.thread(read)
        # At least the feed's position: a watcher behind it that finds nothing would come again at once, for ever.
        after = rows[-1]["seq"] if len(rows) == PAGE else max(cursor, newest, position)
        return _page([feed_event(row) for row in rows], after, newest)

    def newest_sent(self) -> int:
        """The newest event that watchers can see; all of them, as long as nobody watches."""
        return self.position if self._thread is not None else 2**63

    async def beyond(self, cursor: int) -> None:
        """Wait for an event after the cursor."""
        while self.position <= cursor:
            await self._changed.wait()

    def close(self) -> None:
        self._stop.set()
        self._dispatcher.hub.store.announce()
        if self._thread is not None:
            self._thread.join(WAIT_SECONDS * 2)


def feed_event(row: Row) -> FeedEvent:
    """A row of the log as every edge sends it."""
    event = Event.from_row(row)
    data = event.data or {}
    agents = {"message.sent": [data.get("recipient")], "message.returned": [data.get("sender")]}
    owners = tuple(filter(None, agents.get(event.what, data.get("recipients", []))))
    return FeedEvent(event.seq, event.what, event.subject, event.model_dump_json(), owners)


def _with_owners(tx: Tx, events: list[FeedEvent]) -> list[FeedEvent]:
    """The events, those of tasks and workspaces with their workflow, and those of broadcasts with their recipients."""
    ids = {event.subject for event in events if event.what.startswith(OWNED)}
    found: dict[str, list[str]] = {}
    for row in tx.all("event_owners", ids=json.dumps(sorted(ids))) if ids else []:
        found.setdefault(row["subject"], []).append(row["owner"])
    return [event._replace(owners=(*event.owners, *found.get(event.subject, ()))) for event in events]


def _fits(event: FeedEvent, topic: str | None) -> bool:
    return topic is None or event.what == topic or event.what.startswith(f"{topic}.")


def _page(events: list[FeedEvent], cursor: int, newest: int) -> tuple[str, int]:
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
    return page_text(texts, cursor, newest), cursor


def page_text(events: list[str], cursor: int, newest: int) -> str:
    """A message with these events, as event_list answers."""
    return f'{{"events":[{",".join(events)}],"cursor":{cursor},"newest":{newest}}}'
