"""Who may call the four tools of the review loop, and for whom: refused calls change nothing anywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewhall.errors import Failure
from crewhall.identity import OPERATOR, Actor, Credentials
from tests.conftest import eventually
from tests.families.crew.conftest import PERSON
from tests.families.review.test_pull_requests import PULL, Landing, make_landing  # noqa: F401 - a fixture
from tests.families.work.workflows import all_rows, sql
from tests.outside.repos import commit, fingerprint, refs

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]
GIVEN: dict[str, dict[str, Any]] = {
    "request_review": {},
    "send_feedback": {"feedback": "Too dark.", "feedback_type": "needs_work"},
    "create_pull_request": PULL,
    "create_issues": {"issues": [{"title": "Blue"}]},
}
NOBODY = "work-nobody-a1"


class Stage:
    """Two coders, one with a reviewer, a planner and others; every call here would be fine from the right one."""

    def __init__(self, loop: Landing) -> None:
        self.loop, self.hub = loop, loop.site.hub
        self.coder = loop.coder
        self.waiting = loop.site.start("Make it red", title="red")
        commit_in(Path(loop.instance(self.waiting)["worktree"]))
        self.reviewer = str(loop.by(self.waiting, "request_review")["review_instance_id"])
        self.planner = loop.site.start("Plan it", type="planning", title="plan")
        self.ids = {"coding": self.coder, "waiting": self.waiting, "review": self.reviewer, "planning": self.planner}
        self.actors = {name: self.identify(self.token(one)) for name, one in self.ids.items()}
        others = {"worker": {}, "coordinator": {"role": "coordinator"}, "stranger": {"type": "coding"}}
        for name, more in others.items():
            made = loop.site.call("agent_token_create", name=name, **more)
            self.actors[name] = self.identify(made["token"])
        self.actors |= {"operator": PERSON, "unproven": OPERATOR}

    def token(self, instance_id: str) -> str:
        return str(self.loop.site.received(instance_id)["environment"]["CREWHALL_TOKEN"])

    def identify(self, token: str) -> Actor:
        return self.hub.identify(Credentials(token=token))

    def code(self, tool: str, who: str, instance_id: str | None) -> str:
        """The code of the failure that such a call meets."""
        given = {"instance_id": instance_id} if instance_id else {}
        try:
            self.hub.call(tool, GIVEN[tool] | given, self.actors[who])
        except Failure as failure:
            assert failure.message and failure.hint
            return failure.code
        return "done"

    def everything(self) -> dict[str, Any]:
        """The hall, git, the trees, the sessions and the host."""
        host = self.loop.repo
        return {
            "rows": all_rows(self.hub),
            "refs": refs(self.loop.site.repository),
            "trees": fingerprint(Path(f"{self.loop.site.repository}-worktrees")),
            "sessions": sorted(self.loop.site.tmux.panes()),
            "host": (dict(host.branches), list(host.pulls), list(host.issues)),
        }


def commit_in(tree: Path) -> None:
    (tree / "colour.txt").write_text("red")
    commit(tree, "make it red")


@pytest.fixture
def stage(make_landing: Callable[..., Landing]) -> Stage:  # noqa: F811
    return Stage(make_landing())


# Whose call it is, for whom it is made (None: instance_id is left out), and the code that it meets.
REFUSED: dict[str, list[tuple[str, str | None, str]]] = {
    "request_review": [
        ("review", None, "FORBIDDEN"),
        ("planning", None, "FORBIDDEN"),
        ("worker", None, "FORBIDDEN"),
        ("coordinator", None, "FORBIDDEN"),
        ("stranger", None, "FORBIDDEN"),
        ("worker", "coding", "FORBIDDEN"),
        ("coordinator", "coding", "FORBIDDEN"),
        ("stranger", "coding", "FORBIDDEN"),
        ("waiting", "coding", "FORBIDDEN"),
        ("review", "coding", "FORBIDDEN"),
        ("review", "waiting", "FORBIDDEN"),
        ("planning", "coding", "FORBIDDEN"),
        ("unproven", "coding", "FORBIDDEN"),
        ("operator", None, "INVALID_INPUT"),
        ("operator", "review", "FORBIDDEN"),
        ("operator", "planning", "FORBIDDEN"),
        ("operator", NOBODY, "NOT_FOUND"),
        ("operator", "blue", "INVALID_INPUT"),
        ("waiting", None, "INVALID_STATE"),
    ],
    "send_feedback": [
        ("coding", None, "FORBIDDEN"),
        ("waiting", None, "FORBIDDEN"),
        ("planning", None, "FORBIDDEN"),
        ("worker", None, "FORBIDDEN"),
        ("stranger", None, "FORBIDDEN"),
        ("worker", "review", "FORBIDDEN"),
        ("coordinator", "review", "FORBIDDEN"),
        ("stranger", "review", "FORBIDDEN"),
        ("coding", "review", "FORBIDDEN"),
        ("waiting", "review", "FORBIDDEN"),
        ("review", "coding", "FORBIDDEN"),
        ("review", "waiting", "FORBIDDEN"),
        ("unproven", "review", "FORBIDDEN"),
        ("operator", None, "INVALID_INPUT"),
        ("operator", "coding", "FORBIDDEN"),
        ("operator", "planning", "FORBIDDEN"),
        ("operator", NOBODY, "NOT_FOUND"),
    ],
    "create_pull_request": [
        ("worker", None, "FORBIDDEN"),
        ("coordinator", None, "FORBIDDEN"),
        ("stranger", None, "FORBIDDEN"),
        ("worker", "coding", "FORBIDDEN"),
        ("coordinator", "review", "FORBIDDEN"),
        ("stranger", "coding", "FORBIDDEN"),
        ("waiting", "coding", "FORBIDDEN"),
        ("review", "coding", "FORBIDDEN"),
        ("review", "waiting", "FORBIDDEN"),
        ("planning", "coding", "FORBIDDEN"),
        ("unproven", "coding", "FORBIDDEN"),
        ("operator", None, "INVALID_INPUT"),
        ("operator", NOBODY, "NOT_FOUND"),
    ],
    "create_issues": [
        ("coding", None, "FORBIDDEN"),
        ("review", None, "FORBIDDEN"),
        ("worker", None, "FORBIDDEN"),
        ("coordinator", None, "FORBIDDEN"),
        ("stranger", None, "FORBIDDEN"),
        ("worker", "planning", "FORBIDDEN"),
        ("coding", "planning", "FORBIDDEN"),
        ("planning", "coding", "FORBIDDEN"),
        ("unproven", "planning", "FORBIDDEN"),
        ("operator", None, "INVALID_INPUT"),
        ("operator", "coding", "FORBIDDEN"),
        ("operator", "review", "FORBIDDEN"),
        ("operator", NOBODY, "NOT_FOUND"),
    ],
}


def test_what_a_caller_may_not_do_is_refused_and_changes_nothing(stage: Stage) -> None:
    before = stage.everything()
    rows = [(tool, *row) for tool, rows in REFUSED.items() for row in rows]
    found = [(*row[:3], stage.code(row[0], row[1], stage.ids.get(row[2] or "", row[2]))) for row in rows]
    assert [one for one, row in zip(found, rows, strict=True) if one != row] == []
    assert stage.everything() == before


@pytest.mark.parametrize("end", ["instance_stop", "instance_abandon"])
def test_the_token_of_an_instance_that_has_ended_opens_nothing(stage: Stage, end: str) -> None:
    """Neither the token, nor a call that was identified before the end."""
    ended = ("coding", "review", "planning")
    tokens = [stage.token(stage.ids[kind]) for kind in ended]
    for kind in ended:
        stage.loop.site.call(end, id=stage.ids[kind])
    before = stage.everything()
    for token in tokens:
        with pytest.raises(Failure) as refused:
            stage.identify(token)
        assert (refused.value.code, refused.value.status) == ("FORBIDDEN", 401)
    late = {(tool, kind): stage.code(tool, kind, None) for tool in GIVEN for kind in ended}
    assert set(late.values()) == {"FORBIDDEN", "INVALID_STATE"}, late
    assert stage.everything() == before


def test_the_operator_does_for_instances_what_they_may_do(stage: Stage) -> None:
    done = [
        ("create_issues", "planning"),
        ("request_review", "coding"),
        ("send_feedback", "review"),
        ("create_pull_request", "waiting"),
    ]
    assert [stage.code(tool, "operator", stage.ids[kind]) for tool, kind in done] == ["done"] * 4
    status = {kind: stage.loop.status(stage.ids[kind]) for kind in ("coding", "waiting")}
    assert status == {"coding": "waiting_review", "waiting": "pr_created"}
    words = "SELECT tool_name, instance_id FROM mcp_events WHERE actor = 'operator' AND success = 1 AND tool_name IN ("
    asked = words + ", ".join(f"'{tool}'" for tool in GIVEN) + ")"
    rows = eventually(lambda: len(rows := sql(stage.hub, asked)) == 4 and rows)
    assert {(one["tool_name"], one["instance_id"]) for one in rows} == {(tool, stage.ids[kind]) for tool, kind in done}


def test_a_planners_branch_gets_a_pull_request_too(stage: Stage) -> None:
    tree = Path(stage.loop.instance(stage.planner)["worktree"])
    (tree / "plan.md").write_text("# Plan\n")
    commit(tree, "a plan")
    opened = stage.loop.by(stage.planner, "create_pull_request", **PULL)
    assert opened["branch_name"] == stage.planner and stage.loop.status(stage.planner) == "pr_created"
    assert "plan.md" in stage.loop.repo.files(stage.planner)
