"""Where bridges and hubs meet: one lock, one socket, for each hall and user."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from crewhall import config
from crewhall.edges.bridge.hello import client_variables, version_of
from crewhall.edges.bridge.hub_socket import HubSocket, hall_key, is_own
from crewhall.edges.bridge.launch import hub_environment
from tests.postgres import missing


def hub_socket(home: Path, **more: str) -> HubSocket:
    return HubSocket(config.load(more, {"home": str(home)}))


def test_one_at_a_time_holds_the_lock_and_a_child_may_keep_it(tmp_path: Path) -> None:
    place = hub_socket(tmp_path)
    held = place.try_lock()
    assert held is not None and place.try_lock() is None
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=[held], stdin=subprocess.PIPE
    )
    os.close(held)
    assert place.try_lock() is None, "the child has it"
    child.kill()
    child.wait()
    if child.stdin is not None:
        child.stdin.close()
    freed = place.try_lock()
    assert freed is not None
    os.close(freed)


def test_the_socket_is_for_its_user_alone(tmp_path: Path) -> None:
    place = hub_socket(tmp_path / "home")
    lock = place.try_lock()
    assert lock is not None
    with place.listen():
        assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.home.stat().st_mode) == 0o700
        place.connect().close()
    with pytest.raises(OSError), place.connect():
        pass
    with place.listen():  # over what a dead hub has left
        place.connect().close()
    os.close(lock)


STRANGER = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.recv(1)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a process as another user")
def test_another_user_is_refused_though_the_socket_lets_it_in(tmp_path: Path) -> None:
    path = Path("/tmp") / f"crewhall-test-{os.getpid()}.sock"
    python = Path("/usr/bin/python3")
    if not python.exists():
        missing("a Python that every user may run")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen()
        words = ["runuser", "-u", "nobody", "--", str(python), "-S", "-c", STRANGER, str(path)]
        stranger = subprocess.Popen(words, cwd="/")
        listener.settimeout(20)
        connection, _ = listener.accept()
        with connection:
            assert not is_own(connection)
        stranger.wait(20)
    path.unlink()


def test_a_hall_is_known_by_its_database(tmp_path: Path) -> None:
    one = config.load({}, {"home": str(tmp_path)})
    same = config.load({"MCP_DATABASE_PATH": f"{tmp_path}/../{tmp_path.name}/hall.db"}, {"home": str(tmp_path)})
    other = config.load({"MCP_DATABASE_PATH": str(tmp_path / "other.db")}, {"home": str(tmp_path)})
    assert hall_key(one) == hall_key(same) != hall_key(other)


def test_what_a_client_scrubs_does_not_move_the_meeting_place(tmp_path: Path) -> None:
    full = hub_socket(tmp_path, TMPDIR="/elsewhere", XDG_RUNTIME_DIR="/run/user/1", USER="ada")
    assert full.socket == hub_socket(tmp_path).socket


@pytest.mark.parametrize(("older", "newer"), [("0.1.0", "0.1.1"), ("0.9.2", "0.10.0"), ("1.0", "1.0.1"), ("", "0.1")])
def test_versions_are_compared_as_numbers(older: str, newer: str) -> None:
    assert version_of(older) < version_of(newer)


def test_a_hub_gets_nothing_that_is_one_clients_alone() -> None:
    mine = {"PATH": "/bin", "CREWHALL_HOME": "/h", "ANTHROPIC_API_KEY": "k"}
    theirs = {"GITHUB_TOKEN": "t", "CREWHALL_TOKEN": "t", "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s"}
    theirs |= {"CREWHALL_PULLS_GITHUB_URL": "u", "CREWHALL_PULLS_ALLOW": "*", "CREWHALL_PULLS_DRY_RUN": "1"}
    theirs |= {"CREWHALL_PROGRAMS_VARIABLES": "*"}
    theirs |= {"CREWHALL_JUDGE_COMMAND": "evil", "CREWHALL_JUDGE_SKIP_PERMISSIONS": "1"}
    assert hub_environment(mine | theirs) == mine
    assert hub_environment(mine | {"CLAUDE_CONFIG_DIR": "/c"}) == mine | {"CLAUDE_CONFIG_DIR": "/c"}
    instance = {"CREWHALL_INSTANCE": "work-1-a1", "CREWHALL_STATE_FILE": "s", "CREWHALL_MCP_CONFIG": "m"}
    instance |= {"CREWHALL_PORT": "1", "CREWHALL_PORT_2": "2", "CLAUDE_CONFIG_DIR": "/run/claude", "IS_SANDBOX": "1"}
    assert hub_environment(mine | instance) == mine


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"PATH": "/bin", "GITHUB_TOKEN": "t"}, {"GITHUB_TOKEN": "t"}),
        ({"GITHUB_TOKEN": "${GITHUB_TOKEN}", "CLAUDEOPS_TIER": ""}, {"CLAUDEOPS_TIER": ""}),
        ({"CREWHALL_PULLS_DRY_RUN": "1"}, {"CLAUDEOPS_DRY_RUN": "1"}),
        ({"CREWHALL_PULLS_DRY_RUN": "1", "CLAUDEOPS_DRY_RUN": "0"}, {"CLAUDEOPS_DRY_RUN": "0"}),
        ({"CREWHALL_PULLS_GITHUB_TOKEN": "t", "CREWHALL_PULLS_OPERATOR_TIER": "3"}, {}),
    ],
)
def test_what_a_clients_environment_says_of_its_calls(environment: dict[str, str], told: dict[str, str]) -> None:
    assert client_variables(environment) == told
