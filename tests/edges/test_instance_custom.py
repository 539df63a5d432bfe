"""A `custom` instance in a real hub and a real tmux: its program is an MCP client that works, dies and is restarted."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crewhall.edges.bridge.address_files import running_hubs
from crewhall.families.crew.run_directory import run_directory
from crewhall.families.crew.site import tmux_of
from crewhall.outside.leftovers import process_ids
from crewhall.outside.processes import identify, marked_processes, trees
from crewhall.token_file import read_operator_token
from tests.conftest import eventually
from tests.edges.claude import TOOLS
from tests.edges.program import Program, Up
from tests.edges.raw_http import http
from tests.edges.stdio import end_hubs, hubs
from tests.families.work.workflows import plan_workflow, task
from tests.outside.repos import commit, make_repository

Json = dict[str, Any]
SECONDS = 5.0  # in which a state is named right
GRACE = 2.0
AGENT = str(Path(__file__).with_name("scripted_agent.py"))
SETTINGS = f"""
[agent]
grace = "{GRACE}s"
heartbeat = "3s"

[crew.runtimes.custom]
command = ["{sys.executable}", "{AGENT}", "{{prompt}}"]
# A hub that its bridge starts is a process of its own, below the bridge.
environment = {{ TEST_PREFORK = "" }}
"""


class Site:
    """A hub in a process of its own, with a repository; it keeps the text of every answer."""

    def __init__(self, program: Program, up: Up, directory: Path) -> None:
        self.program, self.up, self.directory = program, up, directory
        self.url = up.url
        self.token = read_operator_token(program.home) or ""
        self.repository = Path(make_repository(directory / "shop").root)
        self.tmux = tmux_of(program.settings)
        self.answers: list[str] = []

    def ask(self, tool: str, /, **arguments: Any) -> Json:
        path = "/".join(TOOLS.find(tool).command)
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = http.post(f"{self.url}/api/v1/{path}", json=arguments, headers=headers)
        assert answer.status_code == 200, answer.text
        self.answers.append(answer.text)
        body: Json = answer.json()
        return body

    def start(self, title: str) -> str:
        """An instance; its program is connected once its state is idle."""
        where = {"repository_path": str(self.repository), "runtime": "custom"}
        return str(self.ask("instance_start", prompt="Obey", title=title, **where)["instance_id"])

    def tell(self, instance: str, **order: Any) -> None:
        self.ask("instance_send", id=instance, text=json.dumps(order))

    def lines(self, instance: str, name: str) -> list[Json]:
        path = run_directory(self.program.settings, instance).path / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def has(self, instance: str, tool: str, /, **arguments: Any) -> Json:
        """What the instance gets when it calls a tool of the hall."""
        return self._result(instance, call=[tool, arguments])

    def runs(self, instance: str, command: str) -> str:
        """The instance runs a shell command in its worktree; the output."""
        done = self._result(instance, run=command)
        assert done["code"] == 0, done
        return str(done["output"])

    def _result(self, instance: str, **order: Any) -> Json:
        before = len(self.lines(instance, "results.jsonl"))
        self.tell(instance, **order)
        found: Json = eventually(lambda: self.lines(instance, "results.jsonl")[before:], 20)[0]
        return found

    def state(self, instance: str, name: str, evidence: str, seconds: float = SECONDS) -> Json:
        """The state, once it has this name and evidence, which must be soon."""

        def has_state() -> Json | None:
            found: Json = self.ask("instance_get", id=instance)["state"]
            return found if (found["name"], evidence in found["evidence"]) == (name, True) else None

        try:
            state: Json = eventually(has_state, seconds)
        except AssertionError:
            now = self.ask("instance_get", id=instance)
            raise AssertionError(f"not {name}: {now}\n{self.tmux.capture(instance, 40)}") from None
        assert state["since"] is not None and "ago" in state["evidence"]
        return state

    def connected(self, instance: str) -> None:
        self.state(instance, "idle", "connected", 30)

    def kill(self, instance: str) -> None:
        """kill -9 of the instance's program."""
        os.kill(run_directory(self.program.settings, instance).read("started.json")["pid"], signal.SIGKILL)

    def times(self, *kinds: str) -> list[int]:
        """When the newest events of these kinds happened."""
        found = self.ask("event_list", limit=500)["events"]
        return [max(one["at"] for one in found if one["what"] == kind) for kind in kinds]


@contextmanager
def make_site(directory: Path, more_settings: str = "") -> Iterator[Site]:
    home = directory / "hall"
    home.mkdir()
    (home / "config.toml").write_text(f"[server]\nport = 0\n{SETTINGS}\n{more_settings}")
    program = Program(home)
    with program.up(CREWHALL_LOG_LEVEL="debug") as up:
        site = Site(program, up, directory)
        try:
            yield site
        finally:
            for session in site.tmux.panes():
                site.tmux.kill(session)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with make_site(tmp_path_factory.mktemp("custom")) as one:
        yield one


