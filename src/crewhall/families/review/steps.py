"""
The operations of the review loop: their steps, how each is done, and how it is undone.

    review start      as an instance starts; then its coder waits
    review feedback   commit ─▶ merge      a tree that can't take the file now has it later; from here on it is sent
"""

from typing import Any, cast

from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.steps import COMMON, Change, NodeWorld, start_steps
from crewhall.families.review.family import review
from crewhall.families.review.feedback_file import NAME, feedback_file
from crewhall.families.review.model import FeedbackRow, RoundRow
from crewhall.families.review.review_rows import (
    note_feedback,
    note_feedback_undone,
    note_review_started,
    note_review_undone,
)
from crewhall.families.review.rules import reviewer_name
from crewhall.journal import Happened, Operation, Step
from crewhall.outside.file_commits import Hindered, OneFileChange, advance, commit_file, write_blob
from crewhall.outside.git import open_repository
from crewhall.store.transaction import Row, Store

REVIEWING = review.operation(
    "review_start",
    steps=start_steps(note_review_started),
    keeps="session",
    on_undone=note_review_undone,
    **COMMON,
)


def commit_feedback(world: NodeWorld, operation: Operation[Any]) -> Row:
    """Commit the file where the review was forked from, under a ref of its own until a branch has it."""
    row, spread, coder = round_rows(operation)
    repo = open_repository(coder["repository_path"], world.stop)
    blob = write_blob(repo, feedback_file(row, operation.data["items"]))
    message = f"Review feedback, round {row['review_iteration']}\n\nBy {reviewer_name(row['reviewer'])}."
    change = OneFileChange(NAME, blob, message, row["id"], row["created_at"])
    commit = commit_file(repo, spread["forked_from"], change)
    repo.text("update-ref", "--no-deref", _ref(row), commit)
    return {"git_commit": commit, "merge_commit": None}


def _drop_commit(world: NodeWorld, operation: Change) -> None:
    row, _, coder = round_rows(operation)
    open_repository(coder["repository_path"]).text("update-ref", "--no-deref", "-d", _ref(row))


def _ref(row: FeedbackRow) -> str:
    return f"refs/crewhall/feedback/{row['id']}"


def _merge(world: NodeWorld, operation: Change) -> Row:
    return {"merge_commit": None} if must_wait(operation) else _merge_now(world, operation)


def must_wait(operation: Operation[Any]) -> bool:
    """Whether an earlier feedback waits to be merged: rounds come in their order."""
    row, _, coder = round_rows(operation)
    return operation.journal.store.one("feedback_waiting", coder=coder["id"], id=row["id"]) is not None


def _merge_now(world: NodeWorld, operation: Change) -> Row:
    row, _, coder = round_rows(operation)
    return {"merge_commit": merge_feedback(world, coder, row, operation.data["git_commit"])}


def merge_feedback(world: NodeWorld, coder: InstanceRow, row: FeedbackRow, commit: str) -> str | None:
    """Merge a feedback's commit into the coder's branch and worktree; None while something is in the way."""
    repo = open_repository(coder["repository_path"], world.stop)
    blob = repo.text("rev-parse", f"{commit}:{NAME}")
    message = f"Merge review feedback, round {row['review_iteration']}"
    change = OneFileChange(NAME, blob, message, f"{row['id']}-merge", row["created_at"], merges=commit)
    try:
        merged = advance(repo, coder["worktree"], coder["branch"], change)
    except Hindered:
        return None
    repo.text("update-ref", "--no-deref", "-d", _ref(row))
    return merged


def _keep_merge(world: NodeWorld, operation: Change) -> None:
    """A merge that the coder may have seen stays, and so does the feedback."""
    if operation.data.get("git_commit") is None:
        return
    _, _, coder = round_rows(operation)
    repo = open_repository(coder["repository_path"], world.stop)
    words = ("merge-base", "--is-ancestor", operation.data["git_commit"], f"refs/heads/{coder['branch']}")
    if repo.git(*words).code == 0:
        raise Happened(_merge_now(world, operation))


def round_rows(operation: Operation[Any]) -> tuple[FeedbackRow, RoundRow, InstanceRow]:
    """The feedback, its round and the coder, of an operation whose subject is the reviewer."""
    store: Store = operation.journal.store
    row = cast(FeedbackRow, store.one("feedback_get", id=operation.data["feedback_id"]))
    spread = cast(RoundRow, store.one("review_by", reviewer=operation.subject))
    return row, spread, cast(InstanceRow, store.one("instance_get", id=spread["parent_instance"]))


SENDING = review.operation(
    "review_feedback",
    steps=(Step("commit", commit_feedback, _drop_commit), Step("merge", _merge, _keep_merge, note_feedback)),
    on_undone=note_feedback_undone,
    **COMMON,
)
