"""Events and calls: what happened in the hall, and who asked for it."""

import re
from typing import Annotated

from pydantic import Field

from crewhall.app import Call
from crewhall.bounded import Limit, page, rows_and_total, take_fitting
from crewhall.errors import InvalidInput
from crewhall.families.work.event.model import Calls, Cursor, Event, Events, LoggedCall
from crewhall.families.work.family import work
from crewhall.families.work.model import PageCursor, Word
from crewhall.store.events import events_after, newest_event


@work.tool(
    "event_list",
    ours=True,
    profiles=("coordinator", "standard"),
    resources=("crewhall://events", "crewhall://events/{after}"),
)
def event_list(
    call: Call,
    after: Cursor = 0,
    limit: Limit = 100,
    topic: Annotated[Word, Field(description="Events of one noun (agent) or kind (agent.registered).")] | None = None,
    subject: Annotated[Word, Field(description="Events on one thing, by its id.")] | None = None,
    actor: Annotated[Word, Field(description="Events by one agent's id, or operator.")] | None = None,
) -> Events:
    """What happened in the hall, oldest first, from a cursor. Each event is numbered once, in commit order."""
    chosen = {"topic": topic, "subject": subject, "actor": actor}
    with call.look(of_events=True) as tx:
        tx.ahead("event_bounds")
        tx.ahead("events_count", after=after, **chosen)
        rows = events_after(tx, after, limit, **chosen)
        newest = newest_event(tx)
        total = tx.value("events_count", after=after, **chosen)
    events, cut = page([Event.from_row(row) for row in rows], len(rows), 0)
    # When nothing more matches, all up to the newest has been looked at: a follower of a rare topic keeps up too.
    seen_all = cut is None and len(rows) < limit
    cursor = max(after, newest) if seen_all else events[-1].seq
    return Events(events=events, total=total, cursor=cursor, newest=newest)


@work.tool("call_list", ours=True, profiles=("coordinator",))
def call_list(
    call: Call,
    tool: Annotated[Word, Field(description="Calls of one tool.")] | None = None,
    actor: Annotated[Word, Field(description="Calls by one agent's id, or operator.")] | None = None,
    success: Annotated[bool, Field(description="Whether they succeeded.")] | None = None,
    limit: Limit = 50,
    cursor: PageCursor | None = None,
) -> Calls:
    """The latest calls, newest first, refused ones too: who called what by which way in, and how it ended."""
    at, _, call_id = (cursor or f"{2**53}:").partition(":")
    if not re.fullmatch(r"[0-9]{1,16}", at):
        raise InvalidInput(f"'{at[:50]}' is no cursor", hint="Give next_cursor of the page before, as it is.")
    chosen = {"tool": tool, "actor": actor, "success": None if success is None else int(success)}
    with call.look(of_events=True) as tx:
        rows, total = rows_and_total(tx, "calls", chosen, at=int(at), id=call_id, limit=limit + 1)
    calls = take_fitting(LoggedCall(**{**row, "success": bool(row["success"])}) for row in rows[:limit])
    following = None if len(calls) == len(rows) else f"{calls[-1].at}:{calls[-1].id}"
    return Calls(calls=calls, total=total, next_cursor=following)
