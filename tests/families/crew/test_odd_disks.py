"""Disks that are full or can't be written to: an instance is refused with a hint, and nothing is left."""

import os
from pathlib import Path

import pytest

from crewhall.errors import Failure
from crewhall.outside.processes import marked_by
from tests.conftest import eventually
from tests.families.crew.conftest import Site
from tests.families.crew.odd_repositories import live, site_at, start, traces
from tests.outside.repos import commit, git
from tests.own_mounts import PAGE, fill, mount, mount_small, with_own_mounts
from tests.sizes import size

pytestmark = pytest.mark.slow


def make_read_only(path: Path) -> None:
    """For root too, who may write in spite of modes."""
    mount("--bind", path, path)
    mount("-o", "remount,bind,ro", path)


# Read-only


def refuse_read_only_parent(directory: Path) -> None:
    with site_at(directory, directory / "home") as site:
        parent = site.repository.parent
        mount("--bind", parent, parent)
        mount("--bind", parent / "shop", parent / "shop")  # which stays writable
        mount("-o", "remount,bind,ro", parent)
        check_read_only_parent(site)


def check_read_only_parent(site: Site) -> None:
    failure = site.refused_start()
    home = f"{site.repository}-worktrees"
    assert failure.code == "INVALID_STATE" and f"{home}/work-trial-a1 can't be made: " in failure.message
    assert f"Make {home} a directory that the hall can write to, or a link to one." in failure.hint


def test_a_parent_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        with_own_mounts(refuse_read_only_parent, tmp_path)
    else:
        with site_at(tmp_path, tmp_path / "home") as site:
            site.repository.parent.chmod(0o555)
            check_read_only_parent(site)
            site.repository.parent.chmod(0o755)


def refuse_read_only_repository(directory: Path) -> None:
    with site_at(directory, directory / "home") as site:
        make_read_only(site.repository)
        failure = site.refused_start()
        assert failure.code == "INVALID_STATE" and "Read-only file system" in failure.message
        assert "Nothing was made. Fix what git says" in failure.hint
        assert not Path(f"{site.repository}-worktrees").exists()


def test_a_repository_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with_own_mounts(refuse_read_only_repository, tmp_path)


# Full


def put_large_file(site: Site, pages: int) -> None:
    (site.repository / "large").write_bytes(os.urandom(pages * PAGE))
    commit(site.repository, "large")


def refuse_full_worktree_disk(directory: Path) -> None:
    with site_at(directory, directory / "home") as site:
        put_large_file(site, 40)
        mount_small(Path(f"{site.repository}-worktrees"), 30)
        failure = site.refused_start()
        assert failure.code == "INVALID_STATE" and "unable to write file large" in failure.message
        assert "The disk of " in failure.hint and "Make room" in failure.hint
        mount("-o", f"remount,size={100 * PAGE}", f"{site.repository}-worktrees")
        live(site)


def test_a_disk_without_room_for_the_worktree_is_named(tmp_path: Path) -> None:
    with_own_mounts(refuse_full_worktree_disk, tmp_path)


def try_life(site: Site) -> str:
    """What became of an instance: refused, or the state of its program. In either case nothing is left of it."""
    before, rows = traces(site), site.leftovers()["rows"]
    try:
        name = site.start()
    except Failure as failure:
        assert site.leftovers()["rows"] == rows and failure.code == "INVALID_STATE", failure.message
        assert "room" in failure.hint, f"{failure.message} {failure.hint}"
        became = "refused"
    else:
        state = eventually(lambda: (found := site.state(name))["name"] in ("alive", "ended") and found)
        shown = site.call("instance_output", id=name)["text"].replace("\n", "")
        assert state["name"] == "alive" or ("No space left on device" in shown and "Traceback" not in shown), shown
        assert site.call("instance_abandon", id=name)["problem"] is None
        assert marked_by("CREWHALL_INSTANCE", f"CREWHALL_HOME={site.hub.settings.home}") == {}
        became = state["name"]
    assert traces(site) == before
    return became


def sweep(site: Site, disk: Path, pages: list[int]) -> dict[int, str]:
    """What becomes of instances while a disk has so many pages left."""
    found = {}
    for spare in pages:
        fill(disk, spare)
        found[spare] = try_life(site)
    return found


def fill_repository_disk(directory: Path, pages: list[int]) -> None:
    mount_small(directory / "site", 1000)
    with site_at(directory, directory / "home") as site:
        found = sweep(site, directory / "site", pages)
        assert found == {spare: "refused" if spare < 12 else "alive" for spare in pages}


def test_a_repository_on_a_full_disk_is_left_as_it_was(tmp_path: Path) -> None:
    """Git runs out of room at another file each time: the branch, its log, the entry, the files, the index."""
    with_own_mounts(fill_repository_disk, tmp_path, [*range(0, 12, size(3, 1)), 30])


def fill_home(directory: Path, pages: list[int]) -> None:
    mount_small(directory / "home", 1000)
    with site_at(directory, directory / "home") as site:
        found = sweep(site, directory / "home", pages)
        expected = {spare: "refused" if spare < 3 else "ended" if spare < 6 else "alive" for spare in pages}
        assert found == expected


def test_a_hall_without_room_starts_nothing_it_could_not_follow(tmp_path: Path) -> None:
    """Room is missing for the files of the hub, then for the records of the launcher."""
    with_own_mounts(fill_home, tmp_path, [*range(0, 6, size(2, 1)), 20])


def abandon_without_room(directory: Path) -> None:
    mount_small(directory / "site", 1000)
    with site_at(directory, directory / "home") as site:
        before, made = traces(site), start(site)
        tree = Path(made["worktree_path"])
        (tree / "work").write_bytes(os.urandom(10 * PAGE))
        fill(directory / "site", 2)
        ended = site.call("instance_abandon", id=made["instance_id"])
        assert ended["status"] == "abandoned" and ended["problem"] and (tree / "work").stat().st_size == 10 * PAGE
        assert site.call("instance_check")["differences"][0]["name"] == "stale_worktree"
        fill(directory / "site", 500)
        site.hub.chores.run_one("instance_worktrees")
        kept = site.call("instance_get", id=made["instance_id"])
        ref = f"refs/crewhall/saved/{made['instance_id']}"
        assert (kept["problem"], kept["saved_refs"]) == (None, [ref])
        assert git(site.repository, "cat-file", "-s", f"{ref}:work") == str(10 * PAGE)
        git(site.repository, "update-ref", "-d", ref)
        assert traces(site) == before


def test_work_that_no_disk_has_room_for_stays_in_its_worktree(tmp_path: Path) -> None:
    with_own_mounts(abandon_without_room, tmp_path)
