"""
Messages for a program's conversation, as files that its hooks and the hub share.

    outbox/im_1.json ── renamed by a hook ──▶ taken/im_1.json ─┐
           │                                                   ├─▶ deleted once the conversation has it
           └────────── renamed by the hub ──▶ pasting/im_1.json ┘

Whoever renames a message delivers it. One hub at a time works on a mailbox; hooks need no lock.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crewhall.families.crew.model import InstanceMessageRow
from crewhall.families.crew.run_directory import RunDirectory, plainly
from crewhall.outside.disk import try_lock
from crewhall.outside.tmux import CONTROL

Tray = Literal["outbox", "taken", "pasting"]
TRAYS: tuple[Tray, ...] = ("outbox", "taken", "pasting")
HEAD = re.compile(r"\[(?=\W{0,9}Message\W{1,9}im_)", re.IGNORECASE)  # of a message, in a message


def frame(row: InstanceMessageRow) -> str:
    """The message as the program gets it: never beginning with `!` or `/`, and with an id that can be found.

    No other message begins inside it: neither the program, nor the hall when it looks for ids, is to take one for real.
    What a terminal drops is gone before that is looked for.
    """
    plain = CONTROL.sub("", row["body"])
    return f"[Message {row['id']} from {row['sender']}, by Crewhall]\n{HEAD.sub('(', plain)}"


@dataclass(frozen=True)
class Mailbox:
    """The messages of one instance that are on their way."""

    place: RunDirectory

    @contextlib.contextmanager
    def hold(self) -> Iterator[bool]:
        """Whether this hub has the mailbox to itself, for as long as the block."""
        with try_lock(str(self.place.path / "mailbox.lock")) as is_held:
            yield is_held

    def path(self, tray: Tray, message_id: str) -> Path:
        return self.place.path / tray / f"{message_id}.json"

    def tray_of(self, message_id: str) -> Tray | None:
        """Where a message is; a hook may move it from the first to the second at any time."""
        return next((tray for tray in TRAYS if self.path(tray, message_id).exists()), None)

    def put(self, row: InstanceMessageRow) -> None:
        """Let hooks have a message."""
        part = f".{row['id']}.part"
        self.place.write(part, json.dumps({"id": row["id"], "at": row["created_at"], "text": frame(row)}))
        with plainly(self.place.path / "outbox"):
            (self.place.path / part).rename(self.path("outbox", row["id"]))

    def move(self, message_id: str, before: Tray, after: Tray) -> bool:
        """Take a message from one tray to another; False when it is not there any more."""
        try:
            self.path(before, message_id).rename(self.path(after, message_id))
        except OSError:  # it is gone, or something else is in its place
            return False
        return True

    def drop(self, message_id: str) -> None:
        """Forget a message."""
        for tray in TRAYS:
            with contextlib.suppress(OSError):
                self.path(tray, message_id).unlink(missing_ok=True)

    def ids(self) -> set[str]:
        """All messages that are on their way."""
        return {path.stem for tray in TRAYS for path in (self.place.path / tray).glob("im_*.json")}
