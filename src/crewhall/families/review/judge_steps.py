"""
The operation of a round that the judge reviews: a worktree of its own, the verdict, and what follows from it.

    tree ─▶ verdict ── PASS ─────────────────────────▶ pull ─▶ clean
              ├── CONDITIONAL, FAIL, CRITICAL_HALT ─▶ feedback ─▶ merge ─▶ clean
              └── no verdict: the round is given back ─────────────────────▶ clean

It is begun by request_review and left to a chore; nothing of it is undone. The judge's report is stored before the step
is, and cached: a hub that dies in between costs no second run.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from crewhall.app import NOWHERE, Hub, Origin, Tick
from crewhall.errors import Failure
from crewhall.families.crew.delivery import has_inbox_only
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.steps import COMMON, NodeWorld
from crewhall.families.review.family import review
from crewhall.families.review.items import RoundReading, known_items, settle_round, touched_items
from crewhall.families.review.messages import feedback_message
from crewhall.families.review.model import RoundRow
from crewhall.families.review.review_rows import note_approved, note_judged, note_verdict
from crewhall.families.review.rules_contract import judged_feedback, judged_items
from crewhall.families.review.rules_item import find_items
from crewhall.families.review.steps import commit_feedback, merge_feedback, must_wait, round_rows
from crewhall.identity import Actor, new_id
from crewhall.journal import BEGUN, Lost, Operation, Step
from crewhall.outside.files import open_root
from crewhall.outside.git import open_repository
from crewhall.outside.removal import remove_worktree
from crewhall.outside.worktrees import add_worktree, at
from crewhall.outside.writing import make_directory, put, take_away
from crewhall.stop import Stop
from crewhall.store.transaction import Row

CONTRACT = "TASK_CONTRACT.json"
PAPERS = (CONTRACT, "JUDGE_REPORT.md", "JUDGE_REPORT.json")
LOOK_SECONDS = 3.0  # how often a hub looks for rounds to judge
LIMIT_SECONDS = 7_200.0
AT_ONCE = 4  # the judge itself queues them


@dataclass(frozen=True)
class JudgeWorld(NodeWorld):
    """This machine, and the hub whose tools the steps call."""

    hub: Hub | None = None

    def call(self, tool: str, actor: Actor, beat: Any = None, origin: Origin = NOWHERE, **arguments: Any) -> Row:
        """Call a tool of the hall, as the hall."""
        assert self.hub is not None
        stop = self.stop or Stop(LIMIT_SECONDS)
        return self.hub.call(tool, arguments, actor, stop=stop, progress=beat, origin=origin)


Judging = Operation[JudgeWorld]


def _rows(operation: Judging) -> tuple[RoundRow, InstanceRow]:
    store = operation.journal.store
    spread = cast(RoundRow, store.one("review_by", reviewer=operation.subject))
    return spread, cast(InstanceRow, store.one("instance_get", id=spread["parent_instance"]))


def _goes_on(operation: Judging) -> bool:
    """Whether the round is still open: its coder may have been ended, or have opened its pull request."""
    return _rows(operation)[0]["ended_at"] is None


def _make_tree(world: JudgeWorld, operation: Judging) -> Row | None:
    """The worktree that the judge reads: the commit under review, and the contract in a directory beside the files.

    Which directory it is, is noted: no other is judged.
    """
    if not _goes_on(operation):
        return None
    spread, coder = _rows(operation)
    repo = open_repository(coder["repository_path"], world.stop)
    tree = operation.data["tree"]
    add_worktree(repo, tree, operation.data["branch"], spread["forked_from"], may_be_ours=True)
    with open_root(tree) as top, make_directory(top, _directory(operation)) as papers:
        put(papers, CONTRACT, operation.data["contract"].encode())
        return {"identity": list(top.opened.identity)}


def _directory(operation: Judging) -> str:
    """Where the judge's papers are in its worktree: a name that is newer than the commit, so nothing there has it."""
    return f"crewhall-review-{operation.subject[-12:]}"


def _ask(world: JudgeWorld, operation: Judging) -> Row:
    """The judge's verdict, as items of the round; or why there is none."""
    if not _goes_on(operation):
        return {"verdict": None}
    spread, coder = _rows(operation)
    common = {"inbox_only": has_inbox_only(world.settings, coder), "coder": coder["id"], "head": spread["forked_from"]}
    try:
        said = _outcome(world, operation)
        if said["verdict"] is None:
            return {**common, "verdict": None, "reason": said["error"] or "no verdict", "report_id": said["report_id"]}
        return common | _settle_verdict(world, operation, coder, spread, said)
    except Lost:
        raise  # another hub asks now
    except Failure as failure:
        if world.stop is not None:
            world.stop.check()  # the hub stops: the next one asks
        return {**common, "verdict": None, "reason": failure.message, "report_id": None}


