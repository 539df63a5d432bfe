"""`crewhall inbox`: what agents wrote to the operator, the most urgent and newest first, and one message to read."""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

from crewhall.config import from_environment
from crewhall.edges.cli import render
from crewhall.edges.cli.hall_client import Hall, result_of
from crewhall.edges.cli.output import say
from crewhall.errors import Failure, Forbidden, InvalidInput, NotFound
from crewhall.options import read_words

OPERATOR = "operator"
USAGE = "crewhall inbox [ID | --all [--cursor C]]"
SENDERS = {OPERATOR: "you", "hall": "the hall"}
Body = dict[str, Any]


def run(settings_flags: dict[str, Any], flags: dict[str, str], rest: list[str]) -> int:
    options, ids = _words(rest)
    hall = Hall(from_environment(settings_flags))
    if ids:
        return _show_one(hall, ids[0], flags)
    chosen = {"status": "all"} if "--all" in options else {}
    chosen |= {"cursor": options["--cursor"]} if "--cursor" in options else {}
    page = result_of(hall, "message_list", "message list", agent_id=OPERATOR, **chosen)
    names = agent_names(hall, [one["sender_id"] for one in page["messages"]])
    page["messages"] = [with_name(one, names) for one in page["messages"]]
    return say(render.json_line(page) if "--json" in flags else _page(page, "--all" in options))


def _words(rest: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options and ids that were given. Raises InvalidInput for other words."""
    options: dict[str, str] = {}
    ids: list[str] = []
    for word in read_words(rest, lambda name, _: name == "--cursor"):
        if not word.is_option:
            ids.append(word.text)
        elif word.name not in ("--all", "--cursor") or (word.name == "--all") != (word.value is None):
            raise InvalidInput(f"unexpected argument '{word.text}'", hint=USAGE)
        else:
            options[word.name] = word.value or ""
    if len(ids) > 1 or (ids and options):
        raise InvalidInput("give one message's id, or none for all", hint=USAGE)
    return options, ids


def find_own(hall: Hall, message_id: str) -> Body:
    """A message to the operator, not marked as read. Raises NotFound, Forbidden for one to somebody else."""
    try:
        message = result_of(hall, "message_get", "message get", id=message_id, mark_read=False)
    except NotFound as failure:
        raise NotFound(failure.message, hint="`crewhall inbox --all` shows your messages and their ids.") from None
    if message["recipient_id"] != OPERATOR:
        raise Forbidden(
            f"message {message_id} is for {message['recipient_id']}, not for you",
            hint=f"`crewhall message get {message_id} --mark-read false` shows it; `crewhall inbox` shows your own.",
        )
    return message


def agent_names(hall: Hall, agent_ids: list[str]) -> dict[str, str]:
    """The names of these agents; whoever is not one is left out."""
    names = {}
    for agent_id in sorted(set(agent_ids) - SENDERS.keys()):
        try:
            names[agent_id] = result_of(hall, "agent_get", "agent get", id=agent_id)["name"]
        except Failure:
            continue
    return names


def with_name(message: Body, names: Mapping[str, str]) -> Body:
    return message | {"sender_name": names.get(message["sender_id"])}


def sender(message: Mapping[str, Any]) -> str:
    """Who wrote a message, as a person reads it."""
    sender_id, name = message["sender_id"], message["sender_name"]
    return SENDERS.get(sender_id) or (f"{name} ({sender_id})" if name else str(sender_id))


def _show_one(hall: Hall, message_id: str, flags: Mapping[str, str]) -> int:
    find_own(hall, message_id)
    message = result_of(hall, "message_get", "message get", id=message_id)
    message = with_name(message, agent_names(hall, [message["sender_id"]]))
    more = f"`crewhall text read {message_id} body` shows the rest"
    return say(render.json_line(message) if "--json" in flags else _letter(message, more))


def _page(page: Mapping[str, Any], shows_read: bool) -> str:
    """The messages of a page, and how to go on."""
    letters = [_letter(one, f"`crewhall inbox {one['id']}` shows more") for one in page["messages"]]
    if not letters:
        return (
            "No messages."
            if shows_read
            else "No unread messages. `crewhall inbox --all` shows those that you have read."
        )
    left = ""
    if page["next_cursor"] is not None:
        option = "--all " if shows_read else ""
        left = f" `crewhall inbox {option}--cursor {page['next_cursor']}` shows the next ones."
    end = (
        f"{page['unread_count']} unread. `crewhall inbox ID` marks one as read, `crewhall reply ID TEXT` answers.{left}"
    )
    return "\n\n".join([*letters, end])


def _letter(message: Mapping[str, Any], more: str) -> str:
    """A message as a letter: what it is about, and what it says, indented."""
    head = {"from": sender(message), "sent_at": message["created_at"], "thread": message["thread_id"]}
    head |= {"subject": message["subject"]} if message["subject"] else {}
    head |= {name: message[name] for name in ("workflow_id", "task_id") if message[name]}
    title = f"{message['id']}  {message['priority']} {message['message_type']}, {message['status']}"
    return "\n".join([title, textwrap.indent(render.facts(head), "  "), "", _text(message, more)])


def _text(message: Mapping[str, Any], more: str) -> str:
    body = message["body"]
    text = body if isinstance(body, str) else json.dumps(body, indent=2, ensure_ascii=False) if body else ""
    left = (message["left_out"] or {}).get("body")
    lines = [render.harmless(line) for line in text.split("\n")]
    lines += [f"… {left} characters left out: {more}"] if left else []
    return textwrap.indent("\n".join(lines), "    ", lambda line: True)
