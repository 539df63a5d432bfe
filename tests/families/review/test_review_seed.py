"""What else seed 000 says of the review loop, word by word: its rows, its values, its defaults."""

from collections.abc import Callable
from pathlib import Path

import pytest

from crewhall.app import Hub
from tests.families.review.conftest import Loop
from tests.families.review.test_pull_requests import PULL, TOKEN, Landing, make_landing  # noqa: F401 - a fixture
from tests.families.work.workflows import sql
from tests.outside.repos import change, commit, git

on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def test_user_config_has_the_seeds_rows(hub: Hub) -> None:
    rows = sql(hub, "SELECT key, value, encrypted FROM user_config WHERE key LIKE 'review.%' ORDER BY key")
    assert [(row["key"], row["value"], bool(row["encrypted"])) for row in rows] == [
        ("review.auto_abandon_after", "5", False),
        ("review.max_iterations", "3", False),
        ("review.timeout_hours", "24", False),
    ]


@pytest.mark.slow
@on_sqlite
def test_a_request_makes_the_seeds_records(loop: Loop) -> None:
    asked = loop.by(loop.coder, "request_review")
    reviewer = asked["review_instance_id"]
    assert {"review_instance_id", "session_name", "worktree_path", "branch_name"} <= asked.keys()
    (instance,) = sql(loop.site.hub, "SELECT type, status, parent FROM instance WHERE id = :id", id=reviewer)
    assert instance == {"type": "review", "status": "started", "parent": loop.coder}
    (row,) = sql(loop.site.hub, "SELECT * FROM instance_relationships")
    names = ("parent_instance", "child_instance", "relationship_type", "review_iteration")
    assert [row[name] for name in names] == [loop.coder, reviewer, "spawned_review", 1]


@pytest.mark.slow
@on_sqlite
def test_each_type_and_priority_of_feedback_is_taken(loop: Loop) -> None:
    given = [("needs_work", "low"), ("suggestions", "high"), ("clarification", "urgent")]
    for kind, priority in given:
        sent = loop.round(feedback_type=kind, priority=priority)
        assert sent["target_instance_id"] == loop.coder and sent["cleanup_status"] == "pending"
        head = (loop.tree / "REVIEW_FEEDBACK.md").read_text().splitlines()[2:4]
        assert head == [f'feedback_type: "{kind}"', f'priority: "{priority}"']
    rounds = loop.site.call("review_get", instance_id=loop.coder)["rounds"]
    assert [(one["feedback_type"], one["priority"]) for one in reversed(rounds)] == given


@pytest.mark.slow
@on_sqlite
def test_feedback_is_kept_whole(loop: Loop) -> None:
    text = "\n".join(f'{number}: ünïcode, `code` and "quotes"' for number in range(7_000))
    sent = loop.send(loop.request(), feedback=text, feedback_type="suggestions")
    (row,) = sql(loop.site.hub, "SELECT * FROM review_feedback")
    assert (row["id"], row["feedback"], row["merge_commit"]) == (sent["feedback_id"], text, sent["git_commit_hash"])
    assert (loop.tree / "REVIEW_FEEDBACK.md").read_text().endswith(f"---\n\n{text}\n")


def put_on_host(loop: Landing, branch: str) -> None:
    url = f"{loop.host.url}/octo/shop.git".replace("//", f"//any:{TOKEN}@")
    git(loop.site.repository, "push", "-q", url, f"main:refs/heads/{branch}")


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize(
    ("of_instance", "given", "base"),
    [("main", None, "main"), ("next", None, "next"), ("main", "next", "next"), ("here", None, "main")],
)
def test_a_pull_request_goes_to_the_base_given_or_the_instances_or_the_hosts(
    make_landing: Callable[..., Landing],  # noqa: F811
    of_instance: str,
    given: str | None,
    base: str,
) -> None:
    loop = make_landing()
    put_on_host(loop, "next")
    for name in ("next", "here"):
        git(loop.site.repository, "branch", name)
    coder = loop.site.start("Go on", title="on", base_branch=of_instance)
    tree = Path(loop.instance(coder)["worktree"])
    change(tree / "file-0", "on")
    commit(tree, "on")
    more = {"base_branch": given} if given else {}
    opened = loop.open(coder, **more)
    pull = loop.repo.pulls[opened["pr_number"]]
    assert (pull.base, pull.title, opened["branch_name"]) == (base, PULL["title"], coder)
    assert PULL["description"] in pull.body and str(pull.number) in opened["pr_url"]
