"""
Inboxes: where messages lie, numbered and counted.

Whoever changes an inbox holds its row until commit, and of several in the order of their names: places only grow,
and what is counted is what is stored. Counting reads a few rows, however many messages there are.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from crewhall.errors import NotFound
from crewhall.families.work.agent.model import AgentRow
from crewhall.families.work.message.model import OPERATOR_INBOX, URGENCY
from crewhall.families.work.message.rules import Counts, unread_notice
from crewhall.identity import new_id
from crewhall.notices import notify_each, withdraw
from crewhall.store.transaction import Row, Tx

Places = dict[str, Iterator[int]]


def refuse_unknown(tx: Tx, agent_id: str) -> str | None:
    """The name of the agent; None for the operator. Raises NotFound unless the id is an agent's or the operator's."""
    if agent_id == OPERATOR_INBOX:
        return None
    agent: AgentRow | None = tx.one("agent_get", id=agent_id)
    if agent is None:
        raise NotFound(f"there is no agent '{agent_id}'", hint="agent_list shows the agents; operator is the person.")
    return agent["name"]


def hint_known(tx: Tx, agent_id: str) -> None:
    if agent_id != OPERATOR_INBOX:
        tx.ahead("agent_get", id=agent_id)


def hold(tx: Tx, agents: Iterable[str], each: int = 0) -> Places:
    """Hold inboxes until commit, and take so many new places in each.

    A place is told as how far it is behind the inbox's last one, so nobody waits to hear which that is: what is put
    into an inbox travels with the commit, and no hub that stands still holds an inbox.
    """
    held = sorted(set(agents))
    tx.run("inboxes_take", agents=json.dumps(held), places=each)
    return {agent_id: iter(range(each - 1, -1, -1)) for agent_id in held}


def put(tx: Tx, letter: Row, recipients: Sequence[str], places: Places, *, is_told: bool = False) -> list[str]:
    """Put one letter into inboxes that are held; the ids of its messages. What it says is stored once.

    Agents are told of it in their next answer, unless they are told otherwise (`is_told`). `sender_name` in the letter
    is the name of its sender, if that is an agent.
    """
    ids = [new_id("ms") for _ in recipients]
    letter = letter | {"urgency": URGENCY[letter["priority"]], "text": ids[0]}
    tx.run("message_text_put", **{name: letter[name] for name in ("text", "form", "body")})
    rows = [
        letter | {"id": one, "recipient": recipient, "behind": next(places[recipient])}
        for one, recipient in zip(ids, recipients, strict=True)
    ]
    tx.many("message_insert", rows)
    _count(tx, Counter((recipient, "unread", letter["priority"]) for recipient in recipients))
    if not is_told:
        _notify(tx, letter, dict(zip(ids, recipients, strict=True)))
    return ids


def _notify(tx: Tx, letter: Row, recipients: Mapping[str, str]) -> None:
    """Have the recipients of messages told that they lie unread. The operator has no answers to be told in."""
    told = [
        {"agent_id": recipient, "subject": one, "text": unread_notice(one, letter)}
        for one, recipient in recipients.items()
        if recipient != OPERATOR_INBOX
    ]
    notify_each(tx, "message", told, letter["now"], letter["expires_at"])


def move(tx: Tx, rows: Sequence[Row], status: str, now: int) -> None:
    """Give messages of held inboxes another status; nobody is told of them any more."""
    ids = [row["id"] for row in rows]
    tx.run("messages_move", ids=json.dumps(ids), status=status, now=now)
    withdraw(tx, "message", ids)
    changes = Counter((row["recipient_id"], status, row["priority"]) for row in rows)
    changes.subtract((row["recipient_id"], row["status"], row["priority"]) for row in rows)
    _count(tx, changes)


def _count(tx: Tx, changes: Counter[tuple[str, str, str]]) -> None:
    names = ("agent", "status", "priority")
    tx.many("inbox_tally_add", [dict(zip(names, key, strict=True)) | {"messages": changes[key]} for key in changes])


def rows_by_id(tx: Tx, ids: Collection[str]) -> list[Row]:
    """The recipients and states of messages; ids that name none are skipped."""
    return tx.all("messages_named", ids=json.dumps(list(ids)))


def counts(tx: Tx, agent_id: str, now: int) -> Counts:
    """How many messages an inbox holds at this moment, by status and priority."""
    tallies: Counts = Counter()
    for row in tx.all("inbox_tallies", agent=agent_id):
        tallies[row["status"], row["priority"]] = row["messages"]
    for row in tx.all("inbox_overdue", agent=agent_id, now=now):
        tallies["unread", row["priority"]] -= row["messages"]
        tallies["expired", row["priority"]] += row["messages"]
    return tallies
