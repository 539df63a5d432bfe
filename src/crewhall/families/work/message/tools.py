"""
Messages: agents and the person write to each other (seed 003, messaging).

    sender ── send, broadcast ──▶ inbox ── list, get ──▶ recipient ── mark_read, archive
                                    └── chores: what expires, and what comes back because nobody is there to read it
"""

import json
from typing import Any, Literal

from crewhall.app import Call
from crewhall.bounded import AnyOf, Limit, take_fitting
from crewhall.errors import NotFound
from crewhall.families.work.family import work
from crewhall.families.work.lookup import get, no_such
from crewhall.families.work.message import inbox
from crewhall.families.work.message.hints import hint_counts
from crewhall.families.work.message.model import (
    Body,
    Broadcast,
    BroadcastType,
    ExpiresIn,
    ListedStatus,
    Message,
    MessageId,
    MessageIds,
    Messages,
    MessageSent,
    MessageType,
    Priority,
    RecipientFilter,
    RecipientId,
    Since,
    Subject,
    ThreadId,
    UnreadCount,
)
from crewhall.families.work.message.rules import (
    LISTED_BYTES,
    LISTED_LETTERS,
    LISTED_MOST,
    body_text,
    cursor_after,
    inbox_start,
    listed_message,
    may_become,
    may_change,
    refuse_unowned,
    since_ms,
    thread_start,
    total,
    unread_count,
    whole_message,
)
from crewhall.families.work.model import Done, Me, PageCursor, TaskId, WorkflowId
from crewhall.identity import Actor, new_id
from crewhall.store.transaction import Row, Tx

NAMED = 900  # ids of a broadcast that its answer names


@work.tool(
    "message_send",
    changes=True,
    creates=True,
    profiles=("worker", "coordinator", "reviewer", "standard", "coding", "review", "planning"),
)
def message_send(
    call: Call,
    sender_id: Me,
    recipient_id: RecipientId,
    message_type: MessageType,
    body: Body,
    subject: Subject | None = None,
    priority: Priority = "normal",
    workflow_id: WorkflowId | None = None,
    task_id: TaskId | None = None,
    reply_to_id: MessageId | None = None,
    expires_in: ExpiresIn | None = None,
) -> MessageSent:
    """Write to another agent, or to the person (operator). A reply (reply_to_id) joins the thread of what it answers.

    A message to an agent that is gone comes back once as a notification.
    """
    letter = _letter(call, sender_id, message_type, body, subject, priority, workflow_id, expires_in)
    with call.begin() as tx:
        _hint_sending(tx, sender_id, recipient_id, workflow_id, task_id, reply_to_id)
        letter["sender_name"] = inbox.refuse_unknown(tx, sender_id)
        inbox.refuse_unknown(tx, recipient_id)
        _refuse_unknown_work(tx, workflow_id, task_id)
        letter |= _place_in_thread(tx, reply_to_id) | {"task": task_id}
        (sent,) = inbox.put(tx, letter, [recipient_id], inbox.hold(tx, [recipient_id], each=1))
        data = {"sender": sender_id, "recipient": recipient_id, "thread": letter["thread"]}
        tx.event("message.sent", sent, data=json.dumps(data))
    return MessageSent(id=sent, thread_id=letter["thread"])


def _letter(
    call: Call,
    sender: str,
    kind: str,
    body: str | dict[str, Any],
    subject: str | None,
    priority: str,
    workflow: str | None,
    expires_in: int | None,
) -> Row:
    """What is sent, whoever gets it; it begins a thread until it is placed in one."""
    expires_at = None if expires_in is None else call.now + expires_in * 1000
    about = {"subject": subject, "priority": priority, "workflow": workflow, "task": None, "expires_at": expires_at}
    begins = {"thread": new_id("th"), "turn": 1, "reply_to": None}
    return {"sender": sender, "type": kind, "now": call.now, **body_text(body), **about, **begins}


def _hint_sending(
    tx: Tx, sender: str, recipient: str, workflow_id: str | None, task_id: str | None, reply_to_id: str | None
) -> None:
    """Let all that a message is checked against travel together."""
    for agent in (sender, recipient):
        inbox.hint_known(tx, agent)
    for query, one in (("workflow_state", workflow_id), ("task_workflow", task_id), ("message_answered", reply_to_id)):
        if one is not None:
            tx.ahead(query, id=one)


