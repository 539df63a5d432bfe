"""
Events as they happen: one reader of the log for the whole hub, and watchers that each keep a cursor.

    log ──▶ feed's thread ──▶ the latest, kept in memory ──▶ each watcher takes what is after its cursor
     └──────── a watcher that is further behind reads the log itself ────────────────▶ WebSocket, subscriptions/listen

A watcher asks for what follows its cursor, so it loses nothing and sees nothing twice, whatever its pace; and since
the feed holds nothing for it, one that stops reading costs the hub no memory and is dropped after a while.

Watchers are told a few at a time, with a turn for calls between. The feed reads on when all have been told, and waits
longer before it does the more there are: what came meanwhile is one message.
"""

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple

from crewhall.edges.http.watcher_connection import text_frame
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.errors import Unavailable
from crewhall.families.work.event.model import Event
from crewhall.store.events import events_after, events_kept_after, newest_event, newest_seen, wait_for_event
from crewhall.store.transaction import Row, Tx

log = logging.getLogger(__name__)
KEPT = 4096  # events in memory
PAGE = 500
OWNED = ("task.", "checkpoint.", "workspace.", "message.broadcast")  # events whose owners are looked up
PAGES = 64  # texts that watchers of one pace share
GATHER_SECONDS = 0.03  # what comes this close together goes out as one
EACH_SECONDS = 0.00025  # for each that listens: what it takes to tell a thousand hardly depends on how much there is
MOST_SECONDS = 0.5
SLICE = 20  # are told between two turns of calls
PAUSE_SECONDS = 0.001
WAIT_SECONDS = 1.0
MESSAGE_BYTES = 256 * 1024  # WebSocket clients refuse a message of 1 MiB, unless told otherwise


class FeedEvent(NamedTuple):
    """An event, with the JSON that every watcher gets."""

    seq: int
    what: str
    subject: str
    text: str
    owners: tuple[str, ...] = ()  # the workflow of a task or workspace, the agents of a message


class Page(NamedTuple):
    """Events as a WebSocket's message, empty when there are none, and the cursor after them."""

    frame: bytes
    cursor: int


class Feed:
    """The hub's one reader of the event log. It starts with the first watcher."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._outages = dispatcher.hub.outages
        self._kept: deque[FeedEvent] = deque()
        self._kept_after = 0  # every event after this one is in memory
        self._pages: dict[tuple[int, str | None], Page] = {}
        self._listeners: dict[object, Callable[[list[FeedEvent]], None]] = {}
        self._begun: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._told = threading.Event()
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
        """In the feed's thread: read what is new, and hand it to the loop, which tells it before there is more."""
        store = self._dispatcher.hub.store
        while not self._stop.is_set():
            try:
                if not wait_for_event(store, position, WAIT_SECONDS, self._stop):
                    continue
                events = self._events_after(position)
            except Exception as error:
                self._tell_trouble(error)
                self._stop.wait(WAIT_SECONDS)
                continue
            self._outages.clear("feed")
            if events:
                position = events[-1].seq
                self._hand_over(loop, events)
            self._stop.wait(self.gather_seconds)

    def _events_after(self, position: int) -> list[FeedEvent]:
        with self._dispatcher.hub.store.read(of_events=True) as tx:
            rows = events_kept_after(tx, position, PAGE)
            return _with_owners(tx, [feed_event(row) for row in rows])

    def _hand_over(self, loop: asyncio.AbstractEventLoop, events: list[FeedEvent]) -> None:
        """Wait until all have been told, or the feed is closed: `close` sets `_stop` before it sets `_told`."""
        self._told.clear()
        if not self._stop.is_set():
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._put, events)
                self._told.wait()

    @property
    def gather_seconds(self) -> float:
        """How long events gather before they go out as one."""
        return min(MOST_SECONDS, max(GATHER_SECONDS, EACH_SECONDS * self.listeners))

    @property
    def listeners(self) -> int:
        """How many are told each batch as it comes."""
        return len(self._listeners)

    def _tell_trouble(self, error: Exception) -> None:
        if isinstance(error, Unavailable):
            self._outages.note("feed", error)
        else:
            log.warning("the event log cannot be read", extra={"error": error})

    def _put(self, events: list[FeedEvent]) -> None:
        self._kept.extend(events)
        while len(self._kept) > KEPT:
            self._kept_after = self._kept.popleft().seq
        self.position = events[-1].seq
        self._pages.clear()
        self._telling = asyncio.create_task(self._tell(events))
        self._telling.add_done_callback(lambda _: self._told.set())

    async def _tell(self, events: list[FeedEvent]) -> None:
        """Tell all who listen now, a slice at a time."""
        for number, (token, listener) in enumerate(list(self._listeners.items()), 1):
            if token in self._listeners:  # it may have ended meanwhile
                _tell_one(listener, events)
            if number % SLICE == 0:
                await asyncio.sleep(PAUSE_SECONDS)

    def listen(self, listener: Callable[[list[FeedEvent]], None]) -> Callable[[], None]:
        """Give every batch from the next on to a listener; the function that comes back ends that."""
        token = object()
        self._listeners[token] = listener

        def end() -> None:
            self._listeners.pop(token, None)

        return end

    async def page_after(self, cursor: int, topic: str | None) -> Page:
        """The events after a cursor. Raises CursorExpired."""
        page = self.page_in_memory(cursor, topic)
        return page or self._share(cursor, topic, await self._from_log(cursor, topic))

    def page_in_memory(self, cursor: int, topic: str | None) -> Page | None:
        """The same for a watcher that is not far behind; None when it has to read the log."""
        page = self._pages.get((cursor, topic))
        if page is None and cursor >= self._kept_after:
            latest = takewhile(lambda event: event.seq > cursor, reversed(self._kept))
            events = [event for event in latest if _fits(event, topic)][::-1]
            page = self._share(cursor, topic, _page(events, max(cursor, self.position), self.position))
        return page

    def _share(self, cursor: int, topic: str | None, page: Page) -> Page:
        """The page, kept for all watchers of this pace."""
        if len(self._pages) >= PAGES:
            self._pages.clear()
        self._pages[cursor, topic] = page
        return page

    async def _from_log(self, cursor: int, topic: str | None) -> Page:
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

    def close(self) -> None:
        self._stop.set()
        self._told.set()
        self._dispatcher.hub.store.announce()
        if self._thread is not None:
            self._thread.join(WAIT_SECONDS * 2)


def _tell_one(listener: Callable[[list[FeedEvent]], None], events: list[FeedEvent]) -> None:
    try:
        listener(events)
    except Exception:  # the others are told all the same
        log.exception("a bug in one who listens to events")


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


def _page(events: list[FeedEvent], cursor: int, newest: int) -> Page:
    """As many of the events as a message takes, and the cursor after them: the one given if all are in it."""
    if not events:
        return Page(b"", cursor)
    texts: list[str] = []
    size = 0
    for event in events:
        size += len(event.text)
        if texts and size > MESSAGE_BYTES:
            cursor = events[len(texts) - 1].seq
            break
        texts.append(event.text)
    return Page(text_frame(page_text(texts, cursor, newest)), cursor)


def page_text(events: list[str], cursor: int, newest: int) -> str:
    """A message with these events, as event_list answers."""
    return f'{{"events":[{",".join(events)}],"cursor":{cursor},"newest":{newest}}}'
