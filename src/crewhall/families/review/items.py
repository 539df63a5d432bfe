"""The items of a coding instance's reviews: read with all their wordings, and written as a round leaves them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from crewhall.app import Call
from crewhall.errors import InvalidInput
from crewhall.families.crew.model import InstanceRow
from crewhall.families.review.feedback_file import NAME
from crewhall.families.review.model import ItemAnswer, ItemGiven, ItemRow, MentionRow, RoundRow
from crewhall.families.review.rules_item import (
    KnownItem,
    Mention,
    apply_answer,
    by_id,
    find_items,
    finding,
    has_converged,
    is_touched,
    refuse_contradiction,
    refuse_unknown,
    settle,
)
from crewhall.families.review.rules_match import Remark
from crewhall.identity import new_id
from crewhall.outside.git import CHANGED_NAMES, GitRepository, open_repository
from crewhall.store.transaction import Row, Tx

SHOWN = 200  # characters of a text in a list of items


def known_items(look: Tx, coder: str, touched: Collection[str] = ()) -> list[KnownItem]:
    """All items of a coder's reviews, those to be settled first."""
    rows: list[ItemRow] = look.all("items_of_coder", coder=coder)
    mentions: list[MentionRow] = look.all("mentions_of_coder", coder=coder)
    wordings: dict[str, list[Remark]] = {row["id"]: [] for row in rows}
    for one in mentions:
        wordings[one["item_id"]].append(Remark(one["item"], one["file"], one["line"], one["rule"]))
    known = [_to_known(row, tuple(wordings[row["id"]]), row["id"] in touched) for row in rows]
    return sorted(known, key=lambda item: not item.is_unsettled)


def _to_known(row: ItemRow, wordings: tuple[Remark, ...], touched: bool) -> KnownItem:
    return KnownItem(row["id"], row["state"], bool(row["is_blocking"]), row["claim"], wordings, touched)


def touched_items(repo: GitRepository, rows: Sequence[ItemRow], head: str) -> list[str]:
    """The items whose code has changed since they were raised last, as far as git can tell."""
    changed: dict[str, set[str]] = {}
    for commit in {row["seen_at"] for row in rows if row["seen_at"]}:
        ended = repo.git("diff", *CHANGED_NAMES, commit, head, "--")
        paths = ended.out.decode("utf-8", "replace").split("\0") if ended.code == 0 else []
        changed[commit] = {path for path in paths if path and path != NAME}
    return [row["id"] for row in rows if is_touched(row["file"], changed.get(row["seen_at"] or "", ()))]


@dataclass(frozen=True)
class RoundReading:
    """What a feedback says of which items, and the open items whose code has changed since they were raised."""

    mentions: list[Mention]
    touched: list[str]


def read_round(call: Call, reviewer: InstanceRow, given: Sequence[ItemGiven]) -> RoundReading:
    """Find the item that each finding is about; outside of a transaction, for to compare many takes its time.

    Raises InvalidInput for an id that no item has.
    """
    under_way = cast(RoundRow | None, call.one("review_by", reviewer=reviewer["id"]))
    if under_way is None:
        return RoundReading([], [])
    with call.look() as look:
        known = known_items(look, under_way["parent_instance"])
        rows: list[ItemRow] = look.all("items_open", coder=under_way["parent_instance"])
    mentions = find_items(given, known, lambda: new_id("ri"), call.stop.check)
    repo = open_repository(reviewer["repository_path"], call.stop)
    return RoundReading(mentions, touched_items(repo, rows, under_way["forked_from"]))


@dataclass(frozen=True)
class RoundOutcome:
    """What a feedback makes of the items: its mentions, and all items that were known before, as they are now."""

    mentions: list[Mention]
    before: list[KnownItem]
    after: list[KnownItem]

    @property
    def has_converged(self) -> bool:
        return has_converged(self.after, self.mentions)

    @property
    def blocking_ids(self) -> list[str]:
        """The items that block now, the new ones last."""
        fresh = [one.item_id for one in self.mentions if one.found_by == "new" and one.given.blocking]
        return [item.id for item in self.after if item.blocks] + fresh

    @property
    def data(self) -> Row:
        """What the operation keeps of it."""
        states = states_of(self.before, self.after)
        return {"items": mention_rows(self.mentions), "states": states, "converged": self.has_converged}


