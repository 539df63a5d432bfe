"""What every host does for us with issues: one suite, over both."""

import pytest

from crewhall.errors import Failure
from crewhall.fakehosts import faults
from crewhall.fakehosts.faults import Fault
from crewhall.outside.hosting import host as host_module
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import HostIssue
from crewhall.outside.hosting.wire import Unsure
from tests.hosts.conftest import HERE, HostSite, failure_of

MARK = "Crewhall-HostIssue: is_1"
BODY = f"The disk fills up.\n\n- now\n- später\n\n{MARK}\n"


def create(host: Host, title: str = "Disk is full", body: str = BODY, labels: tuple[str, ...] = ()) -> HostIssue:
    return host.create_issue(HERE, title, body, labels)


def test_an_issue_is_made_with_its_labels(pretend: HostSite, host: Host) -> None:
    for number in range(60):
        pretend.repo.add_label(f"l{number}")
    made = create(host, labels=("l59", "sehr öde", "l1"))
    kept = pretend.repo.issues[1]
    assert made == HostIssue(1, f"{pretend.fake.url}/octo/ops/issues/1", "Disk is full")
    assert (kept.title, kept.body, kept.author, kept.state) == (made.title, BODY, "octocat", "open")
    assert sorted(kept.labels) == ["l1", "l59", "sehr öde"] and len(pretend.repo.label_list) == 61
    second = create(host, "Other")
    assert second.number == 2 and pretend.repo.issues[2].labels == []


def test_an_issue_is_found_again_by_its_mark(pretend: HostSite, host: Host) -> None:
    assert host.find_issue(HERE, MARK) is None
    made = create(host)
    for number in range(120):
        pretend.repo.add_issue(title=f"Other {number}", body="" if number % 2 else "Crewhall-HostIssue: is_2")
    pretend.repo.add_pull(title="A pull", head="x", body=MARK)
    assert host.find_issue(HERE, MARK) == made
    pretend.repo.set_state(pretend.repo.issues[made.number], "closed")
    assert host.find_issue(HERE, MARK) == made, "a closed one too"
    again = create(host, "Again")
    assert host.find_issue(HERE, MARK) == again, "of two, the newest"


def test_only_the_newest_issues_are_searched(pretend: HostSite, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    size = host.page[1]
    monkeypatch.setattr(host_module, "ISSUES_SEARCHED", 2 * size)
    create(host)
    for number in range(2 * size):
        pretend.repo.add_issue(title=f"Other {number}")
    pretend.fake.exchanges.clear()
    assert host.find_issue(HERE, MARK) is None and len(pretend.fake.exchanges) == 2


UNSURE: dict[str, list[Fault]] = {
    "dropped before": [Fault(kind="drop", method="POST")],
    "dropped after": [Fault(kind="drop_after", method="POST")],
    "failed after": [Fault(kind="fail_after", method="POST")],
    "a proxy's 502": [faults.bad_gateway(method="POST")],
    "twice": [Fault(kind="drop", method="POST"), Fault(kind="drop_after", method="POST")],
    "a rate limit": [faults.rate_limited(method="POST")],
}


@pytest.mark.parametrize("case", UNSURE)
def test_a_host_that_does_not_answer_makes_one_issue(pretend: HostSite, host: Host, case: str) -> None:
    pretend.repo.add_issue(title="Disk is full", body="Another's words")
    for fault in UNSURE[case]:
        pretend.fake.fail(Fault(**{**vars(fault), "times": 1, "path": "/issues$", "gate": faults.Gate()}))
    made = create(host)
    assert made.number == 2 and len(pretend.repo.issues) == 2, "neither doubled nor taken for another"
    assert host.find_issue(HERE, MARK) == made


def test_an_issue_that_may_have_happened_is_said_to(pretend: HostSite, host: Host) -> None:
    pretend.fake.fail(Fault(kind="drop", method="POST", path="/issues$", times=2))
    with pytest.raises(Unsure):
        create(host)
    assert not pretend.repo.issues


def test_a_host_may_change_line_ends_and_is_still_known(pretend: HostSite, host: Host) -> None:
    pretend.fake.fail(Fault(kind="drop", method="POST", path="/issues$"))
    pretend.repo.add_issue(title="Disk is full", body=BODY.replace("\n", "\r\n").strip())
    assert create(host).number == 1 and len(pretend.repo.issues) == 1


@pytest.mark.parametrize("status", [None, 403, 404])
def test_issues_that_are_turned_off_are_a_clear_failure(pretend: HostSite, host: Host, status: int | None) -> None:
    pretend.repo.has_issues = False
    if status:
        pretend.fake.fail(Fault(path="/issues$", method="POST", status=status))
    refused = failure_of(lambda: create(host))
    assert refused.code == "INVALID_STATE" and not pretend.repo.issues
    assert refused.message == f"octo/ops on {pretend.title} has issues turned off" and "settings" in refused.hint
    assert host.find_issue(HERE, MARK) is None
    pretend.fake.fail(Fault(path="/issues$", method="GET", status=404))
    assert failure_of(lambda: host.find_issue(HERE, MARK)).code == "INVALID_STATE"


REFUSED = {403: ("FORBIDDEN", "issues"), 404: ("NOT_FOUND", "Check owner"), 422: ("INVALID_INPUT", "Correct")}


@pytest.mark.parametrize("status", REFUSED)
def test_a_refusal_keeps_its_own_reason(pretend: HostSite, host: Host, status: int) -> None:
    pretend.fake.fail(Fault(path="/issues$", method="POST", status=status))
    refused: Failure = failure_of(lambda: create(host))
    assert (refused.code, REFUSED[status][1] in refused.hint) == (REFUSED[status][0], True)
    assert create(host).number == 1
