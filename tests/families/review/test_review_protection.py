"""The loop's limits as a person changes them, and that no coder ever waits for a reviewer that is gone."""

import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure, Unavailable
from crewhall.journal import LEASE_MS
from tests.conftest import eventually
from tests.families.crew.conftest import PERSON, Site
from tests.families.review.conftest import Loop
from tests.families.review.test_pull_requests import PULL, Landing, make_landing  # noqa: F401 - a fixture
from tests.families.review.test_review_edges import await_end
from tests.families.review.test_reviews import SEEDS_SELECT
from tests.families.work.workflows import sql
from tests.outside.repos import git, refs

pytestmark = pytest.mark.slow
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def write_config(hub: Hub, key: str, value: str) -> None:
    """What a client of the database does."""
    with hub.store.reshape() as (_, execute):
        execute(f"UPDATE user_config SET value = '{value}' WHERE key = 'review.{key}'")


def have_had(loop: Loop, rounds: int) -> None:
    """One round, which counts as the last of so many."""
    loop.round()
    loop.site.is_replayed = False
    with loop.site.hub.store.reshape() as (_, execute):
        execute(f"UPDATE instance_relationships SET review_iteration = {rounds}")


@on_sqlite
def test_a_plain_update_of_a_limit_counts_for_the_next_request(loop: Loop) -> None:
    """With 6 rounds the 5th is granted, though auto_abandon_after is lower; with 5 again the 6th is not."""
    write_config(loop.site.hub, "max_iterations", "6")
    write_config(loop.site.hub, "auto_abandon_after", "1")
    have_had(loop, 4)
    asked = loop.by(loop.coder, "request_review")
    assert (asked["review_iteration"], asked["max_iterations"]) == (5, 6)
    loop.send(asked["review_instance_id"])
    loop.run_chores()
    assert loop.status() == "started" and loop.tree.is_dir(), "a request under the limit never abandons"
    write_config(loop.site.hub, "max_iterations", "5")
    refused = loop.refusal(loop.coder, "request_review").body("request_review")
    assert (refused["current_iteration"], refused["max_iterations"], refused["abandoned"]) == (5, 5, True)
    loop.run_chores()
    assert loop.status() == "abandoned"


@on_sqlite
def test_a_limit_below_the_rounds_that_were_granted_is_named_as_it_is(loop: Loop) -> None:
    have_had(loop, 2)
    write_config(loop.site.hub, "max_iterations", "1")
    refused = loop.refusal(loop.coder, "request_review").body("request_review")
    assert (refused["current_iteration"], refused["max_iterations"]) == (2, 1)
    assert refused["message"] == f"Maximum review iterations (1) reached for agent {loop.coder}"
    assert refused["tool_name"] == "request_review" and "abandoned" not in refused and "abandons_next" not in refused
    assert loop.refusal(loop.coder, "request_review").body("request_review")["abandons_next"] is True


@on_sqlite
def test_a_fraction_of_an_hour_is_a_limit_too(loop: Loop) -> None:
    write_config(loop.site.hub, "timeout_hours", "0.25")
    reviewer = loop.request()
    loop.site.clock.advance(14 * 60)
    loop.run_chores()
    assert loop.status() == "waiting_review"
    loop.site.clock.advance(2 * 60)
    loop.run_chores()
    loop.run_chores()
    assert (loop.status(), loop.status(reviewer)) == ("started", "terminated")


@on_sqlite
def test_a_timeout_that_cannot_be_read_keeps_no_coder_waiting_for_a_dead_reviewer(loop: Loop) -> None:
    write_config(loop.site.hub, "timeout_hours", "soon")
    reviewer = loop.request()
    end_by_kill(loop, reviewer)
    loop.site.hub.chores.run_one("instances")
    loop.site.hub.chores.run_one("reviews")
    assert loop.status() == "started"
    loop.request()
    loop.site.hub.chores.run_one("reviews")
    assert "review.timeout_hours" in str(loop.site.hub.chores.records["reviews"].error), "the doctor shows it"


@on_sqlite
def test_what_the_operator_asked_for_is_lost_as_any_other(loop: Loop) -> None:
    """After three lost in a row a person asks; when that one is lost too, a person asks again."""
    for asks in (loop.request, loop.request, loop.request, lambda: ask_as_operator(loop)):
        end_by_kill(loop, asks())
        loop.run_chores()
        loop.run_chores()
    refused = loop.refusal(loop.coder, "request_review")
    assert refused.code == "INVALID_STATE" and loop.coder in refused.hint and loop.status() == "started"
    loop.send(ask_as_operator(loop))
    loop.run_chores()
    assert loop.by(loop.coder, "request_review")["review_iteration"] == 2


