"""What a person decides about the items of a review."""

import json
from typing import Annotated, cast

from pydantic import Field

from crewhall.app import Call
from crewhall.app.checks import refuse_unproven
from crewhall.errors import InvalidState, NotFound
from crewhall.families.review.family import review
from crewhall.families.review.items import known_items
from crewhall.families.review.model import ItemId, ItemRow, ItemWaived
from crewhall.families.review.rules_item import UNSETTLED
from crewhall.tool import OPERATOR

Reason = Annotated[str, Field(min_length=1, max_length=1_000, description="Why it need not be fixed.")]


@review.tool("review_waive", ours=True, changes=True, who=OPERATOR, command="review waive")
def review_waive(call: Call, item_id: ItemId, reason: Reason) -> ItemWaived:
    """Decide that an open item of a review need not be fixed; it blocks no more, also if a reviewer raises it again."""
    refuse_unproven(call)
    with call.begin() as tx:
        row = cast(ItemRow | None, tx.one("item_lock", id=item_id))
        if row is None:
            raise NotFound(f"there is no item '{item_id}'", hint="`crewhall review get INSTANCE` lists the open items.")
        if row["state"] not in (*UNSETTLED, "waived"):
            raise InvalidState(f"item {item_id} is {row['state']} already", hint="Only open items can be waived.")
        if row["state"] != "waived":
            tx.run("item_waived", id=item_id, reason=reason, now=tx.now)
            tx.event("review.item_waived", row["coder"], data=json.dumps({"item_id": item_id}))
        left = [item.id for item in known_items(tx, row["coder"]) if item.blocks]
    return ItemWaived(id=item_id, instance_id=row["coder"], state="waived", blocking_items=left)
