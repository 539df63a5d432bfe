"""A hall with a repository and a runtime that is a real script in a real tmux."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.families.crew.run_directory import RunDirectory, directories_below, run_directory
from crewhall.families.crew.site import tmux_of
from crewhall.identity import Actor
from crewhall.outside.tmux import Tmux
from tests.conftest import Clock, eventually
from tests.families.work.workflows import sql
from tests.outside.repos import git, make_repository
from tests.replay import assert_replayed

PERSON = Actor("operator", "operator", proof="token")
# Notes what it got, says its state if its prompt ends with one, and waits; `end N` and `kill` end it.
PROGRAM = r"""
import json, os, signal, sys, time
prompt = sys.argv[1]
with open(os.environ["CREWHALL_STATE_FILE"] + ".got", "w") as file:
    facts = {"prompt": prompt, "file": open(sys.argv[2]).read(), "cwd": os.getcwd()}
    json.dump({**facts, "environment": dict(os.environ)}, file)
os.replace(file.name, os.path.dirname(file.name) + "/got.json")
last = prompt.rstrip().splitlines()[-1]
word, _, rest = last.partition(" ")
if word == "state":
    with open(os.environ["CREWHALL_STATE_FILE"], "w") as file:
        file.write(rest)
if word == "end":
    sys.exit(int(rest))
if word == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


class Site:
    """A hub, a repository, and what of instances is there."""

    def __init__(self, hub: Hub, directory: Path, clock: Clock) -> None:
        self.hub, self.clock = hub, clock
        self.is_replayed = True  # at the end; not after a test has written rows by itself
        self.repository = Path(make_repository(directory / "shop").root)

    @property
    def tmux(self) -> Tmux:
        return tmux_of(self.hub.settings)

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return self.hub.call(tool, arguments, PERSON)

    def start(self, prompt: str = "Try it", **more: Any) -> str:
        """Start an instance; its id."""
        given = {"title": "trial", "repository_path": str(self.repository), "runtime": "custom", **more}
        found: str = self.call("instance_start", prompt=prompt, **given)["instance_id"]
        return found

    def refusal(self, tool: str, /, **arguments: Any) -> Failure:
        """The failure that a call raises, which has a message and a hint."""
        with pytest.raises(Failure) as caught:
            self.call(tool, **arguments)
        assert caught.value.message and caught.value.hint
        return caught.value

    def refused_start(self, **more: Any) -> Failure:
        """The failure of a start that leaves nothing."""
        before = self.leftovers()
        given = {"prompt": "Try it", "title": "trial", "repository_path": str(self.repository), "runtime": "custom"}
        failure = self.refusal("instance_start", **given | more)
        assert self.leftovers() == before
        return failure

    def place(self, instance_id: str) -> RunDirectory:
        return run_directory(self.hub.settings, instance_id)

    def received(self, instance_id: str) -> dict[str, Any]:
        """What the program of an instance got: prompt, file, cwd and environment."""
        path = self.place(instance_id).path / "got.json"
        found: dict[str, Any] = json.loads(eventually(path.read_text))
        return found

    def state(self, instance_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("instance_get", id=instance_id)["state"]
        return found

    def leftovers(self) -> dict[str, Any]:
        """All that starts leave: rows, agents, branches, worktrees, run directories, sessions."""
        root = self.repository
        return {
            "rows": sql(self.hub, "SELECT id FROM instance"),
            "operations": sql(self.hub, "SELECT id FROM operation"),
            "agents": sql(self.hub, "SELECT id FROM agent"),
            "refs": git(root, "for-each-ref", "--format=%(refname)", check=False) if root.is_dir() else "",
            "worktrees": git(root, "worktree", "list", check=False) if root.is_dir() else "",
            "directories": sorted(one.name for one in root.parent.glob("*-worktrees/*")),
            "runs": directories_below(self.hub.settings),
            "sessions": self.tmux.panes() if shutil.which("tmux") else {},
        }

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self.tmux.name, "kill-server"], capture_output=True, timeout=20, check=False)


@pytest.fixture
def make_site(make_hub: Callable[..., Hub], tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Site]]:
    """Sites of one hall; settings as `make_hub` takes them."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    sites: list[Site] = []
    runtimes = {"custom": {"command": ["python3", str(program), "{prompt}", "{prompt_file}"]}}

    def make(name: str = "site", **more: Any) -> Site:
        hub = make_hub(clock=clock, **{"crew__runtimes": runtimes, **more})
        sites.append(Site(hub, tmp_path / name, clock))
        return sites[-1]

    yield make
    for site in sites:
        site.close()
    if sites and all(site.is_replayed for site in sites):  # all are of one hall
        assert_replayed(sites[-1].hub)


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()