def await_locked(hub: Hub, count: int) -> None:
    """So many transactions wait for a row that another holds."""
    asked = "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    eventually(lambda: sql(hub, asked)[0]["n"] == count)


def ask_as_operator(loop: Loop) -> str:
    return str(loop.site.call("request_review", instance_id=loop.coder)["review_instance_id"])


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_requests_at_two_hubs_at_once_make_one_review(loop: Loop, make_site: Callable[..., Site]) -> None:
    """Both have come as far as their transaction before either may decide."""
    hubs = (loop.site.hub, make_site("other").hub)

    def ask(hub: Hub) -> str:
        try:
            return str(hub.call("request_review", {"instance_id": loop.coder}, PERSON)["review_instance_id"])
        except Failure as failure:
            return failure.code

    with ThreadPoolExecutor(2) as threads:
        with loop.site.hub.own_work() as tx:
            tx.one("hall_lock")
            answers = [threads.submit(ask, hub) for hub in hubs]
            await_locked(hubs[0], 2)
        found = sorted(answer.result() for answer in answers)
    assert found == ["INVALID_STATE", "review-blue-a1"]
    assert sql(loop.site.hub, "SELECT count(*) AS n FROM instance_relationships")[0]["n"] == 1
    assert sorted(loop.site.tmux.panes()) == ["review-blue-a1", loop.coder]


# Each way in which a reviewer can end


def end_by_stop(loop: Loop, reviewer: str) -> None:
    loop.site.call("instance_stop", id=reviewer)


def end_by_abandon(loop: Loop, reviewer: str) -> None:
    loop.site.call("instance_abandon", id=reviewer)


def end_by_kill(loop: Loop, reviewer: str) -> None:
    os.kill(int(loop.instance(reviewer)["pid"]), signal.SIGKILL)
    await_end(loop, reviewer)


def end_by_session(loop: Loop, reviewer: str) -> None:
    loop.site.tmux.kill(reviewer)
    await_end(loop, reviewer)


def end_by_time(loop: Loop, reviewer: str) -> None:
    loop.site.clock.advance(24.1 * 3600)


ENDS = [end_by_stop, end_by_abandon, end_by_kill, end_by_session, end_by_time]


@on_sqlite
@pytest.mark.parametrize("end", ENDS)
def test_a_coder_goes_on_however_its_reviewer_ends(loop: Loop, end: Callable[[Loop, str], None]) -> None:
    reviewer = loop.request()
    end(loop, reviewer)
    loop.run_chores()
    loop.run_chores()
    assert loop.status() == "started" and loop.site.tmux.panes().keys() == {loop.coder}
    assert reviewer in json.dumps(loop.by(loop.coder, "message_list")), "it is told"
    assert sql(loop.site.hub, SEEDS_SELECT.format(loop.coder))[0]["current_iteration"] == 0
    assert loop.by(loop.coder, "request_review")["review_iteration"] == 1


@on_sqlite
@pytest.mark.parametrize("point", ["worktree begins", "files acted", "session acted"])
def test_a_start_that_is_undone_leaves_its_coder_as_it_was(loop: Loop, point: str) -> None:
    before = loop.site.leftovers()
    loop.site.hub.journal.at = failing_at(point)
    assert loop.refusal(loop.coder, "request_review").code == "UNAVAILABLE"
    loop.site.hub.journal.at = lambda here: None
    loop.run_chores()
    assert loop.status() == "started" and loop.site.leftovers() == before
    assert sql(loop.site.hub, "SELECT * FROM instance_relationships") == []
    assert loop.by(loop.coder, "request_review")["review_iteration"] == 1


def failing_at(point: str) -> Callable[[str], None]:
    def fail(here: str) -> None:
        if here == point:
            raise Unavailable("the disk is gone", hint="Bring it back.")

    return fail


class HubDied(BaseException):
    """Nothing that the hub does after this is done."""


def once_at(point: str, act: Callable[[], object]) -> Callable[[str], None]:
    """At this point of an operation, once, something else happens."""
    points = [point]

    def stop(here: str) -> None:
        if here in points:
            points.remove(here)
            act()

    return stop


