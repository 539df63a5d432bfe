"""One open pull for one change: asked for twice, at once, from two halls, or after a first one has ended."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from crewhall.errors import Failure
from tests.conftest import Clock, eventually
from tests.families.pulls.conftest import BRANCH, FILE, Site, on_both, on_github, together

pytestmark = pytest.mark.slow

OTHER = {**FILE, "path": "checks/other.md"}


SAME: list[tuple[dict[str, Any], str]] = [
    ({}, "with the same title"),
    ({"files": [OTHER]}, "with the same title"),
    ({"title": " ADD  Jellyfin health"}, "with the same title"),
    ({"title": "Other words"}, "with the same files"),
    ({"title": "Other words", "change_type": "fix"}, "with the same files"),
    ({"title": "Other words", "files": [{**FILE, "content": "Other"}]}, "and creates 'checks/jellyfin.md' too"),
]


def test_a_second_pull_for_the_same_change_is_refused_and_the_first_is_named(site: Site) -> None:
    first = site.create()
    for same, why in SAME:
        refusal = site.refusal(**same)
        assert (refusal.code, refusal.message) == ("CONFLICT", f"pull 1 is open {why}: {first['url']}"), same
        assert refusal.fields == {"number": 1, "url": first["url"], "branch": BRANCH}, same
    assert (len(site.repo.pulls), site.branches(), len(site.rows())) == (1, [BRANCH], 1)


def test_another_base_type_or_title_is_another_change(site: Site) -> None:
    site.repo.add_commit("next", {"README.md": b"2"})
    site.create()
    assert site.create(base_branch="next")["branch"] == f"{BRANCH}-2"
    assert site.create(change_type="fix", files=[OTHER])["branch"] == "claude-ops/fix/add-jellyfin-health"
    third = {**FILE, "path": "checks/third.md"}
    assert site.create(title="Add Jellyfin: health?", files=[third])["branch"] == f"{BRANCH}-3"
    assert site.refusal(base_branch="next").fields["number"] == 2
    assert len(site.open_heads()) == 4


def test_a_pull_that_touches_the_same_file_is_told(site: Site) -> None:
    update = {"path": "checks/disk.md", "action": "update"}
    first = site.create(files=[{**update, "content": "one\n"}])
    made = site.create(title="Another", files=[{**update, "content": "two\n"}, OTHER])
    assert made["warnings"] == [f"pull 1 is open and touches 'checks/disk.md' too: {first['url']}"]
    assert made["labels"] == ["claude-ops", "automated"]


def test_after_the_first_has_ended_a_new_one_has_a_branch_of_its_own(site: Site) -> None:
    for merged, branch in ((False, BRANCH), (True, f"{BRANCH}-2")):
        made = site.create()
        assert made["branch"] == branch
        pull = site.repo.pulls[made["number"]]
        site.repo.set_state(pull, "closed")
        pull.merged = merged
    before = dict(site.repo.branches)
    assert site.create()["branch"] == f"{BRANCH}-3"
    assert {name: site.repo.branches[name] for name in before} == before
    assert site.refusal().fields["branch"] == f"{BRANCH}-3"


def test_a_persons_branch_is_never_touched(site: Site, clock: Clock) -> None:
    theirs = site.repo.add_commit(BRANCH, {"checks/mine.md": b"1"}, "A person's own")
    assert site.create()["branch"] == f"{BRANCH}-2"
    site.fail(("POST", "/pulls$"), status=422, body={"message": "unfit"})
    site.refusal(title="Third", files=[OTHER])
    assert site.repo.branches == {**site.repo.branches, BRANCH: theirs}
    assert site.branches() == [BRANCH, f"{BRANCH}-2"]


@pytest.mark.parametrize("with_pull", [False, True], ids=["a branch", "a branch with a pull"])
def test_a_branch_that_a_person_makes_meanwhile_stays_theirs(site: Site, with_pull: bool) -> None:
    def meanwhile(done: float, total: float | None, text: str | None) -> None:
        if done == 1:
            site.repo.add_commit(BRANCH, {"checks/mine.md": b"1"}, "A person's own")
            if with_pull:
                site.repo.add_pull(title="Mine", head=BRANCH)

    refusal = site.refusal(progress=meanwhile)
    assert (refusal.code, BRANCH in refusal.message) == ("CONFLICT", True)
    assert site.repo.log(BRANCH)[0].message == "A person's own"
    assert (site.rows(), site.pull_events(), len(site.repo.pulls)) == ([], ["pull.failed"], int(with_pull))


def test_another_hall_that_opens_it_meanwhile_wins(site: Site, other_hall: Site) -> None:
    def meanwhile(done: float, total: float | None, text: str | None) -> None:
        if done == 1:
            assert other_hall.create(files=[OTHER])["number"] == 1

    assert site.refusal(progress=meanwhile).code == "CONFLICT"
    assert (site.rows(), [row["number"] for row in other_hall.rows()]) == ([], [1])
    assert set(site.repo.files(BRANCH)) > {"checks/other.md"} and FILE["path"] not in site.repo.files(BRANCH)
    assert site.refusal().fields["number"] == 1


# At once


@on_both
@on_github
def test_calls_at_once_for_one_change_open_one_pull(site: Site) -> None:
    for number in range(3):
        titles = [f"Change {number}", f"Change {number}", f"The same files {number}"]
        files = [{**FILE, "path": f"checks/{number}.md"}]
        found = together(*[partial(site.create, title=title, files=files) for title in titles])
        refused = [one for one in found if isinstance(one, Failure)]
        assert [one.code for one in refused] == ["CONFLICT"] * 2
        assert all(one.fields["branch"] for one in refused)
    assert (len(site.repo.pulls), len(site.branches()), len(site.rows())) == (3, 3, 3)


@on_both
@on_github
def test_twenty_changes_at_once_are_twenty_pulls(site: Site) -> None:
    files = [[{**FILE, "path": f"checks/{number}.md"}] for number in range(20)]
    found = together(*[partial(site.create, title=f"Change {n}", files=files[n]) for n in range(20)])
    assert sorted(one["number"] for one in found if isinstance(one, dict)) == list(range(1, 21))
    assert (len(site.branches()), site.branches()) == (20, site.open_heads())
    assert {row["number"] for row in site.rows() if row["state"] == "open"} == set(range(1, 21))
    assert site.pull_events() == ["pull.opened"] * 20


def test_two_halls_at_once_open_one_pull(site: Site, other_hall: Site) -> None:
    found = together(site.create, other_hall.create)
    assert len([one for one in found if isinstance(one, dict)]) == 1
    assert [one.code for one in found if isinstance(one, Failure)] == ["CONFLICT"]
    assert (len(site.repo.pulls), site.branches()) == (1, [BRANCH])
    assert len(site.rows() + other_hall.rows()) == 1


def test_a_branch_for_which_another_hall_has_no_pull_yet_is_being_opened(site: Site, other_hall: Site) -> None:
    refused: list[Failure] = []

    def meanwhile(done: float, total: float | None, text: str | None) -> None:
        if done == 2:
            assert (site.branches(), len(site.repo.pulls)) == ([BRANCH], 0)
            refused.append(other_hall.refusal(files=[OTHER]))

    assert site.create(progress=meanwhile)["number"] == 1
    assert [(one.code, one.fields) for one in refused] == [("CONFLICT", {"branch": BRANCH})]
    assert f"another hall is opening a pull for the same change: it has made the branch '{BRANCH}'" in str(refused[0])
    assert "Try again in a minute" in refused[0].hint and "delete that branch" in refused[0].hint
    assert (len(site.repo.pulls), site.branches(), other_hall.rows()) == (1, [BRANCH], [])
    assert other_hall.refusal(files=[OTHER]).fields["number"] == 1


def test_a_pull_that_another_hall_opens_while_one_looks_at_its_branch_is_seen(site: Site, other_hall: Site) -> None:
    with ExitStack() as stack:
        came: list[dict[str, Any] | Failure] = []

        def meanwhile(done: float, total: float | None, text: str | None) -> None:
            nonlocal came
            if done == 2:
                held = held_call(other_hall, "GET", f"/branches/{BRANCH}$", 0.5, files=[OTHER])
                came = stack.enter_context(held)

        assert site.create(progress=meanwhile)["number"] == 1
    assert isinstance(came[0], Failure) and came[0].code == "CONFLICT"
    assert (len(site.repo.pulls), site.branches(), other_hall.rows()) == (1, [BRANCH], [])


def test_what_a_dead_hall_left_is_in_the_way_until_it_is_deleted(site: Site) -> None:
    site.repo.add_commit(f"{BRANCH}-2", {"a.md": b"1"}, "A person's own")
    site.repo.add_commit(BRANCH, {"b.md": b"1"}, "Add jellyfin health\n\nCrewhall-Pull: pl_dead")
    assert site.refusal().fields == {"branch": BRANCH}
    assert site.create(title="Add Jellyfin: health?")["branch"] == f"{BRANCH}-3", "another title"
    site.repo.drop_branch(BRANCH)
    assert site.create(files=[OTHER])["branch"] == BRANCH


def test_an_ended_pull_of_another_hall_is_not_in_the_way(site: Site, other_hall: Site) -> None:
    site.repo.add_commit("next", {"README.md": b"2"})
    for n, (merged, base) in enumerate(((False, "main"), (True, "main"), (False, "next")), 1):
        made = other_hall.create(base_branch=base)
        pull = site.repo.pulls[made["number"]]
        assert made["branch"] == (BRANCH if n == 1 else f"{BRANCH}-{n}")
        if base == "main":
            site.repo.set_state(pull, "closed")
            pull.merged = merged
    assert site.create()["branch"] == f"{BRANCH}-4"


@contextmanager
def held_call(
    site: Site, method: str, path: str, seconds: float, **given: Any
) -> Iterator[list[dict[str, Any] | Failure]]:
    """A call that the host holds back at some request while the block runs; at the end, what came of it."""
    came: list[dict[str, Any] | Failure] = []
    site.fail((method, path), times=1, kind="slow", seconds=seconds)
    thread = threading.Thread(target=lambda: came.extend(together(lambda: site.create(**given))))
    thread.start()
    eventually(lambda: any(one.fault for one in site.host.exchanges))
    yield came
    thread.join(30)


@on_github
def test_while_a_first_call_is_at_work_a_second_is_told_how_long_to_wait(site: Site) -> None:
    with held_call(site, "POST", "/git/commits$", 0.3) as came:
        for same in ({}, {"title": "Other title"}, {"files": [OTHER]}):
            refusal = site.refusal(**same)
            assert (refusal.code, refusal.fields["branch"]) == ("CONFLICT", BRANCH)
            assert "operator is opening a pull for the same change: 'Add jellyfin health'" in refusal.message
            assert "settled in 120 s" in refusal.hint
    assert isinstance(came[0], dict) and (len(site.repo.pulls), site.branches()) == (1, [BRANCH])


@on_github
def test_a_branch_that_a_first_call_has_made_is_known_to_be_at_work(site: Site) -> None:
    """Else the same title with other files would get the next branch, and there would be two pulls."""
    with held_call(site, "POST", "/git/refs$", 0.3) as came:
        assert site.branches() == [BRANCH]
        assert site.refusal(files=[OTHER]).code == "CONFLICT"
    assert isinstance(came[0], dict) and site.open_heads() == [BRANCH]


@on_both
@on_github
def test_the_same_files_that_are_opened_while_one_looks_are_not_opened_again(site: Site) -> None:
    site.repo.set_state(site.repo.pulls[site.create()["number"]], "closed")
    site.repo.drop_branch(BRANCH)
    with held_call(site, "GET", "/pulls/1$", 0.5, title="Another title") as came:
        assert site.create()["number"] == 2
    assert isinstance(came[0], Failure) and (came[0].code, came[0].fields["number"]) == ("CONFLICT", 2)
    assert (site.branches(), len(site.rows())) == ([BRANCH], 2)
