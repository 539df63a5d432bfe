"""Pure rules of messages: what fits, what is shown, who may change it, where a page goes on."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from crewhall.bounded import WHOLE_BYTES, Cut, cut, json_text
from crewhall.errors import Forbidden, InvalidInput
from crewhall.families.work.lookup import no_such
from crewhall.families.work.message.model import (
    HALL,
    OPERATOR_INBOX,
    SUBJECT_LETTERS,
    URGENCY,
    ByPriority,
    Message,
    MessageRow,
    UnreadCount,
)
from crewhall.identity import Actor
from crewhall.notices import full_name, quotation
from crewhall.store.transaction import Row

TEXT_LETTERS = 100_000
OBJECT_BYTES = 64_000
LISTED_LETTERS = 2_000
LISTED_BYTES = 18_000  # of the messages in a list; spaces that an edge may put between fields take a tenth more
LISTED_MOST = 60  # the smallest message takes over 300 bytes, so no more of them fit in a list
SECONDS_BELOW = 10**11
QUOTED_LETTERS = 160  # of a message, in the notice that it lies unread
SENDERS = {OPERATOR_INBOX: "the operator", HALL: "the hall"}
BECOMES_FROM = {"read": {"unread"}, "archived": {"unread", "read", "expired"}}
Counts = Counter[tuple[str, str]]  # how many messages, by status and priority


def body_text(body: str | dict[str, Any]) -> Row:
    """A body as it is stored: its form and its text. Raises InvalidInput that says its size."""
    if isinstance(body, str):
        if len(body) > TEXT_LETTERS:
            raise InvalidInput(
                f"body is {len(body)} characters, and {TEXT_LETTERS} are allowed",
                hint="Keep large things in files and name their paths in the message.",
            )
        return {"form": "text", "body": body}
    return {"form": "object", "body": json_text("body", body, OBJECT_BYTES)}


def since_ms(since: float | None) -> int:
    """A Unix time in seconds or milliseconds, as milliseconds; 0 when there is none."""
    return int(since * 1000 if (since or 0) < SECONDS_BELOW else since) if since else 0


def status_at(row: Mapping[str, Any], now: int) -> str:
    """A message's status at this moment: an unread one expires on time, whenever the chore comes by."""
    is_over = row["status"] == "unread" and row["expires_at"] is not None and row["expires_at"] <= now
    return "expired" if is_over else row["status"]


def may_become(row: Mapping[str, Any], status: str, now: int) -> bool:
    """Whether a message changes by being read or archived now."""
    return status_at(row, now) in BECOMES_FROM[status]


def may_change(row: Mapping[str, Any], actor: Actor) -> bool:
    """Whether the read state of a message is the actor's to change: the recipient's.

    The operator's clients speak for agents, so theirs as well; but not a person's who looks on in the dashboard.
    """
    return row["recipient_id"] == actor.id or (actor.kind == "operator" and actor.proof != "cookie")


def refuse_unowned(ids: Iterable[str], rows: Sequence[Row], actor: Actor) -> None:
    """Raise NotFound for the first id that is no message, Forbidden for the first message of someone else."""
    known = {row["id"]: row for row in rows}
    for one in ids:
        if one not in known:
            raise no_such("message", one)
        if not may_change(known[one], actor):
            raise Forbidden(
                f"message {one} is for {known[one]['recipient_id']}, and you are {actor.id}",
                hint="Only its recipient or the operator marks or archives a message. Nothing was changed.",
            )


def listed_message(row: MessageRow, now: int) -> Message:
    """A message as a list shows it: a long text is cut, a long object is left out."""
    whole: int = row["letters"]
    if row["form"] == "object":
        fits = whole <= LISTED_LETTERS
        return _message(row, now, from_json(row["body"]) if fits else None, None if fits else {"body": whole})
    left = whole - len(row["body"])
    return _message(row, now, row["body"], {"body": left} if left else None)


def whole_message(row: MessageRow, now: int) -> Message:
    """A message as message_get shows it, with more of its body."""
    kinds = ([], ["body"]) if row["form"] == "object" else (["body"], [])
    shown = cut({"body": row["body"]}, *kinds, each=WHOLE_BYTES)
    return _message(row, now, shown["body"], shown["left_out"])


def _message(row: MessageRow, now: int, body: Any, left_out: Cut | None) -> Message:
    kept: dict[str, Any] = {name: value for name, value in row.items() if name in Message.model_fields}
    return Message(**kept | {"body": body, "status": status_at(row, now), "left_out": left_out})


def total(counts: Counts, status: str | None, priorities: Collection[str] | None) -> int:
    """How many messages are of a status (none: of any) and of some priorities (none: of all)."""
    return sum(
        number
        for (one, priority), number in counts.items()
        if status in (None, one) and (not priorities or priority in priorities)
    )


def unread_count(counts: Counts, priorities: Collection[str] | None = None) -> UnreadCount:
    """How many messages are unread, by priority; those that were not asked for are 0."""
    unread = {one: counts["unread", one] if not priorities or one in priorities else 0 for one in URGENCY}
    return UnreadCount(count=sum(unread.values()), by_priority=ByPriority(**unread))


def inbox_start(cursor: str | None, priorities: Collection[str] | None) -> Row:
    """Where a page of an inbox begins and down to which urgency it goes. Raises InvalidInput for a wrong cursor."""
    wanted = [URGENCY[priority] for priority in priorities or URGENCY]
    if cursor is None:
        return {"urgency": max(wanted) + 1, "place": 0, "lowest": min(wanted)}
    urgency, place = _parts(cursor, r"(\d)\.(\d{1,18})")
    return {"urgency": int(urgency), "place": int(place), "lowest": min(wanted)}


def thread_start(cursor: str | None) -> Row:
    """After which turn a page of a thread begins. Raises InvalidInput for a wrong cursor."""
    turn, message_id = _parts(cursor, r"(\d{1,18})\.(ms_\w{12})") if cursor else ("0", "")
    return {"turn": int(turn), "id": message_id}


def _parts(cursor: str, form: str) -> tuple[str, ...]:
    match = re.fullmatch(form, cursor, re.ASCII)
    if match is None:
        raise InvalidInput(
            f"cursor '{cursor}' is none of this list's",
            hint="Give next_cursor of the page before with the same thread_id, or leave cursor out to begin anew.",
        )
    return match.groups()


def cursor_after(row: Row) -> str:
    """The cursor that goes on after this message of an inbox or a thread."""
    return f"{row['urgency']}.{row['place']}" if "place" in row else f"{row['turn']}.{row['id']}"


def undelivered_notice(row: Row) -> Row:
    """The notice to a sender whose message nobody is there to read."""
    about = row["subject"] or f"your {row['message_type']}"
    text = (
        f"{row['recipient_name']} ({row['recipient_id']}) is offline and has not read your message {row['id']}. "
        "It stays in that inbox, in case the agent comes back. If it cannot wait, send it to another agent "
        "(agent_list shows who is here) or see to the matter yourself."
    )
    return {"subject": f"Undelivered: {about}"[:SUBJECT_LETTERS], **body_text(text)}


def unread_notice(message_id: str, letter: Row) -> str:
    """The notice to an agent that a message lies in its inbox. What the sender wrote stands in quotes, cut short."""
    sender, says = letter["sender"], letter["subject"] or letter["body"][: 4 * QUOTED_LETTERS]
    who = SENDERS.get(sender) or full_name(letter.get("sender_name") or "an agent", sender)
    return (
        f"Unread message {message_id} from {who}, {letter['priority']}: {quotation(says, QUOTED_LETTERS)} "
        f'Read it with message_get(id="{message_id}").'
    )