@on_sqlite
@pytest.mark.parametrize("end", [end_by_kill, end_by_time])
def test_a_reviewer_whose_end_comes_while_its_feedback_is_merged_was_heard(
    loop: Loop, end: Callable[[Loop, str], None]
) -> None:
    reviewer = loop.request()

    def die() -> None:
        end(loop, reviewer)
        loop.run_chores()
        assert loop.status() == "waiting_review", "its feedback is on the way"

    loop.site.hub.journal.at = once_at("commit recorded", die)
    sent = loop.send(reviewer)
    assert (loop.status(), sent["merge_pending"]) == ("started", False)
    loop.run_chores()
    assert loop.status(reviewer) == "terminated" and loop.site.tmux.panes().keys() == {loop.coder}
    (one,) = loop.site.call("review_list")["reviews"]
    assert (one["outcome"], one["is_lost"]) == ("feedback", False)
    assert git(loop.tree, "log", "--format=%s").count("Merge review feedback") == 1


@on_sqlite
def test_a_reviewer_and_a_hub_that_die_while_feedback_is_merged_leave_none(loop: Loop) -> None:
    reviewer, before = loop.request(), refs(loop.site.repository)

    def die() -> None:
        end_by_kill(loop, reviewer)
        raise HubDied

    loop.site.hub.journal.at = once_at("commit recorded", die)
    with pytest.raises(HubDied):
        loop.send(reviewer)
    loop.site.clock.now += LEASE_MS
    loop.site.hub.chores.run_one("settle_review_feedback")
    loop.run_chores()
    loop.run_chores()
    assert (loop.status(), loop.status(reviewer)) == ("started", "terminated")
    assert sql(loop.site.hub, "SELECT * FROM review_feedback") == [] and not (loop.tree / "REVIEW_FEEDBACK.md").exists()
    gone = {name for name in before if name.endswith(reviewer)}
    assert {name: one for name, one in before.items() if name not in gone} == refs(loop.site.repository)


# Two things at once


@on_sqlite
@pytest.mark.parametrize("tool", ["instance_stop", "instance_abandon"])
def test_a_coder_that_ends_while_its_review_begins_stays_so(loop: Loop, tool: str) -> None:
    loop.site.hub.journal.at = once_at("session recorded", lambda: loop.site.call(tool, id=loop.coder))
    reviewer = str(loop.site.call("request_review", instance_id=loop.coder)["review_instance_id"])
    ended = {"instance_stop": "terminated", "instance_abandon": "abandoned"}[tool]
    assert loop.status() == ended
    loop.run_chores()
    loop.run_chores()
    assert (loop.status(), loop.status(reviewer)) == (ended, "terminated") and loop.site.tmux.panes() == {}


@on_sqlite
def test_a_pull_request_waits_for_a_review_that_begins(make_landing: Callable[..., Landing]) -> None:  # noqa: F811
    loop = make_landing()
    codes: list[str] = []

    def pull() -> None:
        codes.append(loop.refusal(loop.coder, "create_pull_request", **PULL).code)

    loop.site.hub.journal.at = once_at("session recorded", pull)
    reviewer = loop.request()
    assert codes == ["INVALID_STATE"] and loop.status() == "waiting_review" and not loop.repo.pulls
    loop.site.hub.journal.at = once_at("commit recorded", pull)
    loop.send(reviewer)
    assert codes == ["INVALID_STATE"] * 2 and loop.status() == "started" and not loop.repo.pulls
    assert loop.open()["branch_name"] == loop.coder and loop.status() == "pr_created"


@on_sqlite
def test_a_reviewer_that_ends_while_its_pull_request_opens_has_approved(make_landing: Callable[..., Landing]) -> None:  # noqa: F811
    loop = make_landing()
    reviewer = loop.request()

    def end() -> None:
        end_by_kill(loop, reviewer)
        loop.run_chores()

    loop.site.hub.journal.at = once_at("push recorded", end)
    loop.open(reviewer)
    (told,) = loop.by(loop.coder, "message_list")["messages"]
    assert "approves your work" in told["body"] and loop.status() == "pr_created"
    assert [one["outcome"] for one in loop.site.call("review_list")["reviews"]] == ["approved"]


