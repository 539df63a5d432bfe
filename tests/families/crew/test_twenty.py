"""Many instances at once: they share nothing, and when they have ended nothing of them is left."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from crewhall.errors import Failure
from crewhall.outside.processes import marked_by
from tests.conftest import eventually
from tests.families.crew.conftest import Site
from tests.families.work.workflows import sql
from tests.outside.repos import commit, git, refs
from tests.outside.test_tmux import is_connected, server_pid
from tests.sizes import size

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MANY = size(4, 20)
# Notes where it runs and with which ports, beside its state file, then waits.
NOTES = 'd=$(dirname "$CREWHALL_STATE_FILE"); (pwd; echo $CREWHALL_INSTANCE $CREWHALL_PORT $CREWHALL_PORT_2) > $d/part'
PROGRAM = {"custom": {"command": ["sh", "-c", f"{NOTES}; mv $d/part $d/notes; exec sleep 600"]}}


@pytest.fixture
def sites(make_site: Callable[..., Site]) -> list[Site]:
    """Two hubs on one hall, and one repository."""
    first, second = (make_site(name, crew__runtimes=PROGRAM, crew__ports=2) for name in ("one", "two"))
    second.repository = first.repository
    return [first, second]


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """What each returns, or the failure that it raises, when all begin at the same moment."""
    gate = threading.Barrier(len(work))

    def wait_and_work(one: Callable[[], Any]) -> Any:
        gate.wait(20)
        try:
            return one()
        except Failure as failure:
            return failure

    with ThreadPoolExecutor(len(work)) as threads:
        return list(threads.map(wait_and_work, work))


def starts(sites: list[Site], **more: Any) -> list[Callable[[], dict[str, Any]]]:
    """As many starts as `MANY`, by the hubs in turn."""
    where = {"repository_path": str(sites[0].repository), "runtime": "custom"}
    given = {"prompt": "Try it", "title": "trial", **where, **more}
    return [partial(site.call, "instance_start", **given) for site, _ in zip(cycle(sites), range(MANY), strict=False)]


def end(sites: list[Site], tools: list[str], names: list[str]) -> list[dict[str, Any]]:
    """End instances at once, each with a tool of its own, by the hubs in turn."""
    calls = zip(cycle(sites), tools, names, strict=False)
    return at_once(*(partial(site.call, tool, id=name) for site, tool, name in calls))


def processes(site: Site) -> dict[str, Any]:
    return marked_by("CREWHALL_INSTANCE", f"CREWHALL_HOME={site.hub.settings.home}")


def ports(site: Site) -> list[int]:
    return [port for row in sql(site.hub, "SELECT ports FROM instance") for port in json.loads(row["ports"])]


def assert_nothing_is_left(site: Site) -> None:
    """No session, process, worktree, branch, run directory, port, live token, operation or lock."""
    left = site.leftovers()
    assert (left["sessions"], left["runs"], left["directories"], left["operations"]) == ({}, [], [], [])
    assert list(refs(site.repository)) == ["refs/heads/main"] and len(left["worktrees"].splitlines()) == 1
    assert processes(site) == {} and ports(site) == []
    assert sql(site.hub, "SELECT id FROM token WHERE kind = 'agent' AND revoked_at IS NULL") == []
    assert list(site.repository.parent.glob("*-worktrees")) == []
    assert list((site.repository / ".git").rglob("*.lock")) == []
    assert git(site.repository, "status", "--porcelain") == ""


def test_many_at_once_share_nothing_and_leave_nothing(sites: list[Site]) -> None:
    started = at_once(*starts(sites))
    names = sorted(one["instance_id"] for one in started)
    assert names == sorted(f"work-trial-a{number}" for number in range(1, MANY + 1))
    for field in ("agent_id", "session_name", "worktree_path", "branch_name"):
        assert len({one[field] for one in started}) == MANY, field
    assert len(set(ports(sites[0]))) == len(ports(sites[0])) == 2 * MANY
    notes = [sites[0].place(one["instance_id"]).path / "notes" for one in started]
    rows = {row["id"]: json.loads(row["ports"]) for row in sql(sites[0].hub, "SELECT id, ports FROM instance")}
    for one, path in zip(started, notes, strict=True):
        where, told = eventually(path.read_text).splitlines()
        assert where == one["worktree_path"] and git(where, "branch", "--show-current") == one["branch_name"]
        assert told.split() == [one["instance_id"], *map(str, rows[one["instance_id"]])]
    assert sorted(sites[0].tmux.panes()) == sorted(processes(sites[0])) == names
    half = MANY // 2
    first = end(sites, ["instance_stop"] * half + ["instance_abandon"] * (MANY - half), names)
    assert [one["status"] for one in first] == ["terminated"] * half + ["abandoned"] * (MANY - half)
    rest = end(sites, ["instance_abandon"] * half, names[:half])
    assert {one["status"] for one in rest} == {"abandoned"} and not any(one["problem"] for one in [*first, *rest])
    assert_nothing_is_left(sites[0])


def test_starts_that_fail_beside_others_leave_exactly_the_good_ones(sites: list[Site]) -> None:
    site = sites[0]
    prompts = site.repository / ".crewhall" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "planning.md").write_bytes(b"\xff")  # no text: the start fails when its worktree is there
    commit(site.repository, "a prompt that can't be used")
    bad = (starts(sites, base_branch="nowhere"), starts(sites, type="planning"))
    work = [(good, bad[number % 2][number]) for number, good in enumerate(starts(sites))]
    found = at_once(*(one for pair in work for one in pair))
    good, failures = found[::2], found[1::2]
    assert [one.code for one in failures] == [("INVALID_INPUT", "INVALID_STATE")[n % 2] for n in range(MANY)]
    names = sorted(one["instance_id"] for one in good)
    left = site.leftovers()
    assert sorted(row["id"] for row in left["rows"]) == sorted(left["sessions"]) == left["directories"] == names
    assert sorted(path.name for path in left["runs"]) == names and left["operations"] == []
    assert sorted(refs(site.repository)) == sorted(f"refs/heads/{name}" for name in ["main", *names])
    assert len(left["agents"]) == MANY and len(ports(site)) == 2 * MANY
    eventually(lambda: sorted(processes(site)) == names)  # its program runs soon after a start has returned
    end(sites, ["instance_abandon"] * MANY, names)
    assert_nothing_is_left(site)


# The first new-session and the kill-session of the old one meet at a pipe, and go on at the same moment.
MEETING = """#!/bin/sh
case " $* " in
*" new-session "*) if rm {place}/starts 2> /dev/null; then : < {place}/pipe; fi;;
*" kill-session -t =$(cat {place}/old): "*) if rm {place}/ends 2> /dev/null; then : > {place}/pipe; fi;;
esac
exec {tmux} "$@"
"""


@pytest.fixture
def meeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a `tmux` that is in PATH, and what it looks at."""
    place = tmp_path / "meeting"
    place.mkdir()
    os.mkfifo(place / "pipe")
    (place / "tmux").write_text(MEETING.format(place=place, tmux=shutil.which("tmux")))
    (place / "tmux").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return place


