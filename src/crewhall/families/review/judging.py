"""The start of a round that the judge reviews: noted in the hall, and left to a chore."""

from crewhall.app import Call
from crewhall.families.crew.model import InstanceRow
from crewhall.families.review.judge_steps import JUDGING
from crewhall.families.review.prompt import ReviewFacts
from crewhall.families.review.review_rows import note_judge_asked
from crewhall.families.review.rules import JUDGED
from crewhall.families.work.workspace.creation import worktree_path
from crewhall.identity import new_id
from crewhall.store.transaction import Tx


def begin_judging(call: Call, tx: Tx, coder: InstanceRow, facts: ReviewFacts, contract: str) -> None:
    """Note the round, and what a chore of a hub of this node does about it."""
    round_id = f"{JUDGED}{new_id('jd').partition('_')[2]}"
    own = {"coder": coder["id"], "reviewer": round_id, "forked_from": facts.head}
    said = facts.completion_message
    tx.run("review_insert", iteration=facts.iteration, completion_message=said, now=tx.now, **own)
    note_judge_asked(tx, coder, facts.iteration, facts.head)
    branch = f"judge-{coder['id']}-r{facts.iteration}-{round_id[-6:]}"
    tree = worktree_path(coder["repository_path"], branch)
    title = coder["prompt"].strip().partition("\n")[0][:200] or coder["id"]
    data = {"tree": tree, "branch": branch, "contract": contract, "title": title}
    call.hub.journal.begin(tx, JUDGING, round_id, place=coder["node"], data=data, holder="a chore", lease_ms=0)
