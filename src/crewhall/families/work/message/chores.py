"""
What the hall does about messages by itself: unread ones expire, and what nobody is there to read comes back.

An inbox remembers up to which place it was looked through, and the note to the sender goes with that in one
transaction: a message comes back once, whatever dies in between.
"""

import json
from itertools import takewhile

from crewhall.app import Tick
from crewhall.families.work.family import work
from crewhall.families.work.message import inbox
from crewhall.families.work.message.model import HALL
from crewhall.families.work.message.rules import undelivered_notice
from crewhall.store.transaction import Row, Tx

EXPIRE_BATCH = 500
EXPIRE_BATCHES = 20
RETURN_BATCH = 100
RETURN_INBOXES = 20


@work.chore("messages_expire")
def messages_expire(tick: Tick) -> None:
    """Unread messages whose time is over are expired, some thousands at the most in one tick."""
    for _ in range(EXPIRE_BATCHES):
        with tick.look() as tx:
            ids = [row["id"] for row in tx.all("messages_due", now=tick.now, limit=EXPIRE_BATCH)]
        if ids:
            _expire(tick, ids)
        if len(ids) < EXPIRE_BATCH:
            return


def _expire(tick: Tick, ids: list[str]) -> None:
    with tick.begin() as tx:
        inbox.hold(tx, [row["recipient_id"] for row in inbox.rows_by_id(tx, ids)])
        rows = [row for row in inbox.rows_by_id(tx, ids) if row["status"] == "unread"]
        if rows:
            inbox.move(tx, rows, "expired", tick.now)
            data = {"count": len(rows), "recipients": sorted({row["recipient_id"] for row in rows})}
            tx.event("message.expired", rows[0]["id"], before="unread", after="expired", data=json.dumps(data))


@work.chore("undeliverable")
def return_undeliverable(tick: Tick) -> None:
    """Senders are told what lies unread with agents that are offline past their lease."""
    with tick.look() as tx:
        lost = tx.all("inboxes_of_the_lost", now=tick.now, limit=RETURN_INBOXES)
    for row in lost:
        with tick.begin() as tx:
            _return_unread(tx, row["agent_id"], tick.now)


def _return_unread(tx: Tx, agent_id: str, now: int) -> None:
    """Return a batch of an inbox's unread messages to their senders, and note how far it was read."""
    senders = {row["sender_id"] for row in _undelivered_rows(tx, agent_id, now)}
    places = inbox.hold(tx, {agent_id, *senders}, each=RETURN_BATCH)
    rows = _undelivered_rows(tx, agent_id, now)
    # One who wrote since the first look has an inbox that is not held: the next tick sees to it.
    returned = list(takewhile(lambda row: row["sender_id"] in senders, rows))
    for row in returned:
        _send_back(tx, row, places, now)
    if len(returned) == len(rows) < RETURN_BATCH:
        tx.run("inbox_looked", agent=agent_id, place=None)
    elif returned:
        tx.run("inbox_looked", agent=agent_id, place=returned[-1]["place"])


def _undelivered_rows(tx: Tx, agent_id: str, now: int) -> list[Row]:
    return tx.all("inbox_undelivered", agent=agent_id, now=now, limit=RETURN_BATCH)


def _send_back(tx: Tx, row: Row, places: inbox.Places, now: int) -> None:
    about = {"workflow": row["workflow_id"], "task": row["task_id"], "expires_at": None, "now": now}
    thread = {"thread": row["thread_id"], "turn": row["turn"], "reply_to": row["id"]}
    letter = {"sender": HALL, "type": "notification", "priority": "high", **undelivered_notice(row), **about, **thread}
    inbox.put(tx, letter, [row["sender_id"]], places)
    data = {"sender": row["sender_id"], "recipient": row["recipient_id"], "thread": row["thread_id"]}
    tx.event("message.returned", row["id"], data=json.dumps(data))
