"""
Notices: what an agent is told in its next answer over MCP, whatever it calls, once.

    notify ─▶ waiting ── a hub puts it into an answer ─▶ being told ── the answer is sent ─▶ gone
                 ▲                                           └── the hub died, or 10 s later ──┐
                 └───────────────────────────────────────────────────────────────────────────┘

It may be told twice when a hub dies between the two, and is never lost. `withdraw` takes back what is no longer so.
"""

import json
import re
from collections.abc import Collection, Iterable
from typing import Literal

from crewhall.fence import UNSEEN
from crewhall.identity import new_id
from crewhall.store.transaction import Row, Tx

Kind = Literal["message", "paused", "resumed", "handed", "taken", "named", "renamed"]
LETTERS = 400  # of a notice
NAME_LETTERS = 40
PLAIN_NAME = re.compile(r"[\w.@-]+")  # that needs no quotes
QUOTES = re.compile('["\u201c-\u201f\u2033\u2036\u275d\u275e\u301d-\u301f\uff02]')  # what could seem to end a quotation


def notify(
    tx: Tx, agents: Iterable[str], kind: Kind, subject: str, text: str, now: int, expires_at: int | None = None
) -> None:
    """Have these agents told a text about a subject, such as a message's or a workflow's id."""
    notify_each(tx, kind, [{"agent_id": one, "subject": subject, "text": text} for one in agents], now, expires_at)


def notify_each(tx: Tx, kind: Kind, notices: Iterable[Row], now: int, expires_at: int | None = None) -> None:
    """Have agents told, each its own text about its own subject: rows with `agent_id`, `subject` and `text`."""
    shared = {"kind": kind, "now": now, "expires_at": expires_at}
    tx.many("notice_put", [shared | one | {"id": new_id("no"), "text": cut(one["text"])} for one in notices])


def forget(tx: Tx, agent_id: str) -> None:
    """Tell an agent nothing of what was to be told to it."""
    tx.run("notices_drop", agent_id=agent_id)


def cut(text: str, letters: int = LETTERS) -> str:
    """A text in one line, at most so long."""
    line = " ".join(text.split())
    return line if len(line) <= letters else f"{line[: letters - 1]}…"


def quotation(text: str, letters: int) -> str:
    """What a stranger wrote, at most so long, in quotes that nothing in it ends: it can't pass for the hall's words."""
    return '"{}"'.format(QUOTES.sub("'", cut(UNSEEN.sub(" ", text[: 4 * letters]), letters)))


def with_quote(before: str, text: str, after: str) -> str:
    """A notice in whose middle a stranger's text stands, as much of it as there is room for."""
    return f"{before} {quotation(text, LETTERS - len(before) - len(after) - 4)} {after}"


def full_name(name: str, agent_id: str) -> str:
    """An agent by its name and id."""
    plain = len(name) <= NAME_LETTERS and PLAIN_NAME.fullmatch(name)
    return f"{name if plain else quotation(name, NAME_LETTERS)} ({agent_id})"


def withdraw(tx: Tx, kind: Kind, subjects: Collection[str]) -> None:
    """Tell nobody any more what was to be told about these subjects."""
    if subjects:
        tx.run("notices_withdraw", kind=kind, subjects=json.dumps(list(subjects)))
