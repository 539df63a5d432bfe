"""A new instance's worktree runs: ignored files are there, a recipe sets it up, and it has ports of its own."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.families.crew.conftest import Site
from tests.outside.repos import commit, git

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("database", ["sqlite"], indirect=True)]


def worktree(site: Site, name: str) -> Path:
    return Path(site.call("instance_get", id=name)["worktree"])


def test_ignored_files_are_copied_in_and_changed_ones_kept(site: Site) -> None:
    (site.repository / ".gitignore").write_text(".env\n")
    (site.repository / ".worktreeinclude").write_text(".env\n")
    commit(site.repository, "list")
    (site.repository / ".env").write_text("KEY=1\n")
    name = site.start()
    copied = worktree(site, name) / ".env"
    assert copied.read_text() == "KEY=1\n"
    copied.write_text("KEY=2\n")
    ended = site.call("instance_abandon", id=name)
    assert ended["saved_refs"] == [f"refs/crewhall/saved/{name}-ignored"]
    assert git(site.repository, "show", f"{ended['saved_refs'][0]}:.env") == "KEY=2"


def add_recipe(site: Site, text: str) -> None:
    (site.repository / "justfile").write_text(text)
    commit(site.repository, "recipe")


def test_a_recipe_sets_the_worktree_up_before_the_program_starts(site: Site) -> None:
    add_recipe(site, "worktree-setup:\n    echo ready > ready.txt\n")
    name = site.start()
    site.received(name)
    assert (worktree(site, name) / "ready.txt").read_text() == "ready\n"
    assert site.place(name).read("setup.json")["code"] == 0
    assert "worktree-setup" in site.call("instance_output", id=name)["text"]


def test_a_recipe_that_fails_is_a_state_and_the_program_does_not_start(site: Site) -> None:
    add_recipe(site, "worktree-setup:\n    exit 7\n")
    name = site.start()
    eventually(lambda: site.state(name)["name"] == "ended")
    assert site.state(name)["evidence"].startswith("gone: setup failed with")
    assert not (site.place(name).path / "got.json").exists()


def test_a_justfile_without_the_recipe_is_left_alone(site: Site) -> None:
    add_recipe(site, "setup:\n    exit 7\n")
    name = site.start()
    assert site.received(name)["environment"]["CREWHALL_INSTANCE"] == name


def test_each_instance_has_ports_of_its_own_and_gives_them_back(make_site: Callable[..., Site]) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        first = busy.getsockname()[1]
        site = make_site(crew__port_range=f"{first}-{min(first + 40, 65_535)}", crew__ports=2)
        one, two = site.start(), site.start()
        given = [site.call("instance_get", id=each)["ports"] for each in (one, two)]
        assert first not in given[0] and len({*given[0], *given[1]}) == 4
        found = site.received(one)["environment"]
        assert [int(found["CREWHALL_PORT"]), int(found["CREWHALL_PORT_2"])] == given[0]
        site.call("instance_abandon", id=one)
        assert site.call("instance_get", id=one)["ports"] == []
        again = site.call("instance_get", id=site.start())["ports"]
        assert set(again) & set(given[0]), "they are handed out again"


def test_a_range_that_is_used_up_is_refused_and_leaves_nothing(make_site: Callable[..., Site]) -> None:
    failure = make_site(crew__port_range="42100-42101", crew__ports=3).refused_start()
    assert failure.code == "LIMIT_EXCEEDED" and "of 3 ports are free" in failure.message
    assert "crew.port_range" in failure.hint
