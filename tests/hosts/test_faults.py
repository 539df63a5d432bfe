"""Whatever goes wrong on the way from commit to labels: nothing is made twice, and a failure says what happened."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crewhall.errors import Failure
from crewhall.fakehosts import faults
from crewhall.fakehosts.faults import Fault
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.wire import ATTEMPTS
from tests.hosts.conftest import BRANCH, FILES, HERE, NAMES, HostSite, branch_change, create, delete, failure_of, update
from tests.hosts.descriptions import HostName

Make = Callable[..., HostSite]
LABELS = ("claude-ops", "automated")
CHANGE = branch_change(
    create("checks/new.md"), create("checks/raw.md", b"\0"), update("checks/a.md"), delete("README.md")
)
STEPS: dict[HostName, list[str]] = {
    "github": [
        "GET /branches/main",
        "GET /git/trees/",
        "POST /git/blobs",
        "POST /git/trees",
        "POST /git/commits",
        "POST /git/refs",
        "POST /pulls",
        "POST /issues/1/labels",
    ],
    "gitea": [
        "GET /branches/main",
        "GET /git/trees/",
        "POST /contents",
        "POST /pulls",
        "GET /labels",
        "POST /labels",
        "POST /labels",
        "POST /issues/1/labels",
    ],
}
UNDONE = {
    "429": faults.rate_limited(),
    "primary limit": faults.primary_limit(reset=1),
    "secondary limit": faults.secondary_limit(0),
}
UNCLEAR = {
    "500": Fault(),
    "502 in HTML": faults.bad_gateway(),
    "dropped before": Fault(kind="drop"),
    "dropped after": Fault(kind="drop_after"),
    "500 after": Fault(kind="fail_after"),
    "garbage": faults.garbage(),
}
ONCE = UNDONE | UNCLEAR


def go(host: Host) -> None:
    """The whole way."""
    host.commit(HERE, CHANGE)
    pull = host.create_pull(HERE, BRANCH, "main", "Check the disks", "Why")
    host.label(HERE, pull.number, LABELS)


def is_once(there: HostSite, *, whole: bool = True) -> None:
    """Each thing is there once; of a way that ended early, at the most once."""
    repo, labels = there.repo, sorted(one.name for one in there.repo.label_list)
    assert repo.branches.keys() - {"main", BRANCH} == set() and len(repo.pulls) <= 1
    assert len(set(labels)) == len(labels) <= len(LABELS)
    if BRANCH in repo.branches:
        made = {"checks/new.md": b"new\n", "checks/raw.md": b"\0", "checks/a.md": b"other\n"}
        assert repo.files(BRANCH) == {path: one for path, one in (FILES | made).items() if path != "README.md"}
        assert [one.message for one in repo.log(BRANCH)] == [CHANGE.message, "First commit"]
    if whole:
        (pull,) = repo.pulls.values()
        assert (pull.state, pull.head, sorted(pull.labels), labels) == ("open", BRANCH, sorted(LABELS), sorted(LABELS))


def test_the_way_when_nothing_goes_wrong(pretend: HostSite, host: Host) -> None:
    go(host)
    is_once(pretend)
    asked = [f"{method} {re.sub('(?<=trees/).*', '', path)}" for method, path in pretend.requests]
    assert asked == STEPS[pretend.name]


@pytest.mark.parametrize("case", UNDONE)
def test_every_request_survives_being_refused_once(pretend: HostSite, host: Host, case: str) -> None:
    for step in STEPS[pretend.name]:
        method, path = step.split(" ")
        pretend.fake.fail(replace(UNDONE[case], method=method, path=f"/ops{path}(\\w{{40}})?$"))
    go(host)
    is_once(pretend)
    met = [one.path for one in pretend.fake.exchanges if one.fault]
    assert len(met) == len(STEPS[pretend.name])


@pytest.mark.parametrize("case", UNCLEAR)
@pytest.mark.parametrize("name", NAMES)
def test_each_request_survives_one_fault(place: Make, name: HostName, case: str) -> None:
    for step in range(len(STEPS[name])):
        there = place(name)
        there.fake.fail(replace(UNCLEAR[case], after=step))
        with there.host() as host:
            go(host)
        is_once(there)
        met = [f"{one.method} {one.path}" for one in there.fake.exchanges if one.fault]
        assert len(met) == 1 and STEPS[name][step].replace(" ", " /repos/octo/ops") in met[0]


@pytest.mark.parametrize("name", NAMES)
def test_each_request_gives_up_on_a_host_that_is_down(place: Make, name: HostName) -> None:
    broken = (Fault(times=99, kind="fail_after"), Fault(times=99, kind="drop"))
    for step, fault in ((step, fault) for step in range(len(STEPS[name])) for fault in broken):
        there = place(name)
        there.fake.fail(replace(fault, after=step))
        with there.host() as host:
            failure = failure_of(partial(go, host))
        assert failure.code == "UNAVAILABLE" and failure.message.startswith(there.title)
        assert re.search("fails with 500|does not answer", failure.message), failure.message
        assert len(there.fake.exchanges) - step <= 2 * ATTEMPTS
        is_once(there, whole=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_write_that_always_fails_is_looked_for_and_given_up(place: Make, name: HostName) -> None:
    for step in sorted(set(STEPS[name])):
        method, path = step.split(" ")
        there = place(name)
        there.fake.fail(Fault(times=99, method=method, path=f"/ops{path}(\\w{{40}})?$"))
        with there.host() as host:
            failure = failure_of(partial(go, host))
        failed = [one for one in there.fake.exchanges if one.status == 500]
        assert failure.code == "UNAVAILABLE" and "500" in failure.message and 2 <= len(failed) <= ATTEMPTS
        is_once(there, whole=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_that_never_ends_is_told_as_such(place: Make, name: HostName) -> None:
    for step in range(len(STEPS[name])):
        there = place(name)
        there.fake.fail(faults.rate_limited(times=99, after=step))
        with there.host() as host:
            failure = failure_of(partial(go, host))
        assert failure.code == "LIMIT_EXCEEDED" and failure.fields["retry_after"] == 1
        assert len(there.fake.exchanges) == step + ATTEMPTS
        is_once(there, whole=False)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_made_twice_in_any_storm(place: Make, name: HostName) -> None:
    storms = st.lists(st.tuples(st.integers(0, 14), st.sampled_from(sorted(ONCE))), min_size=2, max_size=12)

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(storms)
    def holds(storm: list[tuple[int, str]]) -> None:
        there, is_whole = place(name), True
        for after, case in storm:
            there.fake.fail(replace(ONCE[case], after=after))
        with there.host() as host:
            try:
                go(host)
            except Failure as failure:
                assert failure.code in ("UNAVAILABLE", "LIMIT_EXCEEDED"), failure.message
                is_whole = False
        is_once(there, whole=is_whole)

    holds()


@pytest.mark.parametrize("name", NAMES)
def test_a_write_that_is_lost_and_then_done_unheard_is_done_once(place: Make, name: HostName) -> None:
    for step in sorted(one for one in set(STEPS[name]) if one.startswith("POST")):
        there, path = place(name), f"/ops{step.removeprefix('POST ')}$"
        for kind in ("drop", "drop_after"):
            there.fake.fail(Fault(method="POST", path=path, kind=kind))
        with there.host() as host:
            go(host)
        is_once(there)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_branch_that_appears_after_we_looked(pretend: HostSite, is_ours: bool) -> None:
    """The write gets no answer and is not to be seen; before it is repeated, it is done after all, or another's is."""
    there, repo = pretend, pretend.repo
    write = "/git/refs" if there.name == "github" else "/contents"
    there.fake.fail(Fault(method="POST", path=f"{write}$", kind="drop"))
    there.fake.fail(faults.rate_limited(method="POST", path=f"{write}$"))

    def appear(seconds: float) -> None:
        made = [one.sha for one in repo.commits.values() if one.message == CHANGE.message]
        if is_ours and made:
            repo.set_branch(BRANCH, made[0])
        else:
            repo.add_commit(BRANCH, {"x.md": b"1"}, CHANGE.message if is_ours else "Check the disks")

    with there.host(waits=appear) as host:
        if is_ours:
            assert host.commit(HERE, CHANGE) == repo.branches[BRANCH]
        else:
            failure = failure_of(lambda: host.commit(HERE, CHANGE))
            assert failure.code == "CONFLICT" and repo.log(BRANCH)[0].message == "Check the disks"
