"""`crewhall config`: what each client's settings get, printed or written; all else in the files stays."""

import json
import os
import shlex
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crewhall.config import load
from crewhall.edges.cli import main
from crewhall.edges.cli.in_process import call_here
from crewhall.errors import Conflict
from crewhall.families.project.open_worktrees import LISTENER
from crewhall.outside.clients.catalog import CLIENTS, HallTransport
from crewhall.outside.clients.settings_file import change
from tests.blocks import blocks_of, run, shows
from tests.conftest import Live, eventually
from tests.edges.interfaces import CREWHALL, announce
from tests.edges.prefork import Done
from tests.edges.program import PASSED_ON
from tests.families.work.claims import rows
from tests.outside.repos import git, make_repository

ROOT = Path(__file__).parents[2]
ELSEWHERE = ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "CODEX_HOME", "GEMINI_CLI_HOME", "CREWHALL_TOKEN")
JSONC = """\
{
    // My servers.
    "inputs": [],
    "servers": {
        "other": { "command": "x" }, /* not ours */
    },
}
"""


@dataclass
class UserHome:
    """Somebody's home, with a hall in it that is not the default one."""

    home: Path
    capture: pytest.CaptureFixture[str]

    def config(self, words: str, *, exit_code: int = 0) -> Done:
        code = main.run(["config", *shlex.split(words)])
        done = Done(code, *self.capture.readouterr())
        assert code == exit_code, done
        return done

    def hall(self, tool: str, **arguments: Any) -> dict[str, Any]:
        body, succeeded = call_here(load(os.environ), tool, arguments, None)
        assert succeeded, body
        return body

    def agents(self) -> list[tuple[str, str, str]]:
        return [(one["name"], one["role"], one["runtime"]) for one in self.hall("agent_list")["agents"]]

    def settings(self, words: str = "--client cursor") -> dict[str, Any]:
        """The entry in a client's file of its own."""
        (name,) = [word for word in CLIENTS if word in words.split()]
        path = CLIENTS[name].files("user", self.home)[-1]
        entry: dict[str, Any] = json.loads(path.read_text())[CLIENTS[name].servers[0]]["crewhall"]
        return entry


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> UserHome:
    home = tmp_path / "home"
    home.mkdir()
    for name in ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CREWHALL_HOME", str(home / "hall"))
    monkeypatch.chdir(home)
    return UserHome(home, capsys)


def backups(path: Path) -> list[str]:
    return sorted(one.read_text() for one in path.parent.glob("*backup*"))


# What each client gets


BRIDGE = HallTransport(words=("/bin/crewhall", "mcp"), variables={"CREWHALL_TOKEN": "t"})
URL = HallTransport(url="http://h/mcp", headers={"Authorization": "Bearer t"})
SPLIT = {"command": "/bin/crewhall", "args": ["mcp"], "env": {"CREWHALL_TOKEN": "t"}}
BEARER = {"Authorization": "Bearer t"}
HTTP = {"type": "http", "url": "http://h/mcp", "headers": BEARER}


@pytest.mark.parametrize(
    ("client", "by_bridge", "by_url"),
    [
        ("claude", {"type": "stdio", **SPLIT}, HTTP),
        ("claude-desktop", SPLIT, HTTP),
        ("cursor", {"type": "stdio", **SPLIT}, {"url": "http://h/mcp", "headers": BEARER}),
        ("vscode", {"type": "stdio", **SPLIT}, HTTP),
        ("codex", SPLIT, {"url": "http://h/mcp", "http_headers": BEARER}),
        ("gemini", SPLIT, HTTP),
        (
            "opencode",
            {"type": "local", "command": ["/bin/crewhall", "mcp"], "environment": SPLIT["env"]},
            {"type": "remote", "oauth": False, "url": "http://h/mcp", "headers": BEARER},
        ),
    ],
)
def test_each_client_gets_its_own_shape(client: str, by_bridge: dict[str, Any], by_url: dict[str, Any]) -> None:
    known = CLIENTS[client]
    assert (known.entry(BRIDGE), known.entry(URL)) == (by_bridge, by_url)
    assert known.words(by_bridge)[-2:] == ["/bin/crewhall", "mcp"] and known.words(by_url) == []
    assert known.token(by_bridge) == known.token(by_url) == "t"


