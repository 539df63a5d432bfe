"""
The life of an item: raised in one round, and what becomes of it in the next. No clock, no database, no world.

    open ── raised again ──▶ repeated            the reviewer names it, or says the same in other words
      ├── said to be fixed, or its code changed, and not raised again ──▶ fixed
      ├── the coder disputes it ──▶ disputed ── raised again ──▶ repeated
      │                                 └── the reviewer accepts ──▶ waived
      └── a person waives it ──▶ waived

An item that blocks does so until it is fixed or waived. Silence fixes only what can have been fixed: an item whose code
is as it was, or that is disputed, stays. Words that match take nothing back: only whoever names an item unblocks it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from crewhall.errors import InvalidInput
from crewhall.families.review.model import FoundBy, ItemAnswer, ItemClaim, ItemGiven, ItemState
from crewhall.families.review.rules_match import Remark, is_same

UNSETTLED = ("open", "repeated", "disputed")
MOST_NAMED = 10  # ids that a refusal lists
COMPARED = 150  # items that a finding is compared with, those to be settled first


@dataclass(frozen=True)
class KnownItem:
    """An item of earlier rounds. `wordings` are all that it was raised in, `is_touched`: its code has changed since."""

    id: str
    state: ItemState
    is_blocking: bool
    claim: ItemClaim | None
    wordings: tuple[Remark, ...]
    is_touched: bool = False

    @property
    def is_unsettled(self) -> bool:
        return self.state in UNSETTLED

    @property
    def blocks(self) -> bool:
        return self.is_blocking and self.is_unsettled


@dataclass(frozen=True)
class Mention:
    """What a feedback says, and of which item."""

    item_id: str
    found_by: FoundBy
    given: ItemGiven


def finding(given: ItemGiven) -> Remark:
    return Remark(given.text, given.file, given.line, given.rule)


def find_items(
    given: Sequence[ItemGiven], known: Sequence[KnownItem], new_id: Callable[[], str], check: Callable[[], None]
) -> list[Mention]:
    """Which item each finding is about: the one it names, else one in other words, else a new one.

    Raises InvalidInput for an id that no item has, and what `check` raises between two findings.
    """
    refuse_unknown([one.item_id for one in given if one.item_id], known)
    taken = {one.item_id for one in given}
    mentions = []
    for one in given:
        check()
        item_id: str | None = one.item_id
        found_by: FoundBy = "id"
        if item_id is None:
            free = [item for item in known[:COMPARED] if item.id not in taken]
            match = next((item for item in free if _is_about(finding(one), item)), None)
            item_id, found_by = (match.id, "words") if match else (new_id(), "new")
        taken.add(item_id)
        mentions.append(Mention(item_id, found_by, one))
    return mentions


def _is_about(found: Remark, item: KnownItem) -> bool:
    """Whether it is this item again. What a person waived is met only by the very same words."""
    if item.state == "waived":
        return any(found.fingerprint == one.fingerprint for one in item.wordings)
    return any(is_same(found, one) for one in item.wordings)


def refuse_unknown(ids: Iterable[str], known: Sequence[KnownItem]) -> None:
    """Raise InvalidInput for an id that is no item's."""
    unknown = sorted(set(ids) - {item.id for item in known})
    if unknown:
        listed = ", ".join(item.id for item in known[:MOST_NAMED] if item.is_unsettled) or "none"
        raise InvalidInput(
            f"there is no item '{unknown[0][:40]}' in this review",
            hint=f"Open items: {listed}. Omit item_id for a new one.",
        )


def refuse_contradiction(mentions: Sequence[Mention], resolved: Collection[str]) -> None:
    """Raise InvalidInput for an item that is named again and called resolved at once."""
    both = sorted({one.item_id for one in mentions if one.found_by == "id"} & set(resolved))
    if both:
        raise InvalidInput(
            f"item {both[0]} is in actionable_items and in resolved_items", hint="Raise it again, or call it resolved."
        )


def settle(known: Sequence[KnownItem], mentions: Sequence[Mention], resolved: Collection[str] = ()) -> list[KnownItem]:
    """The known items as they are after a feedback that raises some of them and calls others resolved."""
    raised: dict[str, list[Mention]] = {}
    for one in mentions:
        raised.setdefault(one.item_id, []).append(one)
    return [_after(item, raised.get(item.id, []), is_resolved=item.id in resolved) for item in known]


def _after(item: KnownItem, mentions: list[Mention], *, is_resolved: bool) -> KnownItem:
    if item.state == "waived":
        return item
    if is_resolved:  # also if its words seemed to come up again
        mentions = []
    if mentions:
        return _raise_again(item, mentions)
    if not item.is_unsettled:
        return item
    if is_resolved:
        return replace(item, state="waived" if item.state == "disputed" else "fixed")
    if item.state != "disputed" and (item.claim == "fixed" or item.is_touched):
        return replace(item, state="fixed")
    return item


def _raise_again(item: KnownItem, mentions: list[Mention]) -> KnownItem:
    blocks = any(one.given.blocking for one in mentions)
    if not any(one.found_by == "id" for one in mentions):
        blocks = blocks or item.is_blocking
    elif item.state == "disputed" and not blocks:
        return replace(item, state="waived")
    return replace(item, state="repeated", is_blocking=blocks, claim=None)


def has_converged(known: Sequence[KnownItem], mentions: Sequence[Mention]) -> bool:
    """Whether nothing blocks any more: of what was known, as it is now, and of what is new."""
    fresh = any(one.found_by == "new" and one.given.blocking for one in mentions)
    return not fresh and not any(item.blocks for item in known)


def apply_answer(item: KnownItem, answer: ItemAnswer) -> KnownItem:
    """The item after its coder has said that it is fixed, or has disputed it."""
    if answer.state == "disputed":
        return replace(item, state="disputed", claim="disputed")
    return replace(item, state="open" if item.state == "open" else "repeated", claim="fixed")


def is_touched(file: str | None, changed: Collection[str]) -> bool:
    """Whether a change of these files may have fixed what was found: in that file, or anywhere if none was named."""
    if file is None:
        return bool(changed)
    tail = f"/{file.lstrip('./')}"
    return any(f"/{path}".endswith(tail) or tail.endswith(f"/{path}") for path in changed)


def by_id(known: Sequence[KnownItem]) -> Mapping[str, KnownItem]:
    return {item.id: item for item in known}
