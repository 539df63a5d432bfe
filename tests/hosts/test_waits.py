"""Waiting for a host: as long as it asks, within the call's time, and no longer once the call is cancelled."""

import threading
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from time import time

import pytest

from crewhall.errors import Failure
from crewhall.fakehosts import faults
from crewhall.fakehosts.faults import Fault
from crewhall.outside.hosting import wire
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.wire import ATTEMPTS
from crewhall.stop import Stop
from tests.hosts.conftest import BRANCH, HERE, TINY, HostSite, failure_of, response_fault

NOW = 2_000_000_000
WAITS: dict[str, tuple[Fault, float]] = {
    "429 with seconds": (response_fault({}, 429, retry_after=7), 7),
    "429 with a fraction": (response_fault({}, 429, retry_after="1.5"), 1.5),
    "429 with a date": (response_fault({}, 429, retry_after=formatdate(NOW, usegmt=True)), NOW),
    "429 with a date long ago": (response_fault({}, 429, retry_after=formatdate(1, usegmt=True)), 0),
    "429 without": (response_fault({}, 429), 0),
    "429 with nonsense": (response_fault({}, 429, retry_after="soon"), 60),
    "429 with no number": (response_fault({}, 429, retry_after="inf"), 60),
    "429 with less than nothing": (response_fault({}, 429, retry_after="-5"), 60),
    "429 with an odd date": (response_fault({}, 429, retry_after="Mon, 01 Jan 99999999999999999999 00:00:00 GMT"), 60),
    "403 with seconds": (response_fault({}, 403, retry_after=30), 30),
    "403 in words": (response_fault({"message": "You have exceeded a secondary rate limit."}, 403), 60),
    "403 of old": (response_fault({"message": "You have triggered an abuse detection mechanism."}, 403), 60),
    "403 with none left": (response_fault({}, 403, x_ratelimit_remaining=0, x_ratelimit_reset=NOW), NOW),
    "429 with none left": (response_fault({}, 429, x_ratelimit_remaining=0, x_ratelimit_reset=NOW), NOW),
    "none left until long ago": (response_fault({}, 403, x_ratelimit_remaining=0, x_ratelimit_reset=12), 0),
    "none left until nonsense": (response_fault({}, 403, x_ratelimit_remaining=0, x_ratelimit_reset="soon"), 60),
    "both said": (response_fault({}, 403, retry_after=5, x_ratelimit_remaining=0, x_ratelimit_reset=NOW), 5),
}


@pytest.mark.parametrize("case", WAITS)
def test_as_long_as_the_host_asks(pretend: HostSite, case: str) -> None:
    """The wait is told before it begins; here it ends the call, so that nobody waits."""
    answer, asked = WAITS[case]
    expected = asked - time() if asked == NOW else asked
    stop, told = Stop(None), list[float]()

    def waits(seconds: float) -> None:
        told.append(seconds)
        stop.cancel()

    answer.times = 1
    pretend.fake.fail(answer)
    with pretend.host(stop=stop, waits=waits) as host:
        assert failure_of(lambda: host.repository("octo", "ops")).code == "CANCELLED"
    assert told == [pytest.approx(expected, abs=120 if expected > 1000 else 0.01)]
    assert len(pretend.fake.exchanges) == 1


@pytest.mark.parametrize("limit", [faults.rate_limited(3600), faults.secondary_limit(3600), faults.secondary_limit()])
@pytest.mark.parametrize("is_write", [False, True])
def test_a_wait_beyond_the_calls_time_is_refused_at_once(pretend: HostSite, limit: Fault, is_write: bool) -> None:
    told, expected = list[float](), 3600 if limit.headers else 60
    limit.times = 1
    pretend.fake.fail(limit)
    with pretend.host(stop=Stop(20.0), waits=told.append) as host:
        act = (lambda: host.create_pull(HERE, "a", "main", "T", "")) if is_write else (lambda: host.head(HERE, "main"))
        refused = failure_of(act)
    assert (
        refused.code == "LIMIT_EXCEEDED"
        and refused.fields["retry_after"] == expected
        and str(expected) in refused.message
    )
    assert told == [] and len(pretend.fake.exchanges) == 1


def test_a_plain_403_is_no_limit(pretend: HostSite, host: Host) -> None:
    pretend.fake.fail(response_fault({"message": "Must have admin rights"}, 403, x_ratelimit_remaining=4999))
    assert failure_of(lambda: host.repository("octo", "ops")).code == "FORBIDDEN"


def test_pauses_grow_and_are_told(pretend: HostSite) -> None:
    told, pauses = list[str](), list[float]()
    pretend.fake.fail(Fault(times=ATTEMPTS - 1, status=503))
    with pretend.host(tell=told.append, waits=pauses.append) as host:
        host.repository("octo", "ops")
    assert pauses == [TINY * 2**number for number in range(ATTEMPTS - 1)]
    assert told == [f"{pretend.title} answered 503; waiting 0 s before the next attempt"] * (ATTEMPTS - 1)


@pytest.mark.parametrize("is_write", [False, True])
def test_a_cancelled_call_leaves_a_slow_request_at_once(pretend: HostSite, is_write: bool) -> None:
    stop = Stop(None)
    pretend.fake.fail(Fault(kind="slow", seconds=600))
    with ThreadPoolExecutor(1) as pool, pretend.host(stop=stop) as host:
        act = (lambda: host.create_pull(HERE, "a", "main", "T", "")) if is_write else (lambda: host.head(HERE, "main"))
        late = pool.submit(act)
        assert pretend.fake.wait_for(1)
        stop.cancel()
        failure = late.exception(5)
    assert isinstance(failure, Failure) and failure.code == "CANCELLED"
    assert host.session.is_unanswered == is_write


def test_a_cancelled_call_leaves_a_long_pause_at_once(pretend: HostSite) -> None:
    stop, waits = Stop(None), threading.Event()
    pretend.fake.fail(faults.rate_limited(3600))
    with ThreadPoolExecutor(1) as pool, pretend.host(stop=stop, waits=lambda seconds: waits.set()) as host:
        late = pool.submit(host.repository, "octo", "ops")
        assert waits.wait(5)
        stop.cancel()
        failure = late.exception(5)
    assert isinstance(failure, Failure) and failure.code == "CANCELLED"


def test_a_call_ends_with_its_time(pretend: HostSite) -> None:
    pretend.fake.fail(Fault(kind="slow", seconds=600))
    with pretend.host(stop=Stop(0.1)) as host:
        assert failure_of(lambda: host.repository("octo", "ops")).code == "TIMED_OUT"
        assert failure_of(lambda: host.repository("octo", "ops")).code == "TIMED_OUT"
    assert len(pretend.fake.exchanges) == 1, "nothing is sent after its end"


def test_a_host_that_does_not_end_its_answer_is_left(pretend: HostSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ANSWER_SECONDS", 0.0)
    pretend.repo.add_commit(BRANCH, {"checks/new.md": b"new\n"})
    pretend.fake.fail(Fault(kind="slow", seconds=600, times=2))
    with pretend.host() as host:
        assert host.create_pull(HERE, BRANCH, "main", "T", "").number == 1
    assert len(pretend.repo.pulls) == 1 and [one.method for one in pretend.fake.exchanges] == ["POST", "GET", "GET"]