@pytest.mark.parametrize(
    ("words", "variable", "file", "keys"),
    [
        ("claude", "", ".claude.json", "mcpServers"),
        ("claude", "CLAUDE_CONFIG_DIR", "x/.claude.json", "mcpServers"),
        ("claude --scope project", "", ".mcp.json", "mcpServers"),
        ("claude --scope local", "", ".claude.json", "projects ~ mcpServers"),
        ("claude-desktop", "", ".config/Claude/claude_desktop_config.json", "mcpServers"),
        ("cursor", "", ".cursor/mcp.json", "mcpServers"),
        ("cursor --scope project", "", ".cursor/mcp.json", "mcpServers"),
        ("vscode", "XDG_CONFIG_HOME", "x/Code/User/mcp.json", "servers"),
        ("vscode --scope project", "", ".vscode/mcp.json", "servers"),
        ("codex", "", ".codex/config.toml", "mcp_servers"),
        ("codex", "CODEX_HOME", "x/config.toml", "mcp_servers"),
        ("gemini", "", ".gemini/settings.json", "mcpServers"),
        ("gemini", "GEMINI_CLI_HOME", "x/.gemini/settings.json", "mcpServers"),
        ("opencode", "", ".config/opencode/opencode.jsonc", "mcp"),
        ("opencode", "XDG_CONFIG_HOME", "x/opencode/opencode.jsonc", "mcp"),
        ("opencode --scope project", "", "opencode.jsonc", "mcp"),
        ("gemini --file mine.json", "", "mine.json", "mcpServers"),
    ],
)
def test_what_is_printed_is_what_is_written_and_where(
    user: UserHome, monkeypatch: pytest.MonkeyPatch, words: str, variable: str, file: str, keys: str
) -> None:
    if variable:
        monkeypatch.setenv(variable, str(user.home / "x"))
    path = user.home / file
    printed = user.config(f"--client {words}")
    assert printed.err.startswith(f"This belongs into {path}; --write puts it there.\nTo check it: ")
    assert not path.exists() and "speaks for you there, the operator" in printed.err
    done = user.config(f"--client {words} --write")
    assert done.out == f"crewhall is in {path}\n" and path.read_text() == printed.out
    entry = (tomllib if path.suffix == ".toml" else json).loads(printed.out)
    for key in (*keys.split(), "crewhall"):
        entry = entry[str(user.home) if key == "~" else key]
    assert " ".join(CLIENTS[words.split(maxsplit=1)[0]].words(entry)) == f"{CREWHALL} --home {user.home}/hall mcp"


