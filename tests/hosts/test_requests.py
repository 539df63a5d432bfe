"""How many requests a thing takes: a number that does not grow with the files of a change."""

from collections.abc import Callable

import pytest

from crewhall.outside.hosting.host import Host
from tests.hosts.conftest import BRANCH, HERE, HostSite, branch_change, create, delete, update
from tests.hosts.descriptions import HostName

Make = Callable[..., HostSite]
COMMIT: dict[HostName, int] = {"github": 5, "gitea": 3}
WHOLE: dict[HostName, int] = {"github": 7, "gitea": 8}  # with the pull and two new labels


def count(there: HostSite, act: Callable[[], object]) -> int:
    before = len(there.fake.exchanges)
    act()
    return len(there.fake.exchanges) - before


@pytest.mark.parametrize("files", [1, 10, 300])
@pytest.mark.parametrize("binary", [0, 1, 7])
def test_a_commit_takes_as_many_requests_for_any_number_of_files(
    pretend: HostSite, host: Host, files: int, binary: int
) -> None:
    """At GitHub one more for each file that is no text, and none at Gitea."""
    changes = [create(f"checks/{number}.md", b"text\n") for number in range(files)]
    changes += [create(f"checks/{number}.bin", b"\xff%d" % number) for number in range(binary)]
    blobs = binary if pretend.name == "github" else 0
    assert count(pretend, lambda: host.commit(HERE, branch_change(*changes))) == COMMIT[pretend.name] + blobs
    assert len(pretend.repo.files(BRANCH)) == len(pretend.repo.files("main")) + files + binary


@pytest.mark.parametrize("files", [1, 300])
def test_so_do_updates_and_deletions(pretend: HostSite, host: Host, files: int) -> None:
    pretend.repo.add_commit("main", {f"checks/{number}.md": b"x" for number in range(2 * files)})
    changes = [update(f"checks/{number}.md") for number in range(files)]
    changes += [delete(f"checks/{number}.md") for number in range(files, 2 * files)]
    assert count(pretend, lambda: host.commit(HERE, branch_change(*changes))) == COMMIT[pretend.name]


def test_the_whole_way_to_a_labelled_pull(pretend: HostSite, host: Host) -> None:
    def go(branch: str) -> None:
        host.commit(HERE, branch_change(create("checks/new.md"), branch=branch))
        host.label(HERE, host.create_pull(HERE, branch, "main", "T", "").number, ("claude-ops", "automated"))

    assert count(pretend, lambda: go("a")) == WHOLE[pretend.name]
    known = 0 if pretend.name == "github" else 2  # labels that are there need not be made
    assert count(pretend, lambda: go("b")) == WHOLE[pretend.name] - known


@pytest.mark.parametrize(("name", "more"), [("github", 0), ("gitea", 2)])
def test_a_large_base_takes_pages_of_one_tree(place: Make, name: HostName, more: int) -> None:
    there = place(name, tree=100_000 if name == "github" else 1000)
    there.repo.add_commit("main", {f"d{number % 9}/{number}.md": b"x" for number in range(2500)})
    with there.host() as host:
        taken = count(there, lambda: host.commit(HERE, branch_change(create("checks/new.md"))))
    assert taken == COMMIT[name] + more


def test_a_pull_with_little_about_it(pretend: HostSite, host: Host) -> None:
    pretend.repo.add_pull(title="T", head=BRANCH, files={"checks/new.md": b"new"})
    assert count(pretend, lambda: host.pull(HERE, 1)) == (5 if pretend.name == "github" else 4)
    assert count(pretend, lambda: host.open_pull(HERE, BRANCH, "main")) == 1
    assert count(pretend, lambda: list(host.pulls(HERE, "all"))) == 1
    assert count(pretend, lambda: host.branches(HERE, BRANCH)) == count(pretend, host.limits) == 1


def test_who_asks_says_who_it_is(pretend: HostSite, host: Host) -> None:
    host.repository("octo", "ops")
    sent = pretend.fake.exchanges[0].headers
    version = {"x-github-api-version": "2022-11-28"} if pretend.name == "github" else {}
    accept = "application/vnd.github+json" if pretend.name == "github" else "application/json"
    assert {"user-agent": "crewhall", "accept": accept, **version}.items() <= sent.items()
