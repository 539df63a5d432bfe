"""A new instance's worktree runs: ignored files are there, a recipe sets it up, and it has ports of its own."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crewhall.errors import LimitExceeded
from crewhall.families.crew.run_directory import run_directory
from tests.conftest import eventually
from tests.families.crew.yards import Yard
from tests.outside.repos import commit, git

pytestmark = pytest.mark.slow


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with closing(Yard(tmp_path)) as one:
        yield one


def test_ignored_files_are_copied_in_and_changed_ones_kept(yard: Yard) -> None:
    (yard.root / ".worktreeinclude").write_text(".env\n")
    commit(yard.root, "list")
    (yard.root / ".env").write_text("KEY=1\n")
    started = yard.start()
    copied = Path(started["worktree_path"], ".env")
    assert copied.read_text() == "KEY=1\n"
    copied.write_text("KEY=2\n")
    ended = yard.call("instance_abandon", id=started["instance_id"])
    assert ended["saved_refs"] == [f"refs/crewhall/saved/{started['instance_id']}-ignored"]
    assert git(yard.root, "show", f"{ended['saved_refs'][0]}:.env") == "KEY=2"


def test_a_recipe_sets_the_worktree_up_before_the_program_starts(yard: Yard) -> None:
    (yard.root / "justfile").write_text("worktree-setup:\n    echo ready > ready.txt\n")
    commit(yard.root, "recipe")
    started = yard.start()
    yard.environment(started)
    assert Path(started["worktree_path"], "ready.txt").read_text() == "ready\n"
    assert run_directory(yard.hub.settings, started["instance_id"]).read("setup.json")["code"] == 0
    assert "worktree-setup" in yard.call("instance_output", id=started["instance_id"])["text"]


def test_a_recipe_that_fails_is_a_state_and_the_program_does_not_start(yard: Yard) -> None:
    (yard.root / "justfile").write_text("worktree-setup:\n    exit 7\n")
    commit(yard.root, "recipe")
    started = yard.start()
    state = eventually(lambda: yard.get(started)["state"]["name"] == "ended" and yard.get(started)["state"])
    assert state["evidence"].startswith("gone: setup failed with")
    assert not Path(started["worktree_path"], "seen.txt").exists()


def test_a_justfile_without_the_recipe_is_left_alone(yard: Yard) -> None:
    (yard.root / "justfile").write_text("setup:\n    exit 7\n")
    commit(yard.root, "recipe")
    assert yard.environment(yard.start())["CREWHALL_INSTANCE"] == "work-do-it-a1"


def test_each_instance_has_ports_of_its_own_and_gives_them_back(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        first = busy.getsockname()[1]
        span = f"{first}-{min(first + 40, 65_535)}"
        with closing(Yard(tmp_path, crew__port_range=span, crew__ports=2)) as yard:
            one, two = yard.start(), yard.start()
            given = [yard.get(each)["ports"] for each in (one, two)]
            assert first not in given[0] and len({*given[0], *given[1]}) == 4
            found = yard.environment(one)
            assert [int(found["CREWHALL_PORT"]), int(found["CREWHALL_PORT_2"])] == given[0]
            yard.call("instance_abandon", id=one["instance_id"])
            assert yard.get(one)["ports"] == []
            assert set(yard.get(yard.start())["ports"]) & set(given[0]), "they are handed out again"


def test_a_range_that_is_used_up_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with closing(Yard(tmp_path, crew__port_range="42100-42101", crew__ports=3)) as yard:
        with pytest.raises(LimitExceeded, match="of 3 ports are free") as refused:
            yard.start()
        assert "crew.port_range" in refused.value.hint
        assert yard.call("instance_list")["total"] == yard.call("agent_list")["total"] == 0
        assert git(yard.root, "branch", "--list") == "* main"
