"""
Messages reach a program's conversation: by its hooks while it works, by a paste while it idles, once.

    row ─▶ outbox ── a hook takes it ──▶ taken ────────┐
              └── idle by its status file: paste ──▶ pasting ──┴─▶ in transcript or prompt hook ─▶ delivered

Nothing is typed unless the program's own status file says that it idles: in a dialog, Enter would approve what it asks.
A paste that is not seen gets one more Enter, never a second paste, unless the hub that pasted is gone: then the message
is looked for in the transcript and on the screen first.
"""

import json
from dataclasses import dataclass, field

from crewhall.app import Tick
from crewhall.config import Settings
from crewhall.families.crew import claude_code
from crewhall.families.crew.family import crew
from crewhall.families.crew.hook_log import HookLog
from crewhall.families.crew.mailbox import Mailbox, Tray, frame
from crewhall.families.crew.model import DeliveredBy, InstanceMessageRow, InstanceRow
from crewhall.families.crew.run_directory import RunDirectory, run_directory
from crewhall.families.crew.runtimes import runtime_named
from crewhall.families.crew.site import tmux_of
from crewhall.families.crew.transcript import Transcript
from crewhall.families.work.message import inbox
from crewhall.families.work.message.model import HALL, OPERATOR_INBOX
from crewhall.families.work.message.rules import body_text
from crewhall.identity import new_id
from crewhall.store.transaction import Tx

ENTER_MS = 4_000  # from a paste that is not seen to the second Enter
TAKEN_MS = 10_000  # from a hook's taking, in a program that idles, until the hook counts as lost
SCREEN_LINES = 60
PASTED_MARK = "[Pasted text"  # what Claude Code shows for a long paste in its input


@dataclass
class Attempt:
    """What this hub knows of a message on its way: since when it is in its tray, and what was typed for it."""

    tray: Tray
    since: int
    is_pasted: bool = False
    is_entered: bool = False


@dataclass
class Deliveries:
    """What a hub remembers between two looks; another hub reads the transcripts and logs again."""

    transcripts: dict[tuple[str, str], Transcript] = field(default_factory=dict)
    hook_logs: dict[tuple[str, str | None], HookLog] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)


DELIVERIES = crew.state(lambda settings: Deliveries())


def deliver(tick: Tick, row: InstanceRow) -> None:
    """Bring the open messages of a running instance a step further, and note its tokens. Raises Failure."""
    if runtime_named(tick.settings, row["runtime"]).messages != "claude":
        return
    place = run_directory(tick.settings, row["id"])
    box = Mailbox(place)
    with box.hold() as is_held:
        if not is_held:
            return  # another hub of this machine is at it
        memory = tick.hub.state(DELIVERIES)
        transcript = memory.transcripts.setdefault((row["id"], row["conversation_id"]), Transcript())
        transcript.read_on(claude_code.transcript_path(place, row["conversation_id"]))
        hooks = memory.hook_logs.setdefault((row["id"], row["process_started"]), HookLog())
        hooks.read_on(place)
        _note_use(tick, row, transcript, hooks)
        with tick.look() as look:
            waiting: list[InstanceMessageRow] = look.all("instance_messages_open", instance_id=row["id"])
        left = _sort(tick, box, waiting, transcript.messages | hooks.messages)
        for one in box.ids() - {message["id"] for message in left}:
            box.drop(one)
            memory.attempts.pop(one, None)
        if left and transcript.is_read and _is_idle(place, tick.now):
            _type(tick, row, box, left[0])


def _is_idle(place: RunDirectory, now: int) -> bool:
    """Whether the program itself says that it waits for a prompt, and for nothing else."""
    pid = place.read("started.json").get("pid")
    state = claude_code.observe(place, pid, now) if isinstance(pid, int) else None
    return state is not None and state.name == "idle" and state.source == "status file"


def _sort(tick: Tick, box: Mailbox, waiting: list[InstanceMessageRow], seen: set[str]) -> list[InstanceMessageRow]:
    """Note the messages that have arrived, and put new ones out; those that are still on their way."""
    left = []
    for message in waiting:
        tray = box.tray_of(message["id"])
        if message["id"] in seen:
            with tick.begin() as tx:
                note_delivery(tx, message["instance_id"], message["id"], "paste" if tray == "pasting" else "hook")
            continue
        if tray is None:
            box.put(message)
        left.append(message)
    return left