def test_a_start_succeeds_while_the_last_session_ends(sites: list[Site], meeting: Path) -> None:
    """Killing its last session ends the tmux server, and what has just connected to it is refused."""
    site, other = sites
    name = site.start()
    for _ in range(size(2, 60)):
        (meeting / "old").write_text(name)
        for file in ("starts", "ends"):
            (meeting / file).touch()
        ended, name = at_once(partial(other.call, "instance_stop", id=name), site.start)
        assert ended["status"] == "terminated" and list(site.tmux.panes()) == [name]
        assert not (meeting / "starts").exists() and not (meeting / "ends").exists()


def test_a_start_whose_terminal_server_dies_is_tried_again(sites: list[Site], meeting: Path) -> None:
    site = sites[0]
    old = site.start()
    server = server_pid(site.tmux)
    (meeting / "starts").touch()
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(site.start)
        eventually(lambda: not (meeting / "starts").exists())
        os.kill(server, signal.SIGSTOP)
        (meeting / "pipe").write_text("")
        eventually(lambda: is_connected("work-trial-a2", site.tmux))
        os.kill(server, signal.SIGKILL)
        assert starting.result(20) == "work-trial-a2"
    assert list(site.tmux.panes()) == ["work-trial-a2"]
    eventually(lambda: site.state(old)["name"] == "ended")