@on_sqlite
def test_feedback_that_arrives_while_the_pull_request_opens_never_lands(make_landing: Callable[..., Landing]) -> None:  # noqa: F811
    loop = make_landing()
    lock = loop.site.repository / ".git/worktrees" / loop.coder / "index.lock"
    lock.touch()
    assert loop.send(loop.request())["merge_pending"]

    def merge_it() -> None:
        lock.unlink()
        loop.site.hub.chores.run_one("review_merges")

    loop.site.hub.journal.at = once_at("clean recorded", merge_it)
    refused = loop.refusal(loop.coder, "create_pull_request", **PULL)
    assert refused.code == "INVALID_STATE" and "REVIEW_FEEDBACK.md was put on" in refused.message
    assert (loop.tree / "REVIEW_FEEDBACK.md").exists() and loop.coder not in loop.repo.branches
    assert loop.open()["pr_number"] == 1 and "REVIEW_FEEDBACK.md" not in loop.repo.files(loop.coder)


@on_sqlite
@pytest.mark.parametrize("opens", ["coder", "reviewer"])
def test_no_feedback_is_sent_while_the_pull_request_opens(make_landing: Callable[..., Landing], opens: str) -> None:  # noqa: F811
    loop = make_landing()
    reviewer = loop.request()
    codes: list[str] = []

    def send() -> None:
        codes.append(loop.refusal(reviewer, "send_feedback", feedback="No.", feedback_type="needs_work").code)

    loop.site.hub.journal.at = once_at("push recorded", send)
    loop.open(reviewer if opens == "reviewer" else loop.coder)
    assert codes == ["INVALID_STATE"] and loop.status() == "pr_created"
    (ended,) = loop.site.call("review_list")["reviews"]
    assert ended["outcome"] == {"coder": "withdrawn", "reviewer": "approved"}[opens]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_pull_request_and_a_lost_reviewer_at_once_wait_for_each_other(
    make_landing: Callable[..., Landing],  # noqa: F811
) -> None:
    """Both need the rows of coder and reviewer; the pull request, which comes first, is at the coder's."""
    loop = make_landing()
    hub, reviewer = loop.site.hub, loop.request()
    end_by_kill(loop, reviewer)
    hub.chores.run_one("instances")
    reached, go = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go.wait(20)

    hub.journal.at = once_at("pull acted", hold)
    with ThreadPoolExecutor(2) as threads:
        opening = threads.submit(loop.open)
        assert reached.wait(20)
        with hub.own_work() as tx:
            tx.one("instance_lock", id=loop.coder)
            go.set()
            await_locked(hub, 1)
            losing = threads.submit(hub.chores.run_one, "reviews")
            await_locked(hub, 2)
        assert opening.result()["branch_name"] == loop.coder
        losing.result()
    assert hub.chores.records["reviews"].error is None and loop.status() == "pr_created"
    assert [one["outcome"] for one in loop.site.call("review_list")["reviews"]] == ["withdrawn"]


@on_sqlite
def test_a_reviewer_that_has_answered_approves_no_more(make_landing: Callable[..., Landing]) -> None:  # noqa: F811
    loop = make_landing()
    reviewer = loop.request()
    loop.send(reviewer, feedback_type="suggestions")
    refused = loop.refusal(reviewer, "create_pull_request", **PULL)
    assert refused.code == "INVALID_STATE" and refused.fields["instance_id"] == reviewer
    assert loop.status() == "started" and not loop.repo.pulls
    second = loop.request()
    opened = loop.open(second)
    assert loop.open(second) == opened, "the approval again returns the first"
    assert loop.refusal(second, "send_feedback", feedback="x", feedback_type="needs_work").code == "INVALID_STATE"


@on_sqlite
def test_a_coder_that_was_restarted_is_told_that_its_reviewer_is_gone(loop: Loop) -> None:
    reviewer = loop.request()
    end_by_kill(loop, loop.coder)
    loop.run_chores()
    (loop.site.place(loop.coder).path / "got.json").unlink()
    loop.site.call("instance_restart", id=loop.coder)
    assert "reviews it already" in loop.refusal(loop.coder, "request_review").message, "so it waits"
    end_by_kill(loop, reviewer)
    loop.run_chores()
    told: list[Any] = loop.by(loop.coder, "message_list")["messages"]
    assert loop.status() == "started" and reviewer in json.dumps(told)
    assert loop.by(loop.coder, "request_review")["review_iteration"] == 1