def _type(tick: Tick, row: InstanceRow, box: Mailbox, message: InstanceMessageRow) -> None:
    """Paste the oldest message into a program that idles, or see to one that was pasted or taken and is not seen."""
    tray, tmux = box.tray_of(message["id"]), tmux_of(tick.settings)
    if tray is None:
        return
    attempts = tick.hub.state(DELIVERIES).attempts
    attempt = attempts.get(message["id"])
    if attempt is None or attempt.tray != tray:
        attempt = attempts[message["id"]] = Attempt(tray, tick.now)
    age = tick.now - attempt.since
    if tray == "outbox" and box.move(message["id"], "outbox", "pasting"):
        attempts[message["id"]] = Attempt("pasting", tick.now, is_pasted=True)
        tmux.paste(row["session"], frame(message), row["pid"])
    elif tray == "taken" and age >= TAKEN_MS:
        box.move(message["id"], "taken", "outbox")
    elif tray == "pasting" and age >= ENTER_MS and not attempt.is_entered:
        if attempt.is_pasted or _is_on_screen(tmux.capture(row["session"], SCREEN_LINES, row["pid"]), message["id"]):
            attempt.is_entered = True
            tmux.paste(row["session"], "", row["pid"])
        else:  # the hub that was to paste it is gone, and nobody has seen it
            box.move(message["id"], "pasting", "outbox")


def _is_on_screen(screen: str, message_id: str) -> bool:
    return message_id in screen or PASTED_MARK in screen


def _note_use(tick: Tick, row: InstanceRow, transcript: Transcript, hooks: HookLog) -> None:
    """Write down the tokens and the last activity, once the transcript is read to its end and when they changed."""
    times = [transcript.active_at, row["last_activity_at"], hooks.last_at]
    active_at = max((one for one in times if one is not None), default=None)
    found = (transcript.input_tokens, transcript.output_tokens, active_at)
    known = (row["input_tokens"], row["output_tokens"], row["last_activity_at"])
    if transcript.is_read and found != known:
        fields = dict(zip(("input_tokens", "output_tokens", "active_at"), found, strict=True))
        with tick.begin() as tx:
            tx.run("instance_usage_set", id=row["id"], **fields)


def note_delivery(tx: Tx, instance_id: str, message_id: str, how: DeliveredBy) -> None:
    """The instance has the message."""
    if tx.count("instance_message_delivered", id=message_id, how=how, now=tx.now):
        tx.event("instance.told", instance_id, data=json.dumps({"message_id": message_id, "by": how}))


def has_inbox_only(settings: Settings, row: InstanceRow) -> bool:
    """Whether no message reaches the conversation of an instance's runtime, so that its inbox must do."""
    return runtime_named(settings, row["runtime"]).messages == "inbox"


def queue_message(tx: Tx, row: InstanceRow, sender: str, text: str, *, inbox_only: bool) -> str:
    """Queue a message for an instance's conversation, or put it into its inbox; its id."""
    message_id = new_id("im")
    tx.run("instance_message_insert", id=message_id, instance_id=row["id"], sender=sender, body=text, now=tx.now)
    tx.event("instance.messaged", row["id"], data=json.dumps({"message_id": message_id}))
    if inbox_only:
        put_in_inbox(tx, row, sender, text)
        note_delivery(tx, row["id"], message_id, "inbox")
    return message_id


def put_in_inbox(tx: Tx, row: InstanceRow, sender: str, text: str, *, is_told: bool = False) -> None:
    """Write to the instance's agent: as the operator, as another instance's agent, or as the hall.

    No notice tells it of what its conversation has as well (`is_told`).
    """
    who = _inbox_sender(tx, sender)
    about = {"subject": None, "priority": "normal", "workflow": None, "task": None, "expires_at": None}
    begins = {"thread": new_id("th"), "turn": 1, "reply_to": None}
    name = None if who in (OPERATOR_INBOX, HALL) else inbox.refuse_unknown(tx, who)
    letter = {"sender": who, "sender_name": name, "type": "notification", "now": tx.now, **body_text(text)}
    letter |= about | begins
    held = inbox.hold(tx, [row["agent_id"]], each=1)
    (sent,) = inbox.put(tx, letter, [row["agent_id"]], held, is_told=is_told)
    data = {"sender": who, "recipient": row["agent_id"], "thread": letter["thread"]}
    tx.event("message.sent", sent, data=json.dumps(data))


def _inbox_sender(tx: Tx, sender: str) -> str:
    """The operator's inbox for the operator alone, an instance's agent; the hall for the judge and itself."""
    if sender == OPERATOR_INBOX:
        return OPERATOR_INBOX
    instance: InstanceRow | None = tx.one("instance_get", id=sender)
    return HALL if instance is None else instance["agent_id"]
