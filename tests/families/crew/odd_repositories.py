"""What tests of odd repositories have in common: an instance's whole life, and what it may leave."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from crewhall.app import Hub
from crewhall.families.all import registry
from tests.conftest import Clock, eventually, settings_for
from tests.families.crew.conftest import PROGRAM, Site
from tests.outside.repos import fingerprint, git

OBJECTS = (".git/objects", "objects")  # git keeps those of a branch that is gone for some weeks


@contextmanager
def site_at(directory: Path, home: Path) -> Iterator[Site]:
    """A hall with this home, and a repository."""
    program = directory / "program.py"
    program.write_text(PROGRAM)
    runtimes = {"custom": {"command": ["python3", str(program), "{prompt}", "{prompt_file}"]}}
    chosen = settings_for(str(directory / "hall.db"), home, crew__runtimes=runtimes)
    clock = Clock()
    with closing(Hub(chosen, registry(), clock=clock)) as hub, closing(Site(hub, directory / "site", clock)) as site:
        yield site


def traces(site: Site) -> dict[str, Any]:
    """What an instance may leave outside the hall's database."""
    homes = sorted(str(one) for one in site.repository.parent.glob("*-worktrees"))
    left = site.leftovers()
    return {"homes": homes} | {name: value for name, value in left.items() if name not in ("rows", "agents")}


def start(site: Site, **more: Any) -> dict[str, Any]:
    """An instance whose program runs in a worktree of its own, in which nothing is changed."""
    given = {"title": "trial", "repository_path": str(site.repository), "runtime": "custom", "prompt": "Try it"}
    made = site.call("instance_start", **given | more)
    got = site.place(made["instance_id"]).path / "got.json"
    eventually(got.exists)
    assert json.loads(got.read_text())["cwd"] == made["worktree_path"]
    assert git(made["worktree_path"], "status", "--porcelain") == ""
    assert git(made["worktree_path"], "branch", "--show-current") == made["branch_name"]
    assert made["session_name"] in site.tmux.panes()
    return made


def live(site: Site, **more: Any) -> dict[str, Any]:
    """Start an instance and abandon it: nothing is left of it, and the person's files and git state are as before."""
    before, persons = traces(site), fingerprint(site.repository, OBJECTS)
    made = start(site, **more)
    ended = site.call("instance_abandon", id=made["instance_id"])
    assert (ended["problem"], ended["saved_refs"]) == (None, [])
    assert traces(site) == before
    assert fingerprint(site.repository, OBJECTS) == persons
    return made