def _refuse_unknown_work(tx: Tx, workflow_id: str | None, task_id: str | None) -> None:
    for what, query, one in (("workflow", "workflow_state", workflow_id), ("task", "task_workflow", task_id)):
        if one is not None and tx.one(query, id=one) is None:
            raise NotFound(f"there is no {what} '{one}'", hint=f"Look its id up again, or leave {what}_id out.")


def _place_in_thread(tx: Tx, reply_to_id: str | None) -> Row:
    """The thread and turn of a reply; nothing for what is none."""
    if reply_to_id is None:
        return {}
    answered = tx.one("message_answered", id=reply_to_id)
    if answered is None:
        raise no_such("message", reply_to_id)
    return {"thread": answered["thread_id"], "turn": answered["turn"], "reply_to": reply_to_id}


@work.tool("message_broadcast", changes=True, creates=True, profiles=("coordinator",))
def message_broadcast(
    call: Call,
    sender_id: Me,
    message_type: BroadcastType,
    body: Body,
    recipient_filter: RecipientFilter | None = None,
    subject: Subject | None = None,
    priority: Priority = "normal",
    workflow_id: WorkflowId | None = None,
    expires_in: ExpiresIn | None = None,
) -> Broadcast:
    """Write to all agents that are here, perhaps of one role, status or runtime; never to yourself. One thread."""
    letter = _letter(call, sender_id, message_type, body, subject, priority, workflow_id, expires_in)
    wanted = recipient_filter or RecipientFilter()
    statuses = json.dumps([wanted.status] if wanted.status else ["online", "busy"])
    with call.begin() as tx:
        inbox.hint_known(tx, sender_id)
        if workflow_id is not None:
            tx.ahead("workflow_state", id=workflow_id)
        rows = tx.all("broadcast_agents", statuses=statuses, role=wanted.role, runtime=wanted.runtime, sender=sender_id)
        letter["sender_name"] = inbox.refuse_unknown(tx, sender_id)
        _refuse_unknown_work(tx, workflow_id, None)
        ids = _put_to_all(tx, letter, [row["id"] for row in rows])
    return Broadcast(sent_count=len(ids), message_ids=ids[:NAMED])


def _put_to_all(tx: Tx, letter: Row, recipients: list[str]) -> list[str]:
    if not recipients:
        return []
    ids = inbox.put(tx, letter, recipients, inbox.hold(tx, recipients, each=1))
    tx.event("message.broadcast", letter["thread"], data=json.dumps({"sender": letter["sender"], "sent": len(ids)}))
    return ids


@work.tool(
    "message_list",
    profiles=("worker", "coordinator", "reviewer", "standard", "coding", "review", "planning"),
    resources=("crewhall://agents/{agent_id}/inbox",),
)
def message_list(
    call: Call,
    agent_id: Me,
    status: ListedStatus | None = None,
    message_type: AnyOf[MessageType] | None = None,
    priority: AnyOf[Priority] | None = None,
    workflow_id: WorkflowId | None = None,
    thread_id: ThreadId | None = None,
    limit: Limit = 20,
    since: Since | None = None,
    cursor: PageCursor | None = None,
) -> Messages:
    """Your inbox, the most urgent and newest first: the unread messages unless status says otherwise.

    With thread_id: all that you sent and received in a thread, in the order sent. Long bodies are cut (left_out);
    message_get shows more. Listing marks nothing as read.
    """
    stored = (status or "unread") if thread_id is None or status else None
    stored = None if stored == "all" else stored
    chosen = {
        "agent": agent_id,
        "status": stored,
        "types": json.dumps(message_type) if message_type else None,
        "priorities": json.dumps(priority) if priority else None,
        "workflow": workflow_id,
        "since": since_ms(since),
        "now": call.now,
    }
    # A filter that no counter knows: all of the inbox, or the thread, is looked at.
    is_counted = not (message_type or workflow_id or thread_id or since)
    counting = "inbox_messages_count" if thread_id is None else "thread_messages_count"
    size = min(limit, LISTED_MOST)
    start = inbox_start(cursor, priority) if thread_id is None else thread_start(cursor) | {"thread": thread_id}
    with call.begin() as tx:
        inbox.hint_known(tx, agent_id)
        hint_counts(tx, agent_id, call.now)
        if not is_counted:
            tx.ahead(counting, thread=thread_id, **chosen)
        rows = tx.all(_page_query(chosen, start), letters=LISTED_LETTERS, limit=size + 1, **chosen, **start)
        inbox.refuse_unknown(tx, agent_id)
        counts = inbox.counts(tx, agent_id, call.now)
        matching = total(counts, stored, priority) if is_counted else tx.value(counting, thread=thread_id, **chosen)
    shown = take_fitting([listed_message(row, call.now) for row in rows[:size]], LISTED_BYTES)
    following = cursor_after(rows[len(shown) - 1]) if len(shown) < len(rows) else None
    unread = total(counts, "unread", None)
    return Messages(messages=shown, unread_count=unread, total=matching, next_cursor=following)


