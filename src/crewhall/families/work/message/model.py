"""
The words of messages, and the shapes that their tools return.

    message  ms_…   what one sender wrote to one recipient
    thread   th_…   a message and all that answers it; a broadcast is one thread
    inbox           the messages of one recipient: an agent, or the operator (the person)

    unread ─── read ──▶ read ─── archive ──▶ archived
      │ └────────────── archive ────────────▶   ▲
      └── nobody read it in time ──▶ expired ───┘
"""

from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from crewhall.bounded import Cut
from crewhall.declaration import InputModel, Suggest
from crewhall.families.work.agent.model import LiveStatus, Role, Runtime
from crewhall.tool import Result

MessageType = Literal["task_assignment", "status_update", "query", "response", "notification"]
BroadcastType = Literal["notification", "status_update"]
Priority = Literal["low", "normal", "high", "urgent"]
MessageStatus = Literal["unread", "read", "archived", "expired"]
ListedStatus = Literal["unread", "read", "all"]
URGENCY: dict[str, int] = {"low": 0, "normal": 1, "high": 2, "urgent": 3}
OPERATOR_INBOX = "operator"
HALL = "hall"
SUBJECT_LETTERS = 500
MONTH_SECONDS = 30 * 86_400

RecipientId = Annotated[
    str, Suggest("agent_ids"), Field(max_length=100, description="An agent's id, ag_…, or operator: the person.")
]
MessageId = Annotated[str, Field(max_length=100, description="A message's id, ms_…")]
MessageIds = Annotated[list[MessageId], Field(max_length=500, description="Messages' ids, at most 500.")]
ThreadId = Annotated[str, Field(max_length=100, description="A thread's id, th_…")]
Subject = Annotated[str, Field(max_length=SUBJECT_LETTERS)]
Body = Annotated[
    str | dict[str, Any],
    Field(description="A text of at most 100,000 characters, or an object of at most 64 kB of JSON."),
]
ExpiresIn = Annotated[
    int, Field(ge=1, le=MONTH_SECONDS, description="Seconds after which it expires unless it was read by then.")
]
Since = Annotated[
    float, Field(ge=0, le=2**53, description="Sent at this Unix time or later: seconds, or milliseconds from 10^11 on.")
]


class MessageRow(TypedDict):
    """A message with its text, or the beginning of it."""

    id: str
    sender_id: str
    recipient_id: str
    message_type: MessageType
    subject: str | None
    priority: Priority
    workflow_id: str | None
    task_id: str | None
    thread_id: str
    reply_to_id: str | None
    status: MessageStatus
    created_at: int
    read_at: int | None
    archived_at: int | None
    expires_at: int | None
    form: Literal["text", "object"]
    body: str
    letters: int


class RecipientFilter(InputModel):
    """Which agents a broadcast reaches; what is left out does not matter."""

    role: Role | None = None
    status: LiveStatus | None = None
    runtime: Runtime | None = None


class Message(Result):
    id: str
    sender_id: str
    recipient_id: str
    message_type: MessageType
    subject: str | None
    body: str | dict[str, Any] | None
    priority: Priority
    workflow_id: str | None
    task_id: str | None
    thread_id: str
    reply_to_id: str | None
    status: MessageStatus
    created_at: int
    read_at: int | None
    archived_at: int | None
    expires_at: int | None
    left_out: Cut | None = Field(description="How many characters of the body are not shown; message_get shows more.")


class MessageSent(Result):
    id: str
    thread_id: str


class Broadcast(Result):
    sent_count: int
    message_ids: list[str]


class Messages(Result):
    messages: list[Message]
    unread_count: int = Field(description="Of the whole inbox.")
    total: int = Field(description="How many match, on this page and the others.")
    next_cursor: str | None = Field(description="Give it as `cursor` for the next page; null when this is the last.")


class ByPriority(Result):
    low: int
    normal: int
    high: int
    urgent: int


class UnreadCount(Result):
    count: int
    by_priority: ByPriority = Field(description="Priorities that were not asked for are 0.")
