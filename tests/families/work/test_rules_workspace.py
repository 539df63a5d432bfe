"""The rules of workspaces by themselves: branches from any name, how one ends, and who may end it."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.errors import Failure
from crewhall.families.work.task.model import TaskHeld
from crewhall.families.work.workspace.rules import branch_for, refuse_end, refuse_others_place, refuse_place
from crewhall.identity import OPERATOR, Actor

NAMES = [
    ("Add the login page", "add-the-login-page-abc123"),
    ("../../x", "x-abc123"),
    ("-rf", "rf-abc123"),
    ("a/b", "a-b-abc123"),
    (".lock", "lock-abc123"),
    ("x.lock", "x-lock-abc123"),
    ("Größe ändern", "gr-e-ndern-abc123"),
    ("漢字 😀", "task-abc123"),
    ("", "task-abc123"),
    ("@{-1}", "1-abc123"),
    ("HEAD", "head-abc123"),
    ("l" * 200, "l" * 40 + "-abc123"),
    ("a" * 39 + " b", "a" * 39 + "-abc123"),
    ("a\nb\0c", "a-b-c-abc123"),
]


@pytest.mark.parametrize(("name", "branch"), NAMES)
def test_a_tasks_branch_has_its_name_in_plain_letters_and_the_end_of_its_id(name: str, branch: str) -> None:
    assert branch_for({"id": "tk_xyz789abc123", "name": name, "status": "pending", "waits_for": 0}) == branch


@given(st.text(max_size=300))
def test_any_name_makes_a_branch_that_git_and_a_directory_take(name: str) -> None:
    branch = branch_for({"id": "tk_xyz789abc123", "name": name, "status": "pending", "waits_for": 0})
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*-abc123", branch) and len(branch) <= 47


ENDS: list[tuple[str, str, str | None, str | None]] = [
    ("active", "merged", "abcd", None),
    ("active", "abandoned", None, None),
    ("active", "active", None, None),
    ("merged", "merged", "abcd", None),
    ("abandoned", "abandoned", None, None),
    ("active", "merged", None, "INVALID_INPUT"),
    ("active", "abandoned", "abcd", "INVALID_INPUT"),
    ("active", "active", "abcd", "INVALID_INPUT"),
    ("merged", "abandoned", None, "INVALID_TRANSITION"),
    ("merged", "active", None, "INVALID_TRANSITION"),
    ("abandoned", "merged", "abcd", "INVALID_TRANSITION"),
    ("abandoned", "active", None, "INVALID_TRANSITION"),
]


def code_of(check: Any, *given: Any) -> str | None:
    try:
        check(*given)
    except Failure as failure:
        assert failure.message and failure.hint
        return failure.code
    return None


@pytest.mark.parametrize(("before", "after", "commit", "code"), ENDS)
def test_a_workspace_ends_once_and_a_merge_names_its_commit(
    before: str, after: str, commit: str | None, code: str | None
) -> None:
    assert code_of(refuse_end, {"id": "ws_1", "status": before}, after, commit) == code


ADA = Actor("agent", "ag_ada", "worker", proof="token")
COORDINATOR = Actor("agent", "ag_cleo", "coordinator", proof="token")
BOBS: TaskHeld = {"id": "tk_1", "claimed_by": "ag_bob"}


@pytest.mark.parametrize(
    ("actor", "held", "code"),
    [
        (ADA, None, None),
        (ADA, BOBS, "FORBIDDEN"),
        (COORDINATOR, BOBS, None),
        (OPERATOR, BOBS, None),
    ],
)
def test_a_worker_does_not_end_the_place_in_which_another_is_at_work(
    actor: Actor, held: TaskHeld | None, code: str | None
) -> None:
    assert code_of(refuse_others_place, "workspace ws_1", held, actor) == code


@pytest.mark.parametrize(
    ("path", "by_operator", "by_agent"),
    [
        ("/r/shop-worktrees/a", None, None),
        ("/r/shop-worktrees/ab", None, None),
        ("/r/shop-worktrees/used", None, None),  # whether it is free is asked of the hall
        ("/r/shop-worktrees/used-too", None, None),
        ("/r/shop-worktrees/used/a", "CONFLICT", "CONFLICT"),
        ("/r/shop-worktrees/used/deep/a", "CONFLICT", "CONFLICT"),
        ("/mine/a", "CONFLICT", "CONFLICT"),
        ("/r/shop/.git", "INVALID_INPUT", "INVALID_INPUT"),
        ("/r/shop/.git/a", "INVALID_INPUT", "INVALID_INPUT"),
        ("/r/shop/.gitty", None, "FORBIDDEN"),
        ("/r/shop-worktrees/deep/a", None, "FORBIDDEN"),
        ("/r/shop-worktrees", None, "FORBIDDEN"),
        ("/r/a", None, "FORBIDDEN"),
    ],
)
def test_a_new_worktree_is_in_no_other_and_an_agents_is_right_beside_the_others(
    path: str, by_operator: str | None, by_agent: str | None
) -> None:
    where = (path, "/r/shop-worktrees", "/r/shop/.git", ["/mine", "/r/shop-worktrees/used"])
    assert [code_of(refuse_place, actor, *where) for actor in (OPERATOR, COORDINATOR)] == [by_operator, by_agent]