def _page_query(chosen: Row, start: Row) -> str:
    """Which query reads a page; that of one status goes by an index of its own."""
    if "thread" in start:
        return "thread_messages"
    return "inbox_messages_all" if chosen["status"] is None else "inbox_messages"


@work.tool(
    "message_get",
    changes=True,
    idempotent=True,
    profiles=("worker", "coordinator", "reviewer", "standard", "coding", "review", "planning"),
)
def message_get(call: Call, id: MessageId, mark_read: bool = True) -> Message:
    """A message. It counts as read from then on if it is yours, unless mark_read is false.

    Of a long body the beginning is shown, and a large object not at all; text_read reads on in it.
    """
    with call.look() as tx:
        row = get(tx, "message", id)
    if mark_read and may_change(row, _reader(call)) and may_become(row, "read", call.now):
        _change(call, [id], "read")
        row["status"], row["read_at"] = "read", call.now
    return whole_message(row, call.now)


@work.tool("message_mark_read", changes=True, idempotent=True, profiles=("coordinator",))
def message_mark_read(call: Call, message_ids: MessageIds) -> Done:
    """Mark messages of your inbox as read, all of them or none. Archived and expired ones stay what they are."""
    _change(call, message_ids, "read")
    return Done(success=True)


@work.tool("message_archive", changes=True, idempotent=True, profiles=("coordinator",))
def message_archive(call: Call, message_ids: MessageIds) -> Done:
    """Put messages of your inbox away, all of them or none, read or not; message_list shows them with status all."""
    _change(call, message_ids, "archived")
    return Done(success=True)


def _reader(call: Call) -> Actor:
    """Whose mail it is to read: a bound client's is its agent's, though else it may do what the operator may."""
    return call.actor if call.bound is None else Actor("agent", call.bound.id, call.bound.role)


def _change(call: Call, ids: list[str], status: Literal["read", "archived"]) -> None:
    """Read or archive messages. Raises NotFound, Forbidden; what is so already stays as it is."""
    with call.begin() as tx:
        rows = _rows_held(tx, ids, _reader(call))
        changing = [row for row in rows if may_become(row, status, call.now)]
        if changing:
            inbox.move(tx, changing, status, call.now)
            first = next(one for one in ids if one in {row["id"] for row in changing})
            recipients = sorted({row["recipient_id"] for row in changing})
            data = {"count": len(changing), "recipients": recipients}
            tx.event(f"message.{status}", first, after=status, data=json.dumps(data))


def _rows_held(tx: Tx, ids: list[str], actor: Actor) -> list[Row]:
    """Messages that the actor may change, whose inboxes are held until commit. Raises NotFound, Forbidden."""
    owners = [actor.id] if actor.kind == "agent" else [row["recipient_id"] for row in inbox.rows_by_id(tx, ids)]
    inbox.hold(tx, owners)
    rows = inbox.rows_by_id(tx, ids)
    refuse_unowned(ids, rows, actor)
    return rows


@work.tool("message_count_unread", profiles=("coordinator",))
def message_count_unread(call: Call, agent_id: Me, priority: AnyOf[Priority] | None = None) -> UnreadCount:
    """How many unread messages are in your inbox, by priority; cheap enough to ask often."""
    with call.begin() as tx:
        inbox.hint_known(tx, agent_id)
        hint_counts(tx, agent_id, call.now)
        inbox.refuse_unknown(tx, agent_id)
        counts = inbox.counts(tx, agent_id, call.now)
    return unread_count(counts, priority)