@pytest.mark.timeout(90)
def test_a_task_goes_on_in_the_next_instance(site: Site) -> None:
    _, tasks = plan_workflow(site.ask, task("colours"))
    first, held = site.start("first"), tasks["colours"]
    agent = site.ask("instance_get", id=first)["agent_id"]
    site.connected(first)
    assert site.has(first, "task_claim", task_id=held)["claim_epoch"] == 1
    assert site.ask("task_get", id=held)["claimed_by"] == agent
    site.has(first, "task_update_status", id=held, status="in_progress")
    site.has(first, "checkpoint_add", task_id=held, type="decision", summary="Green, because of the contrast.")

    site.kill(first)
    site.state(first, "ended", "killed by signal 9")
    eventually(lambda: site.ask("agent_get", id=agent)["connection"] == "disconnected", SECONDS)
    eventually(lambda: site.ask("task_get", id=held)["claimed_by"] is None, GRACE + 10)
    ended, freed = site.times("instance.ended", "task.expired")
    assert freed - ended >= GRACE * 1000
    kinds = [one["type"] for one in site.ask("checkpoint_list", task_id=held)["checkpoints"]]
    assert kinds == ["decision", "recovery"]

    second = site.start("second")
    site.connected(second)
    assert site.has(second, "task_claim", task_id=held)["claim_epoch"] == 2
    assert "Green, because of the contrast." in json.dumps(site.has(second, "task_load_context"))
    site.has(second, "task_update_status", id=held, status="in_progress")
    site.has(second, "task_update_status", id=held, status="completed", outcome="green")
    assert site.ask("task_get", id=held)["outcome"] == "green"

    made = site.ask("instance_get", id=second)
    assert site.ask("instance_stop", id=second)["status"] == "terminated"
    assert not marked_processes("CREWHALL_INSTANCE", second) and second not in site.tmux.panes()
    assert Path(made["worktree"]).is_dir()
    site.ask("instance_restart", id=second)
    site.connected(second)
    runs = site.lines(second, "runs.jsonl")
    assert [one["directory"] for one in runs] == [made["worktree"]] * 2 and runs[0]["pid"] != runs[1]["pid"]
    assert site.has(second, "agent_heartbeat")["success"], "its new token opens the hall"
    (Path(made["worktree"]) / "file-0").write_text("not committed\n")
    gone = site.ask("instance_abandon", id=second)
    assert (gone["status"], gone["saved_refs"]) == ("abandoned", [f"refs/crewhall/saved/{second}"])
    assert not Path(made["worktree"]).exists() and second not in site.tmux.panes()
    assert not run_directory(site.program.settings, second).path.exists()


@pytest.mark.timeout(90)
def test_every_state_is_named_within_seconds(site: Site) -> None:
    waits, worktree = site.directory / "waits", site.repository / "justfile"
    waits.touch()
    worktree.write_text(f"worktree-setup:\n    while [ -e {shlex.quote(str(waits))} ]; do sleep 0.02; done\n")
    commit(site.repository, "a recipe that waits")
    name = site.start("states")
    assert site.state(name, "starting", "has not started yet")["source"] == "launcher"
    waits.unlink()
    site.connected(name)
    for word, state in (("working", "working"), ("tool", "in a tool"), ("waiting", "waiting"), ("idle", "idle")):
        site.tell(name, state=word, detail="as told")
        assert site.state(name, state, f"the program wrote '{word}: as told'")["source"] == "state file"
    for code in (0, 1):
        site.tell(name, exit=code)
        assert site.state(name, "ended", f"gone: exit {code}")["source"] in ("launcher", "database")
        site.ask("instance_restart", id=name)
        site.connected(name)
    site.kill(name)
    site.state(name, "ended", "gone: killed by signal 9")
    assert eventually(lambda: site.ask("instance_get", id=name)["ended_how"], SECONDS) == "killed by signal 9"
    site.ask("instance_abandon", id=name)


def tokens_in(path: Path) -> set[str]:
    """The tokens of the hall that a file holds."""
    return set(re.findall(r"ch_[a-z]+_[\w-]{43}", path.read_text()))


def test_no_token_is_in_a_command_line_a_log_an_event_or_an_answer(site: Site) -> None:
    name = site.start("secrets")
    place = run_directory(site.program.settings, name)
    tokens = {site.token, *tokens_in(place.mcp_config)}
    site.connected(name)
    seen = [*command_lines(), *of_terminal(site, name), site.ask("instance_output", id=name)["text"]]
    site.has(name, "message_send", recipient_id="operator", message_type="notification", body="hello")
    site.ask("instance_stop", id=name)
    site.ask("instance_restart", id=name)
    tokens |= tokens_in(place.mcp_config)
    site.connected(name)
    seen += [*command_lines(), *of_terminal(site, name)]
    site.ask("instance_abandon", id=name)
    for tool in ("event_list", "call_list", "instance_list", "agent_list"):
        site.ask(tool, limit=500)
    seen += [site.up.log.read_text(), *site.answers]
    seen += [path.read_bytes().decode("latin-1") for path in site.program.home.glob("hall.db*")]
    assert len(tokens) == 3 and len(seen) > 50 and "hub is up" in site.up.log.read_text()
    assert [text for text in seen if any(token in text for token in tokens)] == []


