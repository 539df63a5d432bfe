"""A failure at any step leaves no branch without a pull, and says what happened."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.fakehosts.host import Exchange
from crewhall.stop import Stop
from crewhall.store.transaction import Row
from tests.conftest import Clock, eventually
from tests.families.pulls.conftest import (
    BRANCH,
    FILE,
    PREFIX,
    TOKENS,
    Host,
    Site,
    bridge,
    on_both,
    set_up,
    writes,
)
from tests.sizes import size

pytestmark = pytest.mark.slow

BINARY = {"path": "checks/binary.md", "content": "AAEC", "encoding": "base64"}
FILES = [FILE, BINARY, {"path": "checks/disk.md", "content": "new\n", "action": "update"}]
BAD: dict[str, dict[str, Any]] = {
    "500": {"status": 500, "body": {"message": "the disk is full"}},
    "403": {"status": 403, "body": {"message": "protected"}},
    "422": {"status": 422, "body": {"message": "unfit"}},
    "drop": {"kind": "drop"},
}
CODES = {"500": {"UNAVAILABLE"}, "403": {"FORBIDDEN"}, "422": {"INVALID_INPUT", "CONFLICT"}, "drop": {"UNAVAILABLE"}}
WORDS = {"500": "fail", "403": "protected", "422": "unfit", "drop": "not answer"}
UNDONE = "No pull was opened, and no branch is left"
LATE = f"may still make the branch '{BRANCH}'. The hub looks again, and removes it"
STAYS = "Until then the branch stays, unless you delete it"


def good_run(site: Site) -> list[Exchange]:
    """What a host is asked when nothing goes wrong; the site then has a new repository."""
    site.create(files=FILES)
    said = list(site.host.exchanges)
    site.move_to_new_repository()
    return said


def settle_all_rows(site: Site, clock: Clock) -> None:
    """The chore has looked, again and again while faults are left, until nothing is half open."""
    for _ in range(30):
        if not half_open(site):
            return
        site.settle(clock)


def half_open(site: Site) -> list[Row]:
    return [row for row in site.rows() if row["state"] in ("opening", "left")]


def is_clean(site: Site) -> bool:
    """In each repository, each branch has its open pull, and the hall knows of each and of nothing else."""
    repos = site.host.repositories.values()
    branches = [(one.name, name) for one in repos for name in one.branches if name.startswith(PREFIX)]
    heads = [(one.name, pull.head) for one in repos for pull in one.pulls.values() if pull.state == "open"]
    known = [(row["name"], row["branch"]) for row in site.rows() if row["state"] == "open"]
    return sorted(branches) == sorted(heads) == sorted(known) and not half_open(site)


@pytest.mark.parametrize("bad", BAD)
def test_whatever_step_fails_for_good_no_branch_is_left(site: Site, clock: Clock, bad: str) -> None:
    steps = good_run(site)
    is_noted = False  # from the look at the base on there is a row
    for step in steps:
        site.fail(step, times=5, **BAD[bad])
        is_noted |= "/branches/main" in step.path
        if "/labels" in step.path:
            made = site.create(files=FILES)
            assert (site.branches(), made["labels"], len(made["warnings"])) == ([BRANCH], [], 1), step.path
            assert "claude-ops, automated" in made["warnings"][0] and WORDS[bad] in made["warnings"][0]
        else:
            refusal = site.refusal(files=FILES)
            assert refusal.code in CODES[bad] and WORDS[bad] in refusal.message, (step.path, refusal.message)
            is_late = bad in ("500", "drop") and step.method == "POST"
            assert refusal.message.endswith(LATE if is_late else UNDONE) is is_noted, (step.path, refusal.message)
            assert (site.branches(), site.open_heads()) == ([], []), step.path
            assert any(row["name"] == site.name for row in site.rows()) is is_late, step.path
        site.move_to_new_repository()
    settle_all_rows(site, clock)
    assert is_clean(site)
    assert site.pull_events().count("pull.failed") == sum(1 for step in steps if "/labels" not in step.path) - 2


@pytest.mark.parametrize("how", ["drop_after", "fail_after"])
def test_what_the_host_did_without_saying_so_is_found_and_not_done_twice(site: Site, clock: Clock, how: str) -> None:
    for step in writes(good_run(site)):
        site.fail(step, times=1, kind=how)
        made = site.create(files=FILES)
        assert (made["branch"], made["warnings"], len(site.repo.log(BRANCH))) == (BRANCH, [], 2), step.path
        assert (list(site.repo.pulls), sorted(site.repo.pulls[1].labels)) == ([1], ["automated", "claude-ops"])
        assert len(site.repo.label_list) == 2, step.path
        again = site.refusal(files=FILES)
        told = {"number": 1, "url": made["url"], "branch": BRANCH}
        assert (again.code, again.fields, made["url"] in again.message) == ("CONFLICT", told, True)
        site.move_to_new_repository()
    assert is_clean(site)


def test_a_host_that_never_answers_and_has_the_pull_is_believed(site: Site) -> None:
    site.fail(("POST", "/pulls$"), kind="drop_after")
    assert site.create()["number"] == 1
    assert (is_clean(site), len(site.repo.pulls)) == (True, 1)


@pytest.mark.parametrize("how", [{"status": 500}, {"status": 403, "body": {"message": "protected"}}, {"kind": "drop"}])
def test_a_branch_that_could_not_be_removed_is_told_and_removed_later(
    site: Site, clock: Clock, how: dict[str, Any]
) -> None:
    site.fail(("POST", "/pulls$"), status=422, body={"message": "unfit"})
    times = 1 if how.get("status") == 403 else 5
    site.fail(("DELETE", ""), times=2 * times, **how)
    refusal = site.refusal()
    assert (refusal.code, refusal.fields["branch"]) == ("INVALID_INPUT", BRANCH)
    assert f"unfit. The branch '{BRANCH}' may be left" in refusal.message
    assert (site.branches(), [row["state"] for row in site.rows()]) == ([BRANCH], ["left"])
    site.settle(clock)
    assert site.branches() == [BRANCH], "the host is not back yet"
    settle_all_rows(site, clock)
    assert (site.branches(), site.rows(), site.pull_events()) == ([], [], ["pull.failed"])


def test_a_branch_that_is_left_stands_in_nobodys_way(site: Site, clock: Clock) -> None:
    site.fail(("POST", "/pulls$"), times=1, status=422, body={"message": "unfit"})
    site.fail(("DELETE", ""), times=1, status=403, body={"message": "protected"})
    site.refusal()
    assert site.create()["branch"] == f"{BRANCH}-2"
    settle_all_rows(site, clock)
    assert (site.branches(), is_clean(site)) == ([f"{BRANCH}-2"], True)


def test_what_a_host_does_long_after_nobody_waits_is_removed_too(site: Site, clock: Clock) -> None:
    began = clock.now
    site.fail(("POST", "/(git/refs|contents)$"), kind="drop")
    assert site.refusal().message.endswith(LATE)
    while half_open(site):
        (row,) = site.rows()
        site.repo.add_commit(BRANCH, {FILE["path"]: b"1"}, f"Add\n\nCrewhall-Pull: {row['id']}")  # now it is done
        site.settle(clock)
        assert site.branches() == []
    assert (site.rows(), site.pull_events(), clock.now >= began + 900_000) == ([], ["pull.failed"], True)


@on_both
@pytest.mark.parametrize("step", [("POST", "/(git/refs|contents)$"), ("DELETE", "")])
def test_what_is_late_or_left_stays_where_the_client_alone_has_a_token_and_the_error_says_so(
    make_hub: Callable[..., Hub], clock: Clock, host: Host, kind: str, step: tuple[str, str]
) -> None:
    site = Site(make_hub(clock=clock, **set_up(kind, host, token="")), host, kind)
    own: dict[str, Any] = {"origin": bridge(CLAUDEOPS_TIER="3", **{f"{kind.upper()}_TOKEN": TOKENS[kind]})}
    if step[0] == "DELETE":
        site.fail(("POST", "/pulls$"), times=1, status=422, body={"message": "unfit"})
        site.fail(step, times=1, status=403, body={"message": "protected"})
    else:
        site.fail(step, times=5, kind="drop")
    message = site.refusal(**own).message
    assert message.endswith(STAYS) and host.url in message and BRANCH in message, message
    if step[0] == "POST":
        (row,) = site.rows()
        site.repo.add_commit(BRANCH, {FILE["path"]: b"1"}, f"Add\n\nCrewhall-Pull: {row['id']}")
    for _ in range(3):
        site.settle(clock)
    assert site.branches() == [BRANCH]
    with suppress(Failure):  # the fault may go on; the next proposal looks all the same
        site.create(**own, title="Another", files=[{"path": "checks/other.md", "content": "x"}])
    assert BRANCH not in site.branches()


# Calls that end before they are done


def call_and(site: Site, stop: Stop, until: Callable[[], bool], end: Callable[[], None]) -> dict[str, Any] | Failure:
    """What comes of a call that is ended from outside at some moment."""
    found: list[dict[str, Any] | Failure] = []

    def call() -> None:
        try:
            found.append(site.create(files=FILES, stop=stop))
        except Failure as failure:
            found.append(failure)

    thread = threading.Thread(target=call)
    thread.start()
    eventually(until)
    end()
    thread.join(20)
    return found[0]


def test_a_call_that_is_cancelled_while_the_host_works_leaves_no_branch(site: Site, clock: Clock) -> None:
    for step in writes(good_run(site)):
        site.fail(step, times=1, kind="slow", seconds=60)
        stop, seen = Stop(), len(site.host.exchanges)
        came = lambda seen=seen: any(one.fault for one in site.host.exchanges[seen:])  # noqa: E731
        ended = call_and(site, stop, came, stop.cancel)
        if site.open_heads():  # it was done by then: it is too late
            assert isinstance(ended, dict) and ended["number"] == 1 and "cancelled" in ended["warnings"][0], step.path
        else:
            assert isinstance(ended, Failure) and ended.code == "CANCELLED", step.path
            assert ended.message.endswith(LATE), step.path
        assert site.branches() == site.open_heads(), step.path
        site.move_to_new_repository()
    settle_all_rows(site, clock)
    assert is_clean(site)


def test_a_call_whose_time_is_over_leaves_no_branch(site: Site, clock: Clock) -> None:
    for step in ("/(git/refs|contents)$", "/pulls$"):
        site.fail(("POST", step), times=1, kind="slow", seconds=60)
        site.fail(("POST", "/issues/"), times=1, kind="slow", seconds=60)
        try:
            assert "time is over" in site.create(stop=Stop(0.5))["warnings"][0]
        except Failure as failure:
            assert (failure.code, failure.message.endswith(LATE)) == ("TIMED_OUT", True)
        assert site.branches() == site.open_heads() == ([] if "refs" in step else [BRANCH])
        site.move_to_new_repository()
    settle_all_rows(site, clock)
    assert is_clean(site)


@pytest.mark.parametrize("step", [1, 2])
def test_a_call_that_is_cancelled_between_two_steps_leaves_no_branch(site: Site, step: int) -> None:
    stop = Stop()
    refusal = site.refusal(stop=stop, progress=lambda done, total, text: stop.cancel() if done == step else None)
    assert (refusal.code, refusal.message.endswith(UNDONE)) == ("CANCELLED", True)
    assert (site.branches(), site.rows(), site.pull_events()) == ([], [], ["pull.failed"])


# Anything at all


FAULTS = st.sampled_from(
    [
        {"kind": "answer", "status": 500},
        {"kind": "answer", "status": 403, "body": {"message": "protected"}},
        {"kind": "answer", "status": 422, "body": {"message": "unfit"}},
        {"kind": "answer", "status": 429, "headers": {"retry-after": "0"}},
        {"kind": "answer", "status": 502, "body": "<html>"},
        {"kind": "drop"},
        {"kind": "drop_after"},
        {"kind": "fail_after"},
    ]
)
PLACES = st.sampled_from(["/branches/", "/git/trees", "/git/refs", "/contents$", "/pulls$", "/.*labels", "DELETE", "$"])
SEQUENCES = st.lists(st.tuples(PLACES, FAULTS, st.integers(1, 7), st.integers(0, 2)), max_size=4)


@settings(max_examples=size(6, 12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequence=SEQUENCES, calls=st.integers(1, 3))
def test_after_any_faults_each_branch_has_its_pull(
    site: Site, clock: Clock, sequence: list[tuple[str, dict[str, Any], int, int]], calls: int
) -> None:
    site.move_to_new_repository()
    for place, fault, times, after in sequence:
        where = ("DELETE", "") if place == "DELETE" else ("", place)
        site.fail(where, times=times, after=after, **fault)
    for _ in range(calls):
        try:
            site.create()
        except Failure as failure:
            assert failure.message and failure.hint
    assert len(site.open_heads()) <= 1
    settle_all_rows(site, clock)
    assert is_clean(site)
