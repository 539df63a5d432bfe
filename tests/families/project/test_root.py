"""Which worktree a call is about: by its server, by where its client is, and never by what somebody asks for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from crewhall.app import NOWHERE, Hub, Origin
from crewhall.errors import Failure
from crewhall.identity import OPERATOR
from tests.conftest import Agent
from tests.outside.repos import git, make_repository

sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A working tree with a directory in it."""
    root = Path(make_repository(tmp_path / "repo").root)
    (root / "src").mkdir()
    return root


def test_an_operators_directory_means_the_working_tree_that_it_is_in(hub: Hub, tree: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(str(tree), "worktree", "add", "-q", str(linked))
    (tree / "src/here").write_text("main\n")
    (linked / "here").write_text("linked\n")
    for directory, path, content in ((tree / "src", "src/here", "main\n"), (linked, "here", "linked\n")):
        answer = hub.call("read_file", {"path": path}, OPERATOR, edge="rest", origin=Origin(str(directory)))
        assert answer["content"] == content


@sqlite
def test_without_git_the_directory_itself_is_the_root(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "plain/deep").mkdir(parents=True)
    (tmp_path / "plain/above").write_text("x")
    inside = Origin(str(tmp_path / "plain/deep"))
    with pytest.raises(Failure, match="Path outside project root"):
        hub.call("read_file", {"path": "../above"}, OPERATOR, edge="bridge", origin=inside)


@sqlite
def test_a_call_from_nowhere_is_told_what_to_do(hub: Hub) -> None:
    with pytest.raises(Failure, match="which worktree") as refused:
        hub.call("read_file", {"path": "x"}, OPERATOR, edge="mcp", origin=NOWHERE)
    assert refused.value.code == "INVALID_STATE" and "worktree open" in refused.value.hint


@pytest.mark.parametrize("directory", ["/", "/proc/self", "~"])
@sqlite
def test_all_files_of_a_machine_or_a_person_are_no_project(hub: Hub, directory: str) -> None:
    where = str(Path(directory).expanduser())
    with pytest.raises(Failure, match="no project"):
        hub.call("list_directory", {}, OPERATOR, edge="bridge", origin=Origin(where))


def test_an_agent_from_elsewhere_gets_what_is_open_and_nothing_by_a_header(
    hub: Hub, tree: Path, tmp_path: Path
) -> None:
    agent = Agent(hub)
    (tree / "src/here").write_text("main\n")
    (tmp_path / "repo-not").mkdir()
    ask: Callable[..., object] = lambda edge, where: hub.call(  # noqa: E731
        "read_file", {"path": "src/here"}, agent.actor, edge=edge, origin=Origin(str(where))
    )
    with pytest.raises(Failure, match="no open worktree holds") as refused:
        ask("rest", tree)
    assert refused.value.code == "FORBIDDEN"
    assert ask("bridge", tree), "a bridge is a process of this very user, and tells where it is"
    hub.call("worktree_open", {"path": str(tree)}, OPERATOR)
    assert ask("rest", tree / "src")
    for elsewhere in (tmp_path, tmp_path / "repo-not", "/etc"):
        with pytest.raises(Failure, match="no open worktree holds"):
            ask("rest", elsewhere)