def command_lines() -> list[str]:
    """Of all processes there are now."""
    found = [Path(f"/proc/{pid}/cmdline") for pid in process_ids()]
    return [path.read_bytes().decode("utf-8", "replace") for path in found if path.exists()]


def of_terminal(site: Site, session: str) -> list[str]:
    """What tmux shows of a session: its own and the server's environment, its command, its texts."""
    shown = [["show-environment", "-g"], ["show-environment", "-t", session], ["show-buffer"]]
    shown += [["list-panes", "-t", session, "-F", "#{pane_start_command} #{pane_title} #{pane_current_command}"]]
    words = ["tmux", "-L", site.tmux.name]
    return [subprocess.run([*words, *one], capture_output=True, text=True, check=False).stdout for one in shown]


# What another user sees: all that can be read of files and of processes, and which sockets can be connected to.
SPY = r"""
import json, os, socket, stat, sys
def names(top):
    for directory, below, files in os.walk(top):
        yield from (os.path.join(directory, name) for name in below + files)
def read(path):
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return file.read(1 << 24).decode("latin-1")
    except OSError:
        return ""
def connects(path):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        return True
    except OSError:
        return False
paths = [path for top in sys.argv[1:] for path in names(top)]
facts = ("environ", "cmdline", "maps", "cwd/.git", "root/etc/shadow", "mem", "fd/0", "fd/1", "io", "task")
paths += [f"/proc/{pid}/{fact}" for pid in os.listdir("/proc") if pid.isdigit() for fact in facts]
print(json.dumps({"read": {path: text for path in paths if (text := read(path))},
                  "sockets": [path for path in paths if connects(path)],
                  "write": [path for path in paths if os.access(path, os.W_OK)]}))
"""


@pytest.mark.skipif(
    os.getuid() != 0 or not Path("/usr/bin/python3").exists(), reason="only root can run a process as another user"
)
def test_another_user_learns_no_token_and_reaches_no_terminal() -> None:
    directory = Path(tempfile.mkdtemp(prefix="crewhall-spied-"))
    directory.chmod(0o755)
    before = os.umask(0o022)
    try:
        with make_site(directory) as site:
            name = site.start("spied")
            site.connected(name)
            tree = Path(site.ask("instance_get", id=name)["worktree"])
            place = run_directory(site.program.settings, name)
            secrets = [site.token, *tokens_in(place.mcp_config), "terminal of nobody's"]
            site.runs(name, "echo 'terminal of nobody'\"'\"s > /dev/tty")
            tops = [
                str(directory),
                f"/tmp/tmux-{os.getuid()}",
                f"/proc/{place.read('started.json')['pid']}/fd",
                "/dev/pts",
            ]
            words = ["/usr/bin/python3", "-I", "-c", SPY, *tops]
            done = subprocess.run(
                words, user=65534, group=65534, extra_groups=[], capture_output=True, timeout=40, check=True
            )
            found = json.loads(done.stdout)
            assert [path for path in found["read"] if path.startswith(f"{tree}/")], (
                "it was looked for in the right place"
            )
            assert [path for path, text in found["read"].items() if any(one in text for one in secrets)] == []
            home = str(site.program.home)  # which the test made open to all, with its config.toml
            reached = {path for path in (*found["read"], *found["sockets"]) if path.startswith(home)}
            assert reached <= {f"{home}/config.toml"} and place.prompt.is_file()
            assert [path for path in found["sockets"] if "tmux" in path] == []
            assert [path for path in found["write"] if path.startswith((str(directory), "/dev/pts/"))] == []
            site.ask("instance_abandon", id=name)
    finally:
        os.umask(before)
        shutil.rmtree(directory)


@pytest.mark.timeout(90)
def test_a_hub_that_an_instances_bridge_starts_outlives_the_instance(tmp_path: Path) -> None:
    with make_site(tmp_path) as site:
        name, home = site.start("host"), site.program.home
        site.connected(name)
        site.up.end(signal.SIGKILL)
        try:
            (pid,) = eventually(lambda: hubs(home), 30)
            leader = identify(site.tmux.panes()[name].pid)
            assert leader is not None and pid in [one.pid for one in trees([leader])[leader]], "it is below the bridge"
            assert b"CREWHALL_INSTANCE" not in Path(f"/proc/{pid}/environ").read_bytes()
            site.url = running_hubs(site.program.settings)[0]
            assert site.ask("instance_check")["differences"] == []
            assert site.ask("instance_stop", id=name)["status"] == "terminated"
            assert identify(pid) and not marked_processes("CREWHALL_INSTANCE", name)
        finally:
            end_hubs(home)