def _outcome(world: JudgeWorld, operation: Judging) -> Row:
    def beat(*_: Any) -> None:
        operation.beat()

    directory = _directory(operation)
    given = {"contract_path": f"{directory}/{CONTRACT}", "report_dir": directory}
    hall = Actor("operator", "hall")
    noted = operation.data.get("identity")  # a round that an older hub began has none
    origin = Origin(worktree=operation.data["tree"], identity=(noted[0], noted[1]) if noted else None)
    return world.call("claude_judge_review", hall, beat, origin, **given)


def _settle_verdict(world: JudgeWorld, operation: Judging, coder: InstanceRow, spread: RoundRow, said: Row) -> Row:
    """What the verdict makes of the items, and the feedback that it is."""
    store = operation.journal.store
    report = store.one("judge_report_get", id=said["report_id"])
    assert report is not None
    ruling = json.loads(report["ruling"])
    given = judged_items(ruling)
    with store.read() as look:
        known, rows = known_items(look, coder["id"]), look.all("items_open", coder=coder["id"])
    mentions = find_items(given, known, lambda: new_id("ri"), operation.beat)
    touched = touched_items(open_repository(coder["repository_path"], world.stop), rows, spread["forked_from"])
    passes = said["verdict"] == "PASS"
    open_ids = [item.id for item in known if item.is_unsettled] if passes else []
    with store.read() as look:
        outcome = settle_round(look, coder["id"], RoundReading(mentions, touched), open_ids)
    text, kind, priority = judged_feedback(said["verdict"], ruling, said["report_id"])
    sent: Row = {"id": new_id("fb"), "feedback_type": "suggestions" if passes else kind, "priority": priority}
    sent |= {"feedback": text, "reviewer": "judge", "iteration": spread["review_iteration"]}
    message = feedback_message(sent, outcome)
    kept = {"verdict": said["verdict"], "report_id": said["report_id"], "summary": ruling["summary"]}
    return {**kept, "feedback_id": sent["id"], "sent": sent, "message": message, **outcome.data}


def _is_feedback(operation: Judging) -> bool:
    return operation.data.get("verdict") not in (None, "PASS") and _goes_on(operation)


def _commit(world: JudgeWorld, operation: Judging) -> Row | None:
    return commit_feedback(world, operation) if _is_feedback(operation) else None


def _merge(world: JudgeWorld, operation: Judging) -> Row | None:
    if not _is_feedback(operation):
        return None
    row, _, coder = round_rows(operation)
    if must_wait(operation):
        return {"merge_commit": None}
    return {"merge_commit": merge_feedback(world, coder, row, operation.data["git_commit"])}


def _open_pull(world: JudgeWorld, operation: Judging) -> Row | None:
    """A PASS approves: the pull request is opened as the coder's, at its tier; else the coder is told to."""
    spread, coder = _rows(operation)
    if spread["outcome"] != "approved":
        return None
    hall = Actor("operator", "hall", proof="token", tier=coder["tier"])
    text = f"{operation.data['summary']}\n\nThe judge says PASS (report {operation.data['report_id']})."
    given = {"instance_id": coder["id"], "title": operation.data["title"], "description": text}
    try:
        world.call("create_pull_request", hall, **given)
        return {"problem": None}
    except Failure as failure:
        if world.stop is not None:
            world.stop.check()
        return {"problem": failure.message}


def _remove_tree(world: JudgeWorld, operation: Judging) -> None:
    _, coder = _rows(operation)
    repo = open_repository(coder["repository_path"], world.stop)
    tree, branch = operation.data["tree"], operation.data["branch"]
    if at(repo, tree) is not None or repo.branch_exists(branch):
        _remove_papers(tree, _directory(operation))
        removed = remove_worktree(repo, tree, branch, True, f"refs/crewhall/saved/{branch}")
        for ref in removed.saved_refs:
            repo.delete_ref(ref)


def _remove_papers(tree: str, directory: str) -> None:
    """Remove the judge's papers; what else is in their place goes with the worktree."""
    with suppress(Failure), open_root(tree) as top, top.directory(directory) as papers:
        for name in PAPERS:
            take_away(papers, name)


def _stay(world: JudgeWorld, operation: Judging) -> None:
    """Nothing is undone."""


def _reach(tick: Tick) -> Iterator[tuple[str, AbstractContextManager[JudgeWorld]]]:
    yield tick.settings.node, nullcontext(JudgeWorld(tick.settings, tick.stop, tick.hub))


_steps = partial(Step[JudgeWorld], undo=_stay)
JUDGING = review.operation(
    "review_judge",
    steps=(
        _steps("tree", _make_tree),
        _steps("verdict", _ask, record=note_verdict),
        _steps("feedback", _commit),
        _steps("merge", _merge, record=note_judged),
        _steps("pull", _open_pull, record=note_approved),
        _steps("clean", _remove_tree),
    ),
    keeps=BEGUN,
    at_once=AT_ONCE,
    settle_seconds=LOOK_SECONDS,
    limit_seconds=LIMIT_SECONDS,
    **{**COMMON, "reach": _reach},
)