def settle_round(tx: Tx, coder: str, reading: RoundReading, resolved: Sequence[str]) -> RoundOutcome:
    """What becomes of a coder's items by a feedback. Raises InvalidInput for ids that no item has, or named twice."""
    known = known_items(tx, coder, reading.touched)
    refuse_unknown(resolved, known)
    refuse_contradiction(reading.mentions, resolved)
    return RoundOutcome(reading.mentions, known, settle(known, reading.mentions, resolved))


def write_round(tx: Tx, coder: str, feedback_id: str, data: Row) -> None:
    """Write what a feedback made of the items: the new ones, the others' states, and its own words.

    What a person has waived during the call stays waived.
    """
    for position, one in enumerate(data["items"]):
        if one["found_by"] == "new":
            own = {"id": one["item_id"], "coder": coder, "feedback_id": feedback_id, "position": position}
            words = {key: one[key] for key in ("item", "file", "line", "rule", "is_blocking", "fingerprint")}
            tx.run("item_insert", **own, **words, seen_at=data["head"], now=tx.now)
        else:
            tx.run("item_raised", id=one["item_id"], seen_at=data["head"], now=tx.now)
        said = {key: one[key] for key in ("item_id", "found_by", "item", "file", "line", "rule", "is_blocking")}
        tx.run("mention_insert", feedback_id=feedback_id, position=position, **said)
    write_states(tx, data["states"])


def write_states(tx: Tx, states: Sequence[Row]) -> None:
    """Write the states that items have come to."""
    for one in states:
        tx.run("item_settled", now=tx.now, **one)


def states_of(before: Sequence[KnownItem], after: Sequence[KnownItem]) -> list[Row]:
    """What has changed, as `write_states` takes it."""
    return [
        {"id": new.id, "state": new.state, "is_blocking": int(new.is_blocking), "claim": new.claim}
        for old, new in zip(before, after, strict=True)
        if new != old
    ]


def mention_rows(mentions: Sequence[Mention]) -> list[Row]:
    """Mentions as an operation keeps them."""
    return [
        {
            "item_id": one.item_id,
            "found_by": one.found_by,
            "item": one.given.text,
            "file": one.given.file,
            "line": one.given.line,
            "rule": one.given.rule,
            "is_blocking": int(bool(one.given.blocking)),
            "fingerprint": finding(one.given).fingerprint,
        }
        for one in mentions
    ]


def write_answers(tx: Tx, coder: str, answers: Sequence[ItemAnswer]) -> None:
    """Write what a coder says of its open items. Raises InvalidInput for an unknown item, or one that is settled."""
    known = known_items(tx, coder)
    refuse_unknown([one.item_id for one in answers], known)
    items = by_id(known)
    for one in answers:
        item = items[one.item_id]
        if not item.is_unsettled:
            raise InvalidInput(f"item {item.id} is {item.state} already", hint="Leave it out.")
        if one.state == "disputed" and not (one.note or "").strip():
            raise InvalidInput(f"item {item.id} is disputed without a note", hint="Say in note why it is none.")
        new = apply_answer(item, one)
        tx.run("item_answered", id=item.id, state=new.state, claim=new.claim, note=one.note, now=tx.now)


def shown_item(row: ItemRow | Row) -> dict[str, Any]:
    """An item as tools show it, its texts cut."""
    same = {name: row[name] for name in ("id", "line", "rule", "state", "times", "claim")}
    texts = {name: None if row[name] is None else str(row[name])[:SHOWN] for name in ("file", "note", "reason")}
    return {"text": row["item"][:SHOWN], "blocking": bool(row["is_blocking"]), **same, **texts}
