"""`crewhall reply ID TEXT`: answer a message as the operator, in its thread, and mark it as read."""

from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli import render
from crewhall.edges.cli.hall_client import Hall, result_of
from crewhall.edges.cli.inbox import OPERATOR, agent_names, find_own, sender, with_name
from crewhall.edges.cli.output import say
from crewhall.errors import InvalidInput, InvalidState
from crewhall.options import read_words

USAGE = "crewhall reply ID TEXT, or crewhall reply ID -- TEXT for one that begins with --"


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    message_id, text = _words(rest)
    hall = Hall(from_environment(settings_flags))
    asked = find_own(hall, message_id)
    if asked["sender_id"] == "hall":
        raise InvalidState(
            f"the hall wrote message {message_id}, and reads no answers",
            hint="Write to an agent: crewhall message send.",
        )
    given = {"sender_id": OPERATOR, "recipient_id": asked["sender_id"], "reply_to_id": message_id, "body": text}
    sent = result_of(hall, "message_send", "message send", message_type="response", **given)
    result_of(hall, "message_mark_read", "message mark-read", message_ids=[message_id])
    if "--json" in flags:
        return say(render.json_line(sent))
    asked = with_name(asked, agent_names(hall, [asked["sender_id"]]))
    return say(render.harmless(f"{sent['id']} went to {sender(asked)}, thread {sent['thread_id']}"))


def _words(rest: list[str]) -> tuple[str, str]:
    """The message's id and the text; several words are joined. Raises InvalidInput for an option."""
    texts = []
    for word in read_words(rest, lambda name, following: False):
        if word.is_option:
            raise InvalidInput(f"unexpected argument '{word.text}'", hint=USAGE)
        texts.append(word.text)
    text = " ".join(texts[1:])
    if not text.strip():
        raise InvalidInput("give the id of a message and what you answer", hint=USAGE)
    return texts[0], text
