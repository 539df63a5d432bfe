"""What every host does for us with repositories, branches and commits: one suite, over both."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crewhall.fakehosts import faults
from crewhall.fakehosts.faults import Fault
from crewhall.outside.hosting.host import Host
from crewhall.outside.hosting.model import BranchHead, FileChange, HostRepository
from tests.hosts.conftest import (
    BRANCH,
    FILES,
    HERE,
    NAMES,
    HostSite,
    branch_change,
    create,
    delete,
    description_problems,
    failure_of,
    update,
)
from tests.hosts.descriptions import need_descriptions


@need_descriptions
def test_what_the_description_does_not_know_is_found(pretend: HostSite, host: Host) -> None:
    host.session.request("GET", "/repos/octo/ops", query={"colour": "red"})
    assert "colour" in "".join(description_problems(pretend.name, pretend.fake.exchanges))
    pretend.fake.exchanges.clear()


def test_a_repository_is_named_as_its_host_spells_it(pretend: HostSite, host: Host) -> None:
    assert host.repository("OCTO", "Ops") == HERE
    refused = failure_of(lambda: host.repository("octo", "gone"))
    assert refused.code == "NOT_FOUND" and "octo/gone" in refused.message and "GITHUB_TOKEN" in refused.hint


def test_a_renamed_repository_is_found_by_its_old_name(pretend: HostSite, host: Host) -> None:
    pretend.fake.rename("octo", "ops", "ops2")
    assert host.repository("octo", "ops") == HostRepository("octo", "ops2", "main")
    assert [one.status for one in pretend.fake.exchanges] == [301 if pretend.name == "github" else 307, 200]
    host.commit(HERE, branch_change(create("checks/new.md")))
    assert pretend.repo.files(BRANCH)["checks/new.md"] == b"new\n", "a write goes on too"


def test_branches_are_listed_by_how_they_begin(pretend: HostSite, host: Host) -> None:
    for name in (BRANCH, f"{BRANCH}-2", "claude-ops/fix/x", "other"):
        pretend.repo.set_branch(name, pretend.repo.branches["main"])
    assert host.branches(HERE, BRANCH) == [BRANCH, f"{BRANCH}-2"]
    assert host.branches(HERE, f"{BRANCH}-2") == [f"{BRANCH}-2"]
    assert host.branches(HERE, "claude-ops/none") == []


def test_an_older_gitea_lists_a_single_branch_alone(gitea: HostSite) -> None:
    gitea.fake.fail(faults.Fault(status=200, headers=faults.JSON, body=f'{{"ref": "refs/heads/{BRANCH}"}}'))
    with gitea.host() as host:
        assert host.branches(HERE, BRANCH) == [BRANCH]


@pytest.mark.parametrize("name", ["a/b/c", "50%", "a#b", "fünf", "a+b", "%2e%2e", "x&y=1"])
def test_a_head_is_found_by_any_name(pretend: HostSite, host: Host, name: str) -> None:
    assert host.head(HERE, name) is None
    sha = pretend.repo.add_commit(name, {"x": b"1"}, "Größer\n\nand more")
    found = host.head(HERE, name)
    tree = pretend.repo.commits[sha].tree if pretend.name == "github" else ""
    assert found == BranchHead(sha, "Größer\n\nand more", tree)
    assert host.branches(HERE, name) == [name]
    host.delete_branch(HERE, name)
    assert name not in pretend.repo.branches


def test_one_commit_creates_updates_and_deletes(pretend: HostSite, host: Host) -> None:
    files = {
        "checks/binary.md": b"\x00\xff\xfe",
        "checks/empty.md": b"",
        "checks/ends.md": b"no newline at the end",
        "checks/lines.md": b"a\r\nb\r\n",
        "checks/ümläut/日本.md": "größer \U0001f600\ufeff".encode(),
        "checks/latin.md": "größer".encode("latin-1"),
    }
    change = branch_change(*(create(*one) for one in files.items()), update("run.sh"), delete("checks/deep/b.md"))
    sha = host.commit(HERE, change)
    repo = pretend.repo
    kept = {path: content for path, content in FILES.items() if path != "checks/deep/b.md"}
    assert repo.files(BRANCH) == {**kept, **files, "run.sh": b"other\n"}
    assert repo.mode(BRANCH, "run.sh") == "100755" and repo.mode(BRANCH, "checks/empty.md") == "100644"
    assert [one.sha for one in repo.log(BRANCH)] == [sha, repo.branches["main"]]
    assert repo.commits[sha].message == change.message and repo.commits[sha].author.name == "octocat"
    assert repo.files("main") == FILES


@pytest.mark.parametrize("name", NAMES)
def test_any_content_arrives_as_it_is(place: Callable[..., HostSite], name: str) -> None:
    there, count = place(name), iter(range(1000))

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.binary(max_size=80) | st.text(max_size=40).map(str.encode), min_size=1, max_size=5))
    def arrives(contents: list[bytes]) -> None:
        branch = f"b{next(count)}"
        files = {f"checks/{number}.md": content for number, content in enumerate(contents)}
        with there.host() as host:
            host.commit(HERE, branch_change(*(create(*one) for one in files.items()), branch=branch))
        assert files.items() <= there.repo.files(branch).items()

    arrives()


def test_a_base_of_its_own_is_where_the_branch_begins(pretend: HostSite, host: Host) -> None:
    base = pretend.repo.add_commit("release/1", {"checks/old.md": b"old"})
    host.commit(HERE, branch_change(update("checks/old.md"), base="release/1"))
    assert pretend.repo.log(BRANCH)[1].sha == base and pretend.repo.files(BRANCH)["checks/old.md"] == b"other\n"


def test_three_hundred_files_are_one_commit(pretend: HostSite, host: Host) -> None:
    pretend.repo.add_commit("main", {f"checks/{number}.md": b"x" for number in range(300)})
    new = {f"checks/{number}.md": b"%d\n" % number for number in range(200, 400)}
    changes = [
        update(path, content) if int(path[7:-3]) < 300 else create(path, content) for path, content in new.items()
    ]
    host.commit(HERE, branch_change(*changes, *(delete(f"checks/{number}.md") for number in range(100))))
    found = pretend.repo.files(BRANCH)
    assert new.items() <= found.items() and "checks/99.md" not in found and found["checks/100.md"] == b"x"
    assert len(pretend.repo.log(BRANCH)) == 3


UNFIT: dict[str, tuple[FileChange, str, str]] = {
    "created, and there": (create("checks/a.md"), "CONFLICT", "'checks/a.md' is on main already"),
    "updated, and not there": (update("checks/x.md"), "NOT_FOUND", "no 'checks/x.md' on main to update"),
    "deleted, and not there": (delete("gone/x.md"), "NOT_FOUND", "no 'gone/x.md' on main to delete"),
    "a directory": (create("checks"), "INVALID_INPUT", "'checks' is a directory"),
    "a directory to delete": (delete("checks/deep"), "INVALID_INPUT", "'checks/deep' is a directory"),
    "a symbolic link": (update("link"), "INVALID_INPUT", "'link' is a symbolic link"),
    "a submodule": (delete("module"), "INVALID_INPUT", "'module' is a submodule"),
    "below a file": (create("checks/a.md/x.md"), "CONFLICT", "'checks/a.md' is no directory"),
    "below a link": (create("link/x.md"), "CONFLICT", "'link' is no directory"),
    "below a submodule": (create("module/deep/x.md"), "CONFLICT", "'module' is no directory"),
    "nothing new": (update("checks/a.md", b"a\n"), "INVALID_INPUT", "nothing would change"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_change_that_does_not_fit_is_refused_before_anything_is_written(
    pretend: HostSite, host: Host, case: str
) -> None:
    file, code, words = UNFIT[case]
    others = [] if case == "nothing new" else [create("checks/fine.md")]
    refused = failure_of(lambda: host.commit(HERE, branch_change(*others, file)))
    assert (refused.code, words in refused.message) == (code, True), refused.message
    assert {method for method, _ in pretend.requests} == {"GET"} and BRANCH not in pretend.repo.branches


def test_an_update_that_changes_nothing_goes_with_one_that_does(pretend: HostSite, host: Host) -> None:
    host.commit(HERE, branch_change(update("checks/a.md", b"a\n"), update("README.md")))
    assert pretend.repo.files(BRANCH) == {**FILES, "README.md": b"other\n"}


def test_a_base_that_is_not_there_is_named(pretend: HostSite, host: Host) -> None:
    refused = failure_of(lambda: host.commit(HERE, branch_change(create("x.md"), base="dev/1")))
    assert refused.code == "NOT_FOUND" and "octo/ops has no branch 'dev/1'" in refused.message


def test_an_empty_repository_wants_a_first_commit(pretend: HostSite, host: Host) -> None:
    pretend.fake.add_repository("octo", "empty")
    empty = host.repository("octo", "empty")
    assert host.branches(empty, BRANCH) == [] and host.head(empty, "main") is None
    refused = failure_of(lambda: host.commit(empty, branch_change(create("x.md"))))
    assert refused.code == "NOT_FOUND" and "first one" in refused.hint


@pytest.mark.parametrize("theirs", [BRANCH, f"{BRANCH}/more", "claude-ops"])
def test_a_branch_of_somebody_else_is_left_alone(pretend: HostSite, host: Host, theirs: str) -> None:
    sha = pretend.repo.add_commit(theirs, {"theirs.md": b"1"}, "Check the disks")
    refused = failure_of(lambda: host.commit(HERE, branch_change(create("checks/new.md"))))
    assert refused.code == "CONFLICT" and BRANCH in refused.message
    assert pretend.repo.branches == {"main": pretend.repo.branches["main"], theirs: sha}


MOVED: dict[str, tuple[FileChange, dict[str, bytes | None], bool]] = {
    "another file": (update("checks/a.md"), {"README.md": b"moved"}, True),
    "the file that is updated": (update("checks/a.md"), {"checks/a.md": b"moved"}, False),
    "the file that is deleted": (delete("checks/a.md"), {"checks/a.md": None}, False),
    "the file that is created": (create("checks/new.md"), {"checks/new.md": b"theirs"}, False),
}


@pytest.mark.parametrize("case", MOVED)
def test_a_base_that_moves_before_the_write(pretend: HostSite, case: str) -> None:
    """At GitHub the commit stands on what was read; Gitea looks at the files again, and refuses what changed."""
    file, theirs, is_fine = MOVED[case]
    pretend.fake.fail(faults.rate_limited(method="POST"))  # they write while we wait
    told: list[str] = []

    def move(seconds: float) -> None:
        told.append(pretend.repo.add_commit("main", theirs))

    with pretend.host(waits=move) as host:
        if pretend.name == "github" or is_fine:
            host.commit(HERE, branch_change(file))
            assert len(pretend.repo.log(BRANCH)) == (2 if pretend.name == "github" else 3)
            assert pretend.repo.files(BRANCH).get(file.path) == (file.content or None)
        else:
            refused = failure_of(lambda: host.commit(HERE, branch_change(file)))
            assert refused.code == "CONFLICT" and refused.message.startswith(
                f"Gitea did not make the branch '{BRANCH}'"
            )
            assert BRANCH not in pretend.repo.branches
    assert told == [pretend.repo.branches["main"]]


def test_of_a_tree_too_large_github_reads_what_matters(place: Callable[..., HostSite]) -> None:
    there = place("github", tree=12)
    there.repo.add_commit("main", {f"d{number % 5}/e/{number}.md": b"x" for number in range(50)})
    there.fake.exchanges.clear()
    files = (create("d1/e/new.md"), update("d1/e/1.md"), delete("d2/e/2.md"), create("none/at/all.md"))
    with there.host() as host:
        host.commit(HERE, branch_change(*files))
        reads = [one for one in there.requests if one[0] == "GET" and "/git/trees/" in one[1]]
        assert len(reads) == 6, "the whole, the top, d1, d1/e, d2, d2/e"
        unfit = (create("d3/e/3.md"), update("d3/e/none.md"), create("d3/e/3.md/x.md"), update("d3/e"))
        codes = [failure_of(partial(host.commit, HERE, branch_change(file))).code for file in unfit]
        assert codes == ["CONFLICT", "NOT_FOUND", "CONFLICT", "INVALID_INPUT"]
        there.repo.add_commit("main", {f"d4/e/{number}.txt": b"x" for number in range(20)})
        refused = failure_of(lambda: host.commit(HERE, branch_change(create("d4/e/9.txt"), branch="b2")))
    found = there.repo.files(BRANCH)
    assert "d1/e/new.md" in found and "d2/e/2.md" not in found and len(found) == len(FILES) + 51
    assert refused.code == "UNAVAILABLE" and "d4/e" in refused.message, "what cannot be seen is not overwritten"


def test_gitea_tells_its_tree_in_pages(place: Callable[..., HostSite]) -> None:
    there = place("gitea", tree=10)
    there.repo.add_commit("main", {f"d/{number}.md": b"x" for number in range(50)})
    with there.host() as host:
        host.commit(HERE, branch_change(update("run.sh"), update("d/49.md")))
    reads = [one.query["page"] for one in there.fake.exchanges if "/git/trees/" in one.path]
    assert reads == [str(page) for page in range(1, 7)] and there.repo.files(BRANCH)["run.sh"] == b"other\n"


def test_a_branch_can_be_deleted_twice(pretend: HostSite, host: Host) -> None:
    host.commit(HERE, branch_change(create("x.md")))
    host.delete_branch(HERE, BRANCH)
    host.delete_branch(HERE, BRANCH)
    assert pretend.repo.branches.keys() == {"main"} and host.head(HERE, BRANCH) is None


def test_a_branch_that_a_rule_protects_is_not_said_to_be_gone(pretend: HostSite, host: Host) -> None:
    host.commit(HERE, branch_change(create("x.md")))
    pretend.fake.fail(Fault(method="DELETE", status=422 if pretend.name == "github" else 403, body={"message": "Kept"}))
    refused = failure_of(lambda: host.delete_branch(HERE, BRANCH))
    assert refused.code == "FORBIDDEN" and "Kept" in refused.message and BRANCH in pretend.repo.branches


def test_who_may_not_write_is_told_so(pretend: HostSite, host: Host) -> None:
    pretend.fake.forbid("octo", "ops")
    refused = failure_of(lambda: host.commit(HERE, branch_change(create("x.md"))))
    assert refused.code == "FORBIDDEN" and "Resource not accessible" in refused.message
    assert "contents and pull requests" in refused.hint and pretend.repo.branches.keys() == {"main"}
