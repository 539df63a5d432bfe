"""The tools of instances, with real git, tmux and programs: good calls, refusals, and calls at once."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crewhall import config
from crewhall.errors import Failure, InvalidState
from crewhall.identity import Credentials
from tests.conftest import eventually
from tests.families.crew.conftest import Site
from tests.families.work.workflows import plan_workflow, sql, task
from tests.outside.repos import commit, git, refs

pytestmark = pytest.mark.slow

ON_ID = ("instance_get", "instance_stop", "instance_restart", "instance_abandon", "instance_output")


def test_an_instance_goes_through_its_life(site: Site) -> None:
    made = site.call(
        "instance_start", prompt="Try it", issue_number=7, repository_path=str(site.repository), runtime="custom"
    )
    name = made["instance_id"]
    assert (name, made["branch_name"], made["session_name"]) == ("work-7-a1", "work-7-a1", "work-7-a1")
    assert site.received(name)["cwd"] == made["worktree_path"] and name in site.tmux.panes()
    assert name in made["attach"] and made["base_branch"] == "main"
    assert [one["id"] for one in site.call("instance_list")["instances"]] == [name]
    assert site.call("instance_list", status=["terminated"])["total"] == 0
    assert site.call("instance_output", id=name)["is_live"]
    assert site.call("instance_stop", id=name)["status"] == "terminated"
    assert name not in site.tmux.panes() and Path(made["worktree_path"]).is_dir()
    assert site.call("instance_restart", id=name)["status"] == "started" and name in site.tmux.panes()
    assert site.call("instance_abandon", id=name)["status"] == "abandoned"
    assert not Path(made["worktree_path"]).exists() and not site.tmux.panes()
    assert git(site.repository, "branch", "--list", name) == ""


def test_an_instance_is_known_by_its_token_until_it_is_stopped(site: Site) -> None:
    name = site.start(title="Größere Schrift!", tier=3, role="coordinator")
    assert name == "work-groere-schrift-a1"
    agent = site.call("agent_get", id=site.call("instance_get", id=name)["agent_id"])
    assert (agent["name"], agent["role"], agent["type"]) == (name, "coordinator", "coding")
    given = site.received(name)["environment"]
    token = given["CREWHALL_TOKEN"]
    actor = site.hub.identify(Credentials(token=token))
    assert (actor.id, actor.instance, actor.tier) == (agent["id"], name, 3)
    servers = json.loads(Path(given["CREWHALL_MCP_CONFIG"]).read_text())["mcpServers"]
    assert servers["crewhall"]["env"]["CREWHALL_TOKEN"] == token
    written = [site.place(name).path / one for one in ("launch.json", "mcp.json", "prompt.md")]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    with pytest.raises(InvalidState, match=f"is instance {name}"):
        site.call("agent_token_create", agent_id=agent["id"])
    site.call("instance_stop", id=name)
    with pytest.raises(Failure, match="wrong, expired or revoked"):
        site.hub.identify(Credentials(token=token))


def test_a_command_in_the_session_finds_the_hall_by_the_hubs_own_variables(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = site.hub.settings.database
    monkeypatch.setenv("CREWHALL_DATABASE_URL" if "://" in database else "MCP_DATABASE_PATH", database)
    found = site.received(site.start())["environment"]
    assert config.load(found).database == database


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_an_instance_gets_the_usual_variables_and_those_that_the_operator_names(
    make_site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STRIPE_KEY", "DATABASE_URL", "SHOP_PASS", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "value")
    site = make_site(programs__variables="SHOP_*")
    given = site.received(site.start())["environment"]
    assert {name for name, value in given.items() if value == "value"} == {"SHOP_PASS", "XDG_CACHE_HOME"}


def test_calls_of_an_instance_are_in_the_log_under_its_id(site: Site) -> None:
    name = site.start()
    actor = site.hub.identify(Credentials(token=site.received(name)["environment"]["CREWHALL_TOKEN"]))
    site.hub.call("agent_list", {}, actor)
    with pytest.raises(Failure):
        site.hub.call("instance_stop", {"id": name}, actor)
    asked = "SELECT tool_name, success, error, git_commit_hash, status_before, status_after FROM mcp_events"
    asked += f" WHERE instance_id = '{name}'"
    rows = eventually(lambda: len(found := sql(site.hub, asked)) == 2 and found)
    assert {(row["tool_name"], row["success"], row["error"]) for row in rows} == {
        ("agent_list", 1, None),
        ("instance_stop", 0, "FORBIDDEN"),
    }
    assert [one["instance_id"] for one in site.call("call_list", actor=actor.id)["calls"]] == [name, name]


@pytest.mark.parametrize("tool", ON_ID)
def test_an_unknown_id_and_a_malformed_one_are_refused(site: Site, tool: str) -> None:
    unknown = site.refusal(tool, id="work-404-a1")
    assert unknown.code == "NOT_FOUND" and unknown.fields["instance_id"] == "work-404-a1"
    bad = site.refusal(tool, id="work 1; rm")
    assert bad.code == "INVALID_INPUT" and "work 1; rm" in bad.message


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"runtime": "nope"}, "INVALID_INPUT", "no runtime 'nope'"),
        ({"base_branch": "nope"}, "INVALID_INPUT", "no branch or commit 'nope'"),
        ({"base_branch": "--help"}, "INVALID_INPUT", "--help"),
        ({"repository_path": "shop"}, "INVALID_INPUT", "repository"),
        ({"repository_path": "/proc"}, "INVALID_STATE", "/proc"),
        ({"prompt": ""}, "INVALID_INPUT", "prompt"),
        ({"tier": 4}, "INVALID_INPUT", "tier"),
        ({"type": "cooking"}, "INVALID_INPUT", "type"),
    ],
)
def test_a_bad_start_is_refused_and_leaves_nothing(site: Site, given: dict[str, Any], code: str, words: str) -> None:
    failure = site.refused_start(**given)
    assert failure.code == code and words in failure.message


def test_a_list_has_the_first_line_of_a_prompt(site: Site) -> None:
    name = site.start("Fix it\n\nThe list is too long.")
    assert [one["prompt"] for one in site.call("instance_list")["instances"]] == ["Fix it"]
    assert site.call("instance_get", id=name)["prompt"].endswith("too long.")


def test_a_file_in_the_place_of_worktrees_is_refused_by_its_name(site: Site) -> None:
    Path(f"{site.repository}-worktrees").write_text("in the way")
    assert site.refused_start().fields["instance_id"] == "work-trial-a1"


def test_a_locked_worktree_is_a_problem_until_it_is_unlocked(site: Site) -> None:
    name = site.start()
    tree = site.call("instance_get", id=name)["worktree"]
    git(site.repository, "worktree", "lock", tree)
    ended = site.call("instance_abandon", id=name)
    assert ended["status"] == "abandoned" and "locked" in ended["problem"]
    git(site.repository, "worktree", "unlock", tree)
    site.hub.chores.run_one("instance_worktrees")
    assert site.call("instance_get", id=name)["problem"] is None and not Path(tree).exists()


def test_a_wrong_status_is_refused_by_name(site: Site) -> None:
    name = site.start()
    running = site.refusal("instance_restart", id=name)
    assert running.code == "INVALID_STATE" and "is started" in running.message
    site.call("instance_stop", id=name)
    for tool, more in (("instance_stop", {}), ("instance_send", {"text": "hello"})):
        failure = site.refusal(tool, id=name, **more)
        assert failure.code == "INVALID_STATE" and "is terminated" in failure.message
        assert failure.fields["instance_id"] == name
    site.call("instance_abandon", id=name)
    for tool in ("instance_stop", "instance_restart", "instance_abandon"):
        failure = site.refusal(tool, id=name)
        assert failure.code == "INVALID_STATE" and failure.fields["instance_id"] == name


def test_a_persons_own_branch_is_left_alone(site: Site) -> None:
    git(site.repository, "branch", "work-trial-a1")
    assert site.start() == "work-trial-a2"


def test_of_stop_and_abandon_at_once_one_wins(site: Site) -> None:
    name = site.start()

    def end(tool: str) -> str:
        try:
            return str(site.call(tool, id=name)["status"])
        except Failure as failure:
            assert failure.fields["instance_id"] == name
            return failure.code

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(end, ("instance_stop", "instance_abandon")))
    now = site.call("instance_get", id=name)["status"]
    assert now in found and found.count("INVALID_STATE") <= 1 and not site.tmux.panes()


@pytest.mark.parametrize("tool", ["instance_abandon"])
def test_no_message_is_taken_for_an_instance_that_is_being_ended(
    make_site: Callable[..., Site], tmp_path: Path, tool: str
) -> None:
    """It would be told as queued, and lost with the instance."""
    words = ["sh", "-c", f"trap '' TERM HUP; echo > {tmp_path}/ready; while :; do sleep 0.05; done"]
    site = make_site(crew__runtimes={"custom": {"command": words}})
    name = site.start()
    eventually((tmp_path / "ready").exists)
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(site.call, tool, id=name)
        eventually(lambda: sql(site.hub, "SELECT kind FROM operation"))
        refused = site.refusal("instance_send", id=name, text="hello")
        assert ended.result(30)
    assert refused.code == "INVALID_STATE" and f"in the middle of {tool.replace('_', ' ')}" in refused.message
    assert sql(site.hub, "SELECT id FROM instance_message") == []


@pytest.mark.parametrize("end", ["instance_stop", "instance_abandon"])
def test_a_call_that_waited_until_its_instance_ended_changes_nothing(site: Site, end: str) -> None:
    """It was identified before the end, and waits for a thread, a lock or git meanwhile."""
    name = site.start()
    late = site.hub.identify(Credentials(token=site.received(name)["environment"]["CREWHALL_TOKEN"]))
    _, tasks = plan_workflow(site.call, task("a"))
    about = {"name": "w", "source_type": "prompt", "source_content": "w", "repository_path": str(site.repository)}
    workflow = site.call("workflow_create", **about)["id"]
    site.call(end, id=name)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("task_claim", {"task_id": tasks["a"]}),
        ("agent_heartbeat", {}),
        ("agent_register", {"name": "ada", "runtime": "custom"}),
        ("message_send", {"recipient_id": "operator", "message_type": "query", "body": "x"}),
        ("message_send", {"recipient_id": "operator", "message_type": "query", "body": "x", "idempotency_key": "1"}),
        ("workspace_create", {"workflow_id": workflow, "branch": "late"}),
    ]
    before = [sql(site.hub, f"SELECT * FROM {table}") for table in ("agent", "task", "message", "workspace")]
    for tool, given in calls:
        with pytest.raises(Failure) as refused:
            site.hub.call(tool, given, late)
        assert (refused.value.code, refused.value.status) == ("FORBIDDEN", 401), (tool, refused.value.message)
    site.hub.chores.run_due()
    assert [sql(site.hub, f"SELECT * FROM {table}") for table in ("agent", "task", "message", "workspace")] == before
    assert "late" not in git(site.repository, "branch", "--list")


def test_a_dead_instance_can_be_restarted(site: Site) -> None:
    name = site.start("end 3")
    eventually(lambda: site.state(name)["name"] == "ended")
    assert site.call("instance_restart", id=name)["status"] == "started"
    eventually(lambda: "exit 3" in site.state(name)["evidence"])


def test_an_instances_name_is_its_own_while_it_may_go_on_and_its_agent_is_put_away_after(site: Site) -> None:
    def register() -> str:
        return str(site.call("agent_register", name="work-trial-a1", runtime="codex")["name"])

    assert register() == "work-trial-a1"
    name = site.start()
    agent = site.call("instance_get", id=name)["agent_id"]
    assert name == site.call("agent_get", id=agent)["name"] == "work-trial-a2"
    site.call("instance_stop", id=name)
    assert site.call("agent_register", name=name, runtime="codex")["name"] == "work-trial-a2-2"
    refused = site.refusal("agent_archive", id=agent)
    assert refused.code == "INVALID_STATE" and f"crewhall instance abandon {name}" in refused.hint
    site.call("instance_restart", id=name)
    assert site.call("agent_get", id=agent)["name"] == name
    site.call("instance_abandon", id=name)
    site.call("agent_archive", id=agent)
    assert site.call("agent_get", id=agent)["archived_at"] is not None


def test_abandoning_saves_uncommitted_work_and_keeps_commits(site: Site) -> None:
    name = site.start()
    tree = Path(site.call("instance_get", id=name)["worktree"])
    (tree / "new").write_text("committed\n")
    tip = commit(tree, "second")
    (tree / "file-0").write_text("not committed\n")
    saved = site.call("instance_abandon", id=name)["saved_refs"]
    assert saved == [f"refs/crewhall/saved/{name}"] and not tree.exists()
    assert git(site.repository, "show", f"{saved[0]}:file-0") == "not committed"
    assert refs(site.repository)[f"refs/heads/{name}"] == tip


def test_a_repository_has_a_prompt_of_its_own(site: Site) -> None:
    (site.repository / ".crewhall/prompts").mkdir(parents=True)
    (site.repository / ".crewhall/prompts/coding.md").write_text("You are {{instance}}.\n{{task}}\nBe kind.\n")
    commit(site.repository, "a prompt")
    name = site.start("Fix {{branch}}")
    assert site.received(name)["prompt"] == f"You are {name}.\nFix {{{{branch}}}}\nBe kind.\n"


def test_a_prompt_of_the_repository_that_is_no_text_is_refused(site: Site) -> None:
    (site.repository / ".crewhall/prompts").mkdir(parents=True)
    (site.repository / ".crewhall/prompts/coding.md").write_bytes(b"\xff\xfe")
    commit(site.repository, "no prompt")
    failure = site.refused_start()
    assert failure.code == "INVALID_STATE" and failure.fields["instance_id"] == "work-trial-a1"


@pytest.mark.parametrize(
    "prompt",
    ["-rf 'single' \"double\" $HOME `id`;", "one\n\n  two\t{worktree} {prompt_file}", "ü 漢 🎉 \\n", "x" * 99_999],
    ids=("quotes", "lines", "unicode", "long"),
)
def test_a_prompt_arrives_whole(make_site: Callable[..., Site], tmp_path: Path, prompt: str) -> None:
    site = make_site()
    (site.repository / ".crewhall/prompts").mkdir(parents=True)
    (site.repository / ".crewhall/prompts/coding.md").write_text("{{task}}")
    commit(site.repository, "only the task")
    found = site.received(site.start(prompt))
    assert found["prompt"] == prompt and found["file"] == prompt


def test_a_prompt_that_no_program_can_be_started_with_is_refused(site: Site) -> None:
    """Characters of several bytes: 100,000 of them are more than Linux takes in an argument."""
    failure = site.refused_start(prompt="語" * 50_000)
    assert failure.code == "INVALID_INPUT" and "131071" in failure.message
    assert failure.fields["instance_id"] == "work-trial-a1"


def test_without_tmux_nothing_is_left(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for program in ("git", "python3"):
        (tmp_path / "bin" / program).symlink_to(f"/usr/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    failure = site.refused_start()
    assert failure.code == "UNAVAILABLE" and "tmux" in failure.message and "Install tmux" in failure.hint


@pytest.mark.parametrize(
    "runtime",
    [
        {"command": ["no-such-program", "{prompt}"]},
        {"command": ["/nowhere/sleep", "600"]},
        {"command": ["sleep", "600"], "environment": {"PATH": "/nowhere:/tmp"}},
    ],
    ids=("in PATH", "absolute", "in its own PATH"),
)
def test_a_start_without_its_program_is_refused_and_leaves_nothing(
    make_site: Callable[..., Site], runtime: dict[str, Any]
) -> None:
    failure = make_site(crew__runtimes={"custom": runtime}).refused_start()
    assert failure.code == "UNAVAILABLE" and f"needs {runtime['command'][0]}, which" in failure.message
    assert "[crew.runtimes.custom]" in failure.hint
    assert "instance_id" not in failure.fields  # it was not even begun


def test_what_is_started_later_is_refused_when_the_program_has_gone(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    site = make_site(crew__runtimes={"custom": {"command": [str(program), "{prompt}"]}})
    name = site.start()
    tree = Path(site.call("instance_get", id=name)["worktree"])
    (tree / "new").write_text("new\n")
    commit(tree, "work of the instance")
    program.unlink()
    before = site.leftovers()["rows"], site.leftovers()["worktrees"], site.leftovers()["runs"]
    review = site.refusal("request_review", instance_id=name)
    assert review.code == "UNAVAILABLE" and str(program) in review.message
    assert (site.leftovers()["rows"], site.leftovers()["worktrees"], site.leftovers()["runs"]) == before
    assert site.call("instance_get", id=name)["status"] == "started"
    site.call("instance_stop", id=name)
    restart = site.refusal("instance_restart", id=name)
    assert restart.code == "UNAVAILABLE" and str(program) in restart.message
    assert site.call("instance_get", id=name)["status"] == "terminated"


def test_a_program_that_is_not_there_is_named(make_site: Callable[..., Site]) -> None:
    """One in the worktree, which a setup might have made."""
    site = make_site(crew__runtimes={"custom": {"command": ["./no-such-program", "{prompt}"]}})
    name = site.start()
    wanted = "gone: could not be started: ./no-such-program: No such file or directory, "
    eventually(lambda: site.state(name)["evidence"].startswith(wanted))
    assert site.state(name)["name"] == "ended"


def test_a_full_hall_takes_no_instance(make_site: Callable[..., Site]) -> None:
    site = make_site(agent__max=1)
    site.call("agent_register", name="ada", runtime="codex")
    failure = site.refused_start()
    assert failure.code == "LIMIT_EXCEEDED" and "1" in failure.message


def test_events_tell_an_instances_life(site: Site) -> None:
    name = site.start()
    for tool in ("instance_stop", "instance_restart", "instance_abandon"):
        site.call(tool, id=name)
    events = site.call("event_list", subject=name, limit=50, topic="instance")["events"]
    assert [one["what"] for one in events] == [
        f"instance.{verb}" for verb in ("started", "ended", "stopped", "restarted", "abandoned")
    ]