def test_the_bridge_finds_this_hall_again(user: UserHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREWHALL_HOME")
    entry = json.loads(user.config("--client gemini").out)["mcpServers"]["crewhall"]
    assert entry == {"command": CREWHALL, "args": ["mcp"]}, "the default hall needs no word"
    monkeypatch.setenv("MCP_DATABASE_PATH", "my.db")
    entry = json.loads(user.config("--client gemini --profile worker --families work").out)["mcpServers"]["crewhall"]
    assert entry["args"] == ["mcp", "--families", "work", "--profile", "worker"]
    assert entry["env"] == {"CREWHALL_DATABASE_PATH": f"{user.home}/my.db"}
    assert main.run(["--home", str(user.home / "a"), "config", "--client", "gemini"]) == 0
    assert f'"--home",\n        "{user.home}/a"' in user.capture.readouterr().out


def test_a_url_is_the_hubs_own_or_where_it_will_be(user: UserHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_SERVER_PORT", "3999")
    done = user.config("--client claude-desktop --url --name rstn")
    assert json.loads(done.out) == {"mcpServers": {"rstn": {"type": "http", "url": "http://127.0.0.1:3999/mcp"}}}
    assert "No hub answers there now" in done.err and "takes no URL from its file" in done.err
    entry = tomllib.loads(user.config("--client codex --url --families work,project --profile all").out)
    assert entry["mcp_servers"]["crewhall"] == {
        "url": "http://127.0.0.1:3999/mcp/work,project",
        "http_headers": {"X-Crewhall-Profile": "all"},
    }
    monkeypatch.setenv("MCP_SERVER_PORT", "0")
    assert "its address is not known" in user.config("--client codex --url", exit_code=7).err


# Into a file that is there


def test_a_file_keeps_all_else_and_gets_back_what_it_was(user: UserHome) -> None:
    path = user.home / ".config/Code/User/mcp.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(JSONC.replace("\n", "\r\n").encode("utf-8-sig"))
    path.chmod(0o640)
    before = path.read_bytes()
    assert user.config("--client vscode --write").out.endswith("the old text is in mcp.json.crewhall-backup-1\n")
    after = path.read_bytes()
    ours = f"""
        "crewhall": {{
            "type": "stdio",
            "command": "{CREWHALL}",
            "args": [
                "--home",
                "{user.home}/hall",
                "mcp"
            ]
        }},"""
    assert after.decode("utf-8-sig") == JSONC.replace("/* not ours */", f"/* not ours */{ours}").replace("\n", "\r\n")
    assert after[:3] == before[:3] and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert user.config("--client vscode --write").out == f"crewhall is already in {path}\n"
    assert path.read_bytes() == after
    user.config("--client vscode --remove")
    assert path.read_bytes() == before
    saved = [path.with_name(f"mcp.json.crewhall-backup-{number}") for number in (1, 2)]
    assert [one.read_bytes() for one in saved] == [before, after]
    assert sorted(path.parent.iterdir()) == [path, *saved], "nothing else is left there"
    assert "is not in" in user.config("--client vscode --remove").out and len(backups(path)) == 2


def test_codex_keeps_its_comments(user: UserHome) -> None:
    path = user.home / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text('model = "x" # best\n\n[mcp_servers.other] # mine\ncommand = "y"\n')
    before = path.read_text()
    user.config("--client codex --write --families project")
    assert path.read_text().startswith(f"{before}\n[mcp_servers.crewhall]\n")
    user.config("--client codex --remove")
    assert path.read_text() == before


def test_a_link_to_a_dotfile_stays_a_link(user: UserHome) -> None:
    kept = user.home / "dotfiles/cursor.json"
    kept.parent.mkdir()
    (user.home / ".cursor").mkdir()
    link = user.home / ".cursor/mcp.json"
    link.symlink_to("../dotfiles/cursor.json")
    user.config("--client cursor --write")
    assert link.is_symlink() and "crewhall" in kept.read_text()
    user.config("--client cursor --write --url")
    assert link.is_symlink() and user.settings() == {"url": "http://127.0.0.1:3001/mcp"} and len(backups(kept)) == 1
    assert backups(link) == []


@pytest.mark.parametrize(
    ("client", "file", "text", "wrong"),
    [
        ("cursor", ".cursor/mcp.json", '{\n  "mcpServers": {\n    "a" 1}}', "json, line 3, column 9: a colon should"),
        ("cursor", ".cursor/mcp.json", '{"mcpServers": 7}', "line 1, column 16: an object should stand here"),
        ("cursor", ".cursor/mcp.json", b"{\n\xff}", "line 2, column 1: this is not UTF-8"),
        ("codex", ".codex/config.toml", "a = 1\nb\n", "config.toml, line 2, column 2: Expected '='"),
        ("codex", ".codex/config.toml", "mcp_servers = {a = {}}", "cannot be changed in the way that this is written"),
        ("opencode", ".config/opencode/opencode.json", "[", "opencode.json, line 1, column 2: a value should"),
        ("claude", "c/.claude.json", '{"a": 1 // one\n}', "json, line 1, column 9: here is a comment, which this"),
        ("claude", "c/.claude.json", '{"a": [{},]}', "line 1, column 10: here is a comma after the last item"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", "/**/{}", "column 1: here is a comment"),
        ("cursor", ".cursor/mcp.json", '{"a": 1,}', "line 1, column 8: here is a comma after the last item"),
        ("gemini", ".gemini/settings.json", '{"a": 1,}', "line 1, column 8: here is a comma after the last item"),
        ("gemini", ".gemini/settings.json", "\ufeff{}", "line 1, column 1: here is a byte order mark"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_and_left_alone(
    user: UserHome, monkeypatch: pytest.MonkeyPatch, client: str, file: str, text: str | bytes, wrong: str
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(user.home / "c"))
    path = user.home / file
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = path.read_bytes()
    for what in ("--write", "--write --force --agent ada"):
        done = user.config(f"--client {client} {what}", exit_code=2)
        assert wrong in done.err and "it was left as it is" in done.err
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]
    assert user.agents() == [], "nobody is made for a file that cannot be written"
    assert "crewhall" in user.config(f"--client {client}").out, "it can be printed all the same"


def test_what_is_no_file_is_refused_and_keeps_nobody_waiting(user: UserHome) -> None:
    os.mkfifo(user.home / "pipe")
    for place in ("pipe", "hall/.."):
        (user.home / "hall").mkdir(exist_ok=True)
        assert "is no file" in user.config(f"--client cursor --write --file {place}", exit_code=2).err
    assert not list(user.home.glob(".*crewhall*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_made_read_only_stays_as_it_is(user: UserHome) -> None:
    path = user.home / "mine.json"
    path.write_text("{}")
    path.chmod(0o400)
    assert "it is read-only" in user.config("--client cursor --write --file mine.json", exit_code=7).err
    assert path.read_text() == "{}" and list(user.home.glob("*mine*")) == [path]


def test_nobody_else_can_read_a_file_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings"
    seen: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append(stat.S_IMODE(os.fstat(file).st_mode)))
    for mode in (0o600, 0o644, 0o640):
        path.write_text("a secret of another's")
        path.chmod(mode)
        done = change(path, lambda text: text + "!", is_secret=False)
        assert done.backup and [stat.S_IMODE(one.stat().st_mode) for one in (path, done.backup)] == [mode, mode]
    assert seen == [0o600] * 6, "the new texts and the backups, each as it was before it had its mode"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to a group that it is not in")
def test_a_group_that_cannot_be_kept_leaves_none_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    path = tmp_path / "settings"
    path.write_text("a secret")
    os.chown(path, 0, 12345)
    path.chmod(0o660)
    monkeypatch.setattr(os, "fchown", refuse)
    done = change(path, lambda text: text + "!", is_secret=False)
    assert done.backup and {stat.S_IMODE(one.stat().st_mode) for one in (path, done.backup)} == {0o600}


def test_who_writes_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    path.write_text("a")
    others = iter(["ab", "abc"])

    def edit(text: str) -> str:
        path.write_text(next(others, text))
        return text + "!"

    done = change(path, edit, is_secret=False)
    assert path.read_text() == "abc!" and done.has_changed and backups(path) == ["abc"]
    numbers = iter(range(100))
    with pytest.raises(Conflict, match="changes all the time"):
        change(path, lambda text: str(path.write_text(str(next(numbers)))) + "!", is_secret=False)
    assert path.read_text() == "4" and backups(path) == ["abc"] and len(list(tmp_path.iterdir())) == 2


# A name that is taken


OTHERS = [
    {"command": "npx", "args": ["mcp", "crewhall-like"]},
    {"command": CREWHALL, "args": ["up"]},
    {"url": "https://example.org/mcp"},
    {"type": "http", "url": "http://localhost:3000/other"},
    7,
]
OURS = [
    {"command": "/old/place/crewhall", "args": ["mcp"]},
    {"command": "python3", "args": ["-m", "crewhall", "mcp"]},
    {"url": "http://localhost:3000/mcp"},
    {"httpUrl": "http://127.0.0.1:4000/mcp/work"},
    {"url": "https://hall.example.org/mcp", "headers": {"Authorization": "Bearer ch_agent_x"}},
]


@pytest.mark.parametrize("entry", [*OTHERS, *OURS], ids=json.dumps)
def test_an_entry_of_somebody_else_is_replaced_by_force_alone(user: UserHome, entry: Any) -> None:
    path = user.home / "s.json"
    path.write_text(json.dumps({"mcpServers": {"crewhall": entry}}))
    is_taken = entry in OTHERS
    for action in ("--remove", "--write"):
        done = user.config(f"--client gemini --file s.json {action}", exit_code=5 if is_taken else 0)
        assert not is_taken or f"'crewhall' in {path} is not Crewhall's" in done.err
    if is_taken:
        assert json.loads(path.read_text())["mcpServers"]["crewhall"] == entry and backups(path) == []
        user.config("--client gemini --file s.json --write --force")
    written = json.loads(path.read_text())["mcpServers"]["crewhall"]
    assert written == {"command": CREWHALL, "args": ["--home", f"{user.home}/hall", "mcp"]}


def test_a_server_of_this_machine_is_not_ours_for_that_alone(user: UserHome) -> None:
    path = user.home / "s.json"
    path.write_text('{"mcpServers": {"other": {"url": "http://localhost:9000/mcp"}}}')
    user.config("--client gemini --file s.json --write --name other", exit_code=5)


def test_what_the_user_put_into_our_entry_stays(user: UserHome) -> None:
    path = user.home / "s.json"
    own = {"trust": True, "env": {"GITHUB_TOKEN": "g", "CREWHALL_TOKEN": "gone"}, "command": "crewhall"}
    path.write_text(json.dumps({"mcpServers": {"crewhall": {**own, "args": ["mcp"]}}}, indent=1))
    user.config("--client gemini --file s.json --write")
    entry = json.loads(path.read_text())["mcpServers"]["crewhall"]
    assert list(entry) == ["trust", "env", "command", "args"], "in its order, too"
    assert (entry["trust"], entry["env"], entry["command"]) == (True, {"GITHUB_TOKEN": "g"}, CREWHALL)
    user.config("--client gemini --file s.json --write --url")
    entry = json.loads(path.read_text())["mcpServers"]["crewhall"]
    assert entry == {"trust": True, "type": "http", "url": "http://127.0.0.1:3001/mcp"}


def test_opencode_gets_it_into_the_file_that_has_it(user: UserHome) -> None:
    place = user.home / ".config/opencode"
    place.mkdir(parents=True)
    older, newer = place / "opencode.json", place / "opencode.jsonc"
    older.write_text('{"mcp": {"crewhall": {"type": "local", "command": ["crewhall", "mcp"]}}}')
    newer.write_text('{"mcp": {"servers": {"b": {"type": "remote", "url": "u"}}}}')
    user.config("--client opencode --write --url")
    assert json.loads(older.read_text())["mcp"]["crewhall"]["url"] == "http://127.0.0.1:3001/mcp"
    user.config("--client opencode --write --name crewhall2")
    assert sorted(json.loads(newer.read_text())["mcp"]["servers"]) == ["b", "crewhall2"], "as the newer ones have it"
    user.config("--client opencode --remove")
    assert json.loads(older.read_text()) == {"mcp": {}}


# Who the client is


@pytest.mark.parametrize("way", ["", "--url "])
def test_an_agent_gets_a_token_once(user: UserHome, way: str) -> None:
    words = f"--client cursor {way}--agent ada --role coordinator"
    done = user.config(f"{words} --write")
    path = user.home / ".cursor/mcp.json"
    token = CLIENTS["cursor"].token(user.settings())
    assert token and token not in done.out + done.err and "The token is new" in done.err
    assert user.agents() == [("ada", "coordinator", "custom")] and stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    path.chmod(0o644)
    assert "is already in" in user.config(f"{words} --write").out
    assert path.read_bytes() == before and backups(path) == [] and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token in user.config(words).out, "it is shown when it was asked for"
    (agent,) = user.hall("agent_list")["agents"]
    user.hall("agent_token_revoke", agent_id=agent["id"])
    user.config(f"--client cursor {way}--agent {agent['id']} --write")
    assert CLIENTS["cursor"].token(user.settings()) not in (token, None) and len(user.agents()) == 1
    user.config(f"--client cursor {way}--operator --write")
    assert CLIENTS["cursor"].token(user.settings()) is None
    saved = [one for one in path.parent.iterdir() if "backup" in one.name]
    assert len(saved) == 2 and {stat.S_IMODE(one.stat().st_mode) for one in saved} == {0o600}


def test_anothers_token_is_not_taken_for_ones_own(user: UserHome) -> None:
    user.hall("agent_token_create", name="bob")
    user.config("--client cursor --agent ada --write")
    adas = CLIENTS["cursor"].token(user.settings())
    user.config("--client cursor --agent bob --write")
    assert CLIENTS["cursor"].token(user.settings()) != adas
    assert [name for name, *_ in user.agents()] == ["bob", "ada"]
    refused = user.config("--client cursor --agent bob --role coordinator --write", exit_code=5)
    assert "bob is a worker in the hall" in refused.err
    eve = user.hall("agent_register", name="eve", runtime="codex")["id"]
    taken = user.config("--client cursor --agent eve --write", exit_code=5)
    assert "an agent named 'eve' is here now: ag_" in taken.err and f"--agent {eve}" in taken.err
    user.hall("agent_unregister", id=eve)
    user.hall("agent_unregister", id=user.hall("agent_register", name="eve", runtime="codex")["id"])
    assert "2 agents are named 'eve': ag_" in user.config("--client cursor --agent eve --write", exit_code=5).err
    gone = user.config("--client cursor --remove")
    assert "still counts" in gone.err


def test_no_agent_gets_hold_of_a_token_by_calling_itself_what_the_operator_will_say(user: UserHome) -> None:
    eve = user.hall("agent_token_create", name="eve")
    given = {"name": "boss", "runtime": "codex"}
    body, succeeded = call_here(load(os.environ), "agent_register", given, eve["token"])
    assert succeeded and body["name"] == "eve"
    user.config("--client cursor --agent boss --role coordinator --write")
    assert user.agents() == [("eve", "worker", "codex"), ("boss", "coordinator", "custom")]
    for name in ("operator", "ag_boss", eve["agent_id"].replace("_", "\uff3f")):
        assert "reads like" in user.config(f"--client cursor --agent {name} --write", exit_code=2).err
    database = str(load(os.environ).home / "hall.db")
    rows(database, f"UPDATE agent SET name = '{eve['agent_id']}' WHERE name = 'boss'")  # as older hubs let it be
    done = user.config(f"--client cursor --agent {eve['agent_id']} --write")
    assert f"cursor is agent {eve['agent_id']} there" in done.err.lower()


def test_a_link_of_a_project_leads_no_entry_elsewhere(user: UserHome, monkeypatch: pytest.MonkeyPatch) -> None:
    project, elsewhere = user.home / "theirs", user.home / "elsewhere"
    make_repository(project)
    elsewhere.mkdir()
    (project / ".cursor").symlink_to(elsewhere)
    (project / ".mcp.json").symlink_to("../elsewhere/x.json")
    monkeypatch.chdir(project)
    for client in ("cursor", "claude"):
        refused = user.config(f"--client {client} --scope project --write", exit_code=2).err
        assert f"leads out of the project, to {elsewhere}" in refused and "--file" in refused
    assert list(elsewhere.iterdir()) == []
    (project / ".vscode").symlink_to("file-0.d")
    (project / "file-0.d").mkdir()
    user.config("--client vscode --scope project --write")
    assert (project / "file-0.d/mcp.json").exists(), "a link that stays inside is followed"


def test_a_token_stays_out_of_what_is_committed(user: UserHome, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = user.config("--client claude --scope project --agent ada --write", exit_code=2)
    assert ".mcp.json is usually committed" in refused.err and user.agents() == []
    assert "asks for your approval" in user.config("--client claude --scope project --write").err
    make_repository(user.home / "dots")
    noted = user.config(f"--client gemini --agent ada --write --file {user.home}/dots/gemini.json").err
    assert f"the file is in the repository {user.home}/dots: what is secret" in noted
    monkeypatch.setenv("CREWHALL_DATABASE_URL", "postgresql://me:secret@nowhere/hall")
    assert "password" in user.config("--client cursor --scope project --write", exit_code=2).err
    user.config("--client cursor --write")
    assert stat.S_IMODE((user.home / ".cursor/mcp.json").stat().st_mode) == 0o600


def test_a_url_that_lets_nobody_in_is_not_written(user: UserHome, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "takes no URL" in user.config("--client claude-desktop --url --write", exit_code=2).err
    monkeypatch.setenv("CREWHALL_AUTH_LOCAL_WITHOUT_TOKEN", "off")
    assert "lets nobody in" in user.config("--client cursor --url --write", exit_code=2).err
    assert "lets nobody in" in user.config("--client cursor --url").err
    user.config("--client cursor --url --agent ada --write")


def test_an_agent_makes_no_tokens(user: UserHome, monkeypatch: pytest.MonkeyPatch) -> None:
    token = user.hall("agent_token_create", name="ada")["token"]
    monkeypatch.setenv("CREWHALL_TOKEN", token)
    user.config("--client cursor --agent bob --write", exit_code=4)
    assert not (user.home / ".cursor").exists()


# One worktree


def test_a_worktree_is_served_wherever_the_client_starts(user: UserHome) -> None:
    shop = make_repository(user.home / "shop").root
    git(shop, "worktree", "add", "-q", "-b", "fix", "../shop fix")
    (user.home / "shop fix/deep").mkdir()
    told = json.loads(user.config("--client claude --worktree 'shop fix/deep'").out)
    entry = told["projects"][shop]["mcpServers"]["crewhall-shop-fix"]  # Claude Code has one table for all its worktrees
    there = ["--home", f"{user.home}/hall", "mcp", "--profile", "worktree", "--directory", f"{shop} fix"]
    assert (entry["command"], entry["args"]) == (CREWHALL, there)
    refused = user.config("--client vscode --worktree shop --url", exit_code=7)
    assert f"no hub of this hall runs here, so nothing serves {shop}" in refused.err
    assert "there is no directory" in user.config("--client vscode --worktree nowhere", exit_code=3).err


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_worktree_that_is_not_served_yet_is_told_why(
    user: UserHome, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventually(lambda: live.hub.state(LISTENER).servers)
    live.hub.state(LISTENER).servers = None  # as in every hub of a machine but one
    monkeypatch.setenv("CREWHALL_HOME", str(announce(live)))
    shop = make_repository(user.home.with_name("shop")).root
    refused = user.config("--client vscode --worktree ../shop --url", exit_code=7)
    assert f"{shop} is open and not served yet: the hub that has this node's worktrees has not" in refused.err


# Words


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("", "which client?"),
        ("--client", "--client needs a value"),
        ("--client=", "--client needs a value"),
        ("--client --write", "--client needs a value"),
        ("--client clade", "--client is 'clade', did you mean claude?"),
        ("--client codex --scope local", "--scope is 'local'"),
        ("--client claude-desktop --scope project", "--scope is 'project'"),
        ("--client codex --wirte", "unexpected argument '--wirte', did you mean --write?"),
        ("--client codex more", "unexpected argument 'more'"),
        ("--client codex --write=yes", "unexpected argument '--write=yes'"),
        ("--client codex --write --remove", "--write and --remove exclude each other"),
        ("--client codex --url --bridge", "--bridge and --url exclude each other"),
        ("--client codex --agent a --operator", "--operator and --agent exclude each other"),
        ("--client codex --role worker", "--role is for a new agent"),
        ("--client codex --agent a --role boss", "--role is 'boss'"),
        ("--client codex --worktree /", "/ is no project"),
        ("--client codex --name 'a b'", "'a b' is no name for a server"),
        ("--client codex --profile nope", "there is no profile 'nope'"),
        ("--client codex --families work,nope", "there is no family 'nope'"),
        ("--client claude --scope local --file x", "--scope local has a file of its own"),
        ("--client codex --worktree /usr --url --profile all", "a worktree's server has its own few tools"),
    ],
)
def test_words_that_say_nothing_are_refused(user: UserHome, words: str, wrong: str) -> None:
    done = user.config(words, exit_code=2)
    assert done.err.startswith(f"crewhall: {wrong}") and done.out == ""


def test_help_is_of_several_lines_and_a_program_gets_facts(user: UserHome) -> None:
    for words in (["config", "--help"], ["help", "config"], ["-h", "config", "--client", "codex"]):
        assert main.run(words) == 0
        shown = user.capture.readouterr().out
        assert shown.count("\n") > 15 and all(client in shown for client in CLIENTS)
    assert main.run(["--json", "config", "--client", "codex", "--write", "--agent", "ada"]) == 0
    facts = json.loads(user.capture.readouterr().out)
    (agent,) = user.hall("agent_list")["agents"]
    file = str(user.home / ".codex/config.toml")
    assert facts == {"name": "crewhall", "file": file, "changed": True, "backup": None, "agent_id": agent["id"]}


def test_what_the_page_shows_really_happens(user: UserHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSED_ON, "HOME", str(user.home))
    shop = Path(make_repository(user.home / "shop").root)
    page = ROOT / "docs" / "clients.md"
    for block in run(blocks_of(page.read_text()), shop, user.home / "hall"):
        assert block.text is None or shows(block.text, block.printed), f"line {block.line} printed\n{block.printed}"
    assert page.read_text().count("\n") <= 105 and max(map(len, page.read_text().splitlines())) <= 120
