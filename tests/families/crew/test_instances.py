"""Instances from their start to their end: what is refused, what is saved, and what their agents keep."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crewhall import config
from crewhall.families.crew.run_directory import directories_below, run_directory
from crewhall.families.crew.site import tmux_of
from crewhall.identity import Credentials
from crewhall.outside.processes import marked_processes
from tests.conftest import Clock, eventually
from tests.families.crew.yards import Yard
from tests.outside.repos import git

pytestmark = pytest.mark.slow


@pytest.fixture
def yard(tmp_path: Path, clock: Clock) -> Iterator[Yard]:
    with closing(Yard(tmp_path, clock=clock)) as one:
        yield one


def test_a_start_gives_worktree_session_token_and_agent(yard: Yard) -> None:
    started = yard.start(title="Größere Schrift!", tier=3, role="coordinator")
    assert started["instance_id"] == started["branch_name"] == started["session_name"] == "work-groere-schrift-a1"
    agent = yard.call("agent_get", id=started["agent_id"])
    assert (agent["name"], agent["role"], agent["type"]) == (started["instance_id"], "coordinator", "coding")
    found = yard.environment(started)
    actor = yard.hub.identify(Credentials(token=found["CREWHALL_TOKEN"]))
    assert actor.instance is not None
    assert (actor.id, actor.instance, actor.tier) == (started["agent_id"], started["instance_id"], 3)
    assert found["CREWHALL_TOKEN"] not in " ".join(
        one.words for one in marked_processes("CREWHALL_INSTANCE", actor.instance)
    )
    servers = json.loads(Path(found["CREWHALL_MCP_CONFIG"]).read_text())["mcpServers"]
    assert servers["crewhall"]["env"]["CREWHALL_TOKEN"] == found["CREWHALL_TOKEN"]
    modes = {path.stat().st_mode & 0o777 for path in run_directory(yard.hub.settings, actor.instance).path.iterdir()}
    assert modes == {0o600}


def test_a_command_in_the_session_finds_the_hall_by_the_hubs_own_variables(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_DATABASE_PATH", yard.hub.settings.database)
    found = yard.environment(yard.start())
    assert found["CREWHALL_DATABASE_PATH"] == yard.hub.settings.database
    assert config.load(found).database == yard.hub.settings.database


@pytest.mark.parametrize(
    "prompt",
    ["- a dash first\n\"quotes\" 'and' `more` $HOME\n{worktree} {{task}} ünï\t" + "x" * 60_000, "-- --help", "\n\n.\n"],
    ids=["long", "dashes", "blank"],
)
def test_the_prompt_arrives_whole_as_an_argument_and_as_a_file(tmp_path: Path, prompt: str) -> None:
    program = 'printf %s "$1" > env.txt; mv env.txt seen.txt; exec sleep 600'
    with closing(Yard(tmp_path)) as yard:
        words = ["sh", "-c", program, "sh", "{prompt}"]
        yard.hub.settings["crew.runtimes"]["custom"]["command"] = words
        started = yard.start(prompt=prompt, title="p")
        seen = Path(started["worktree_path"], "seen.txt")
        assert prompt in eventually(lambda: seen.exists() and seen.read_bytes().decode())
        place = run_directory(yard.hub.settings, started["instance_id"])
        assert place.prompt.read_bytes().decode() == seen.read_bytes().decode()


def test_a_repository_has_a_prompt_of_its_own(yard: Yard) -> None:
    (yard.root / ".crewhall/prompts").mkdir(parents=True)
    (yard.root / ".crewhall/prompts/coding.md").write_text("You are {{instance}}. Do: {{task}}\nThanks.\n")
    git(yard.root, "add", ".crewhall")
    git(yard.root, "commit", "-qm", "prompt")
    started = yard.start(prompt="this {{instance}}")
    text = run_directory(yard.hub.settings, started["instance_id"]).prompt.read_text()
    assert text == "You are work-this-instance-a1. Do: this {{instance}}\nThanks.\n"


def test_what_cannot_be_started_is_refused_and_leaves_nothing(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    bad: list[tuple[str, dict[str, Any], str]] = [
        ("INVALID_INPUT", {"runtime": "aider"}, "crew.runtimes.aider"),
        ("INVALID_INPUT", {"base_branch": "nowhere"}, "git branch"),
        ("INVALID_INPUT", {"repository_path": "shop"}, "absolute"),
        ("INVALID_STATE", {"repository_path": str(tmp_path / "plain")}, "git init"),
        ("NOT_FOUND", {"repository_path": str(tmp_path / "nothing")}, "path"),
        ("INVALID_INPUT", {"prompt": ""}, "prompt"),
        ("INVALID_INPUT", {"tier": 4}, ""),
        ("INVALID_INPUT", {"issue_number": 0}, ""),
    ]
    for code, arguments, hint in bad:
        where = {"prompt": "Do it", "repository_path": yard.repo.root, "runtime": "custom"}
        failure = yard.refusal("instance_start", **where | arguments)
        assert failure.code == code and hint in failure.hint, (arguments, failure.message, failure.hint)
    Path(f"{yard.repo.root}-worktrees").write_text("in the way")
    assert yard.refusal("instance_start", **where).fields["instance_id"] == "work-do-it-a1"
    assert yard.call("instance_list")["total"] == yard.call("agent_list")["total"] == 0
    assert git(yard.root, "branch", "--list") == "* main" and directories_below(yard.hub.settings) == []
    assert tmux_of(yard.hub.settings).panes() == {}


def test_a_missing_tmux_is_named_and_nothing_is_left(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("git", "sh"):
        os.symlink(f"/usr/bin/{name}", tmp_path / "bin" / name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    failure = yard.refusal("instance_start", prompt="x", repository_path=yard.repo.root, runtime="custom")
    assert failure.code == "UNAVAILABLE" and "tmux" in failure.message
    monkeypatch.undo()
    yard.hub.chores.run_one("settle_instance_start")
    assert yard.call("instance_list")["total"] == 0 and git(yard.root, "branch", "--list") == "* main"


def test_an_id_must_be_one_and_there(yard: Yard) -> None:
    for tool in ("instance_get", "instance_stop", "instance_restart", "instance_abandon", "instance_output"):
        wrong = yard.refusal(tool, id="work-1-b1")
        assert wrong.code == "INVALID_INPUT" and "work-1-b1" in wrong.message
        missing = yard.refusal(tool, id="work-1-a1")
        assert (missing.code, missing.fields["instance_id"]) == ("NOT_FOUND", "work-1-a1") and "list" in missing.hint


def test_each_status_has_its_ends_and_no_others(yard: Yard) -> None:
    one = yard.start()["instance_id"]
    assert yard.refusal("instance_restart", id=one).fields["status"] == "started"
    assert yard.call("instance_stop", id=one)["status"] == "terminated"
    assert yard.refusal("instance_stop", id=one).code == "INVALID_STATE"
    assert yard.refusal("instance_send", id=one, text="hello").code == "INVALID_STATE"
    assert yard.call("instance_restart", id=one)["status"] == "started"
    assert yard.call("instance_abandon", id=one)["status"] == "abandoned"
    for tool in ("instance_stop", "instance_restart", "instance_abandon"):
        assert yard.refusal(tool, id=one).code == "INVALID_STATE"
    events = [one["what"] for one in yard.call("event_list", limit=100)["events"]]
    named = [what for what in events if what.startswith("instance.")]
    assert named == [f"instance.{verb}" for verb in ("started", "ended", "stopped", "restarted", "abandoned")]


def test_a_stopped_instances_token_opens_nothing(yard: Yard) -> None:
    started = yard.start()
    token = yard.environment(started)["CREWHALL_TOKEN"]
    yard.call("instance_stop", id=started["instance_id"])
    with pytest.raises(Exception, match="wrong, expired or revoked"):
        yard.hub.identify(Credentials(token=token))


def test_abandoning_saves_uncommitted_work_and_keeps_commits(yard: Yard) -> None:
    started = yard.start()
    tree = Path(started["worktree_path"])
    (tree / "file-0").write_text("committed\n")
    git(tree, "commit", "-qam", "mine")
    (tree / "file-1").write_text("not committed\n")
    ended = yard.call("instance_abandon", id=started["instance_id"])
    assert ended["saved_refs"] == [f"refs/crewhall/saved/{started['instance_id']}"] and ended["problem"] is None
    assert git(yard.root, "show", f"{ended['saved_refs'][0]}:file-1") == "not committed"
    assert git(yard.root, "show", f"{started['branch_name']}:file-0") == "committed"
    assert not tree.exists() and directories_below(yard.hub.settings) == []


def test_a_worktree_that_is_locked_is_a_problem_until_it_is_free(yard: Yard) -> None:
    started = yard.start()
    git(yard.root, "worktree", "lock", started["worktree_path"])
    ended = yard.call("instance_abandon", id=started["instance_id"])
    assert ended["status"] == "abandoned" and "locked" in ended["problem"]
    git(yard.root, "worktree", "unlock", started["worktree_path"])
    yard.hub.chores.run_one("instance_worktrees")
    assert yard.get(started)["problem"] is None and not Path(started["worktree_path"]).exists()


def test_a_persons_branch_and_session_of_such_a_name_are_left_alone(yard: Yard) -> None:
    git(yard.root, "branch", "work-do-it-a1")
    before = git(yard.root, "rev-parse", "work-do-it-a1")
    started = yard.start()
    assert started["instance_id"] == "work-do-it-a2"
    yard.call("instance_abandon", id=started["instance_id"])
    assert git(yard.root, "rev-parse", "work-do-it-a1") == before


def test_many_at_once_collide_in_nothing(yard: Yard) -> None:
    found: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: found.append(yard.start())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert sorted(one["instance_id"] for one in found) == [f"work-do-it-a{n}" for n in range(1, 7)]
    threads = [
        threading.Thread(target=lambda one=one: yard.call("instance_abandon", id=one["instance_id"])) for one in found
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert git(yard.root, "branch", "--list") == "* main" and directories_below(yard.hub.settings) == []
    assert tmux_of(yard.hub.settings).panes() == {} and len(git(yard.root, "worktree", "list").splitlines()) == 1


# Its state, and what its agent keeps

STATES = [("working", "working"), ("tool", "in a tool"), ("waiting", "waiting"), ("idle", "idle")]


def test_a_program_tells_its_state_in_a_file(yard: Yard, clock: Clock) -> None:
    started = yard.start()
    file = Path(yard.environment(started)["CREWHALL_STATE_FILE"])
    assert yard.get(started)["state"]["name"] == "alive"
    for word, name in STATES:
        file.write_text(json.dumps({"state": word, "detail": "d", "at": clock.now - 240_000}))
        state = yard.get(started)["state"]
        assert (state["name"], state["source"], state["since"]) == (name, "state file", clock.now - 240_000)
        assert state["evidence"] == f"the program wrote '{word}: d' 4 min ago"
    for nonsense in ("", "[]", '{"state": "asleep"}', '{"state": 7}', "[" * 90_000):
        file.write_text(nonsense)
        assert yard.get(started)["state"]["name"] == "alive"


def test_an_instance_that_is_not_released_is_starting(yard: Yard) -> None:
    yard.hub.journal.at = lambda point: seen.append(yard.call("instance_list")["instances"][0]["state"]["name"])
    seen: list[str] = []
    yard.start()
    assert set(seen[:-1]) == {"starting"}


@pytest.mark.parametrize(("program", "how"), [("exit 0", "exit 0"), ("exit 1", "exit 1"), ("kill -9 $$", "signal 9")])
def test_an_end_is_named_and_frees_the_task_after_the_grace(
    tmp_path: Path, clock: Clock, program: str, how: str
) -> None:
    with closing(Yard(tmp_path, f"while [ ! -e end ]; do sleep 0.05; done; {program}", clock)) as yard:
        started = yard.start()
        task = claimed_task(yard, started["agent_id"])
        clock.advance(7200)  # a living process keeps its agent, however long it says nothing
        yard.hub.chores.run_one("instances")
        yard.hub.chores.run_one("presence")
        yard.hub.chores.run_one("leases")
        assert yard.call("task_get", id=task)["claimed_by"] == started["agent_id"]
        Path(started["worktree_path"], "end").touch()
        state = eventually(lambda: yard.get(started)["state"]["name"] == "ended" and yard.get(started)["state"])
        assert how in state["evidence"]
        yard.hub.chores.run_one("instances")
        agent = yard.call("agent_get", id=started["agent_id"])
        assert (agent["status"], agent["connection"], agent["disconnected_since"]) == (
            "offline",
            "disconnected",
            clock.now,
        )
        yard.hub.chores.run_one("leases")
        assert yard.call("task_get", id=task)["claimed_by"] == started["agent_id"], "the grace is not over"
        clock.advance(121)
        yard.hub.chores.run_one("leases")
        assert yard.call("task_get", id=task)["claimed_by"] is None
        types = [one["type"] for one in yard.call("checkpoint_list", task_id=task)["checkpoints"]]
        assert types == ["recovery"]


def test_a_restart_within_the_grace_keeps_the_task(yard: Yard, clock: Clock) -> None:
    started = yard.start()
    task = claimed_task(yard, started["agent_id"])
    os.kill(int(yard.get(started)["pid"]), signal.SIGKILL)
    eventually(lambda: yard.get(started)["state"]["name"] == "ended")
    yard.hub.chores.run_one("instances")
    yard.call("instance_restart", id=started["instance_id"])
    clock.advance(300)
    yard.hub.chores.run_one("instances")
    yard.hub.chores.run_one("presence")
    yard.hub.chores.run_one("leases")
    agent = yard.call("agent_get", id=started["agent_id"])
    assert (agent["status"], agent["connection"]) == ("busy", None)
    assert yard.call("task_get", id=task)["claimed_by"] == started["agent_id"]


def claimed_task(yard: Yard, agent_id: str) -> str:
    """A task that the agent holds."""
    workflow = yard.call("workflow_create", name="w", source_type="prompt", source_content="x")["id"]
    plan = {"summary": "", "approach": "", "tasks": [{"name": "a", "description": "", "sequence": 1}]}
    yard.call("workflow_set_plan", id=workflow, plan=plan)
    task: str = yard.call("workflow_next_tasks", workflow_id=workflow)["tasks"][0]["id"]
    assert yard.call("task_claim", task_id=task, agent_id=agent_id)["success"]
    return task
