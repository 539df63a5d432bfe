"""Every setting: its default, its names, who wins, and what is said about a bad value."""

from pathlib import Path
from typing import Any

import pytest

from crewhall.config import BY_KEY, SETTINGS, Setting, careful, load, log_level, number, seconds, switch, words
from crewhall.errors import InvalidInput

# For each reader, values in the order flag, CREWHALL_ name, seed's name, file: the text, and what it comes to.
SAMPLES: dict[str, list[tuple[Any, Any]]] = {
    "text": [("/a", "/a"), ("/b", "/b"), ("/c", "/c"), ("/d", "/d")],
    "number": [(11, 11), ("12", 12), ("13", 13), (14, 14)],
    "count": [(11, 11), ("12", 12), ("13", 13), (14, 14)],
    "port": [("4001", 4001), ("4002", 4002), ("4003", 4003), (4004, 4004)],
    "seconds": [("11", 11.0), ("12s", 12.0), ("13", 13.0), ("14m", 840.0)],
    "hours": [("1", 1.0), ("0.5", 0.5), ("2", 2.0), (12, 12.0)],
    "careful": [("false", False), ("1", True), ("0", False), (True, True)],
    "tier": [("1", 1), (" 2 ", 2), ("3", 3), (1, 1)],
    "switch": [("off", False), ("on", True), ("0", False), (True, True)],
    "words": [("a,b", ("a", "b")), (" c , ", ("c",)), ("d", ("d",)), (["e", "f"], ("e", "f"))],
    "patterns": [("a/*,b", ("a/*", "b")), (" c? , ", ("c?",)), ("d", ("d",)), (["e", "f/g"], ("e", "f/g"))],
    "port_range": [("1-2", (1, 2)), ("3 - 4", (3, 4)), ("5-5", (5, 5)), ("6-70", (6, 70))],
    "tables": [
        ('{"a": {"b": "1"}}', {"a": {"b": "1"}}),
        ('{"c": {}}', {"c": {}}),
        ("{}", {}),
        ({"d": {"e": "f"}}, {"d": {"e": "f"}}),
    ],
    "command": [("a b", ("a", "b")), ("c", ("c",)), ("d", ("d",)), (["e", "f g"], ("e", "f g"))],
    "log_level": [("error", "error"), ("WARN", "warning"), ("trace", "debug"), ("debug", "debug")],
}


def toml(setting: Setting, value: Any) -> str:
    """A config.toml that sets this one value."""
    table, _, key = setting.key.rpartition(".")
    written = str(value).lower() if isinstance(value, bool) else repr(value)
    if isinstance(value, dict):
        written = written.replace(":", " =")
    return (f"[{table}]\n" if table else "") + f"{key} = {written}\n"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_has_its_default_and_is_set_by_each_of_its_names_in_order(
    setting: Setting, tmp_path: Path
) -> None:
    home = {} if setting.key == "home" else {"CREWHALL_HOME": str(tmp_path)}
    assert load(home)[setting.key] == setting.default
    flag, variable, seed, file = SAMPLES[setting.read.__name__]
    if setting.key != "home":
        (tmp_path / "config.toml").write_text(toml(setting, file[0]))
        assert load(home)[setting.key] == file[1]
    environment = dict(home)
    for name in setting.seed_names:
        environment[name] = seed[0]
        assert load(environment)[setting.key] == seed[1]
    environment["CREWHALL_" + setting.key.upper().replace(".", "_")] = variable[0]
    assert load(environment)[setting.key] == variable[1]
    assert load(environment, {setting.key: flag[0]})[setting.key] == flag[1]


def test_the_seeds_names_are_the_seeds() -> None:
    assert {name: setting.key for setting in SETTINGS for name in setting.seed_names} == {
        "MCP_SERVER_PORT": "server.port",
        "MCP_DATABASE_PATH": "database.path",
        "MCP_LOG_LEVEL": "log.level",
        "MCP_TOOL_TIMEOUT": "tool.timeout",
        "GITHUB_TOKEN": "pulls.github_token",
        "GITEA_TOKEN": "pulls.gitea_token",
        "GITEA_URL": "pulls.gitea_url",
        "CLAUDEOPS_DRY_RUN": "pulls.dry_run",
    }
    assert BY_KEY["server.port"].default == 3001


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("server.port", "x"),
        ("server.port", "-1"),
        ("server.port", "65536"),
        ("server.port", "3.5"),
        ("agent.max", "9" * 5000),
        ("tool.threads", "0"),
        ("tool.long_threads", "0"),
        ("database.pool", "0"),
        ("tool.timeout", "0"),
        ("tool.timeout", "-5"),
        ("tool.timeout", "5 days"),
        ("tool.timeout", "nan"),
        ("log.level", "loud"),
        ("auth.local_without_token", "perhaps"),
        ("pulls.operator_tier", "0"),
        ("pulls.operator_tier", "4"),
        ("pulls.operator_tier", "two"),
        ("judge.command", "bin/claude --x"),
        ("judge.command", "./claude"),
        ("judge.at_once", "0"),
    ],
)
def test_a_bad_value_names_the_setting_its_source_and_what_it_must_be(key: str, value: str, tmp_path: Path) -> None:
    home = {"CREWHALL_HOME": str(tmp_path)}
    variable = BY_KEY[key].variable
    (tmp_path / "config.toml").write_text(toml(BY_KEY[key], value))
    for source, environment, flags in (
        ("config.toml", home, {}),
        (variable, home | {variable: value}, {}),
        ("the flag", home, {key: value}),
    ):
        with pytest.raises(
            InvalidInput, match=f"setting {key} from {source} is '{value[:20]}.*: it must be "
        ) as caught:
            load(environment, flags)
        assert BY_KEY[key].help in caught.value.hint and len(caught.value.message) < 250


@pytest.mark.parametrize("pattern", ["checks/**", "checks/[ab].md", "{a,b}.md", "/x", "./x", "../x", "a//b", "x/"])
def test_a_pattern_that_would_match_nothing_is_named(pattern: str, tmp_path: Path) -> None:
    """Wildcards of other programs mean nothing here, and a deny list must not look as if it held."""
    with pytest.raises(InvalidInput) as refused:
        load({"CREWHALL_HOME": str(tmp_path)}, {"pulls.deny": ["*.env*", pattern]})
    assert f"'{pattern}' is no path from the top" in refused.value.message


def test_a_bad_value_that_is_overruled_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[server]\nport = 'x'\n")
    assert load({"CREWHALL_HOME": str(tmp_path), "MCP_SERVER_PORT": "5"})["server.port"] == 5


def test_a_variable_that_is_empty_or_was_not_filled_in_counts_as_unset(tmp_path: Path) -> None:
    home = {"CREWHALL_HOME": str(tmp_path)}
    for text in ("", "${MCP_SERVER_PORT}", "${PORT:-}"):
        assert load(home | {"CREWHALL_SERVER_PORT": text})["server.port"] == 3001
        assert load(home | {"CREWHALL_SERVER_PORT": text, "MCP_SERVER_PORT": "7"})["server.port"] == 7


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90.0),
        (90, 90.0),
        (1.5, 1.5),
        ("90s", 90.0),
        ("1500ms", 1.5),
        ("2m", 120.0),
        ("1h", 3600.0),
        (" 2 M ", 120.0),
        ("9999", 9999.0),
        ("10000", 10.0),
        ("60000", 60.0),
        ("10000s", 10_000.0),
    ],
)
def test_a_time_has_a_unit_and_a_large_bare_number_is_milliseconds(text: Any, value: float) -> None:
    assert seconds(text) == value


def test_the_readers_take_the_usual_words() -> None:
    assert [switch(word) for word in (" Yes", "ON", "1", True, "no", "Off", "0", False, "")] == [True] * 4 + [False] * 5
    assert [log_level(word) for word in ("INFO", "warn", "Trace")] == ["info", "warning", "debug"]
    assert words("a, b,,") == words(["a", " b "]) == ("a", "b")
    assert number(" 7 ") == 7
    off = ("", " ", "0", "false", False)
    assert [careful(word) for word in (*off, "1", "true", "no", "False", True)] == [False] * 5 + [True] * 5
    with pytest.raises(ValueError, match="whole number"):
        number(True)


@pytest.mark.parametrize("text", ["[server]\nprot = 1\n", "nope = 1\n", "[nope]\nport = 1\n", "[server.port]\nx = 1\n"])
def test_an_unknown_key_in_the_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(InvalidInput, match=r"config.toml has no such setting: (server.prot|nope)|setting server.port"):
        load({"CREWHALL_HOME": str(tmp_path)})


@pytest.mark.parametrize("content", [b"[server", b"\xff\xfe", b"port = 1\nport = 2\n"])
def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"config.toml cannot be read"):
        load({"CREWHALL_HOME": str(tmp_path)})


def test_the_hall_is_a_file_in_its_home_unless_told_otherwise(tmp_path: Path) -> None:
    home = {"CREWHALL_HOME": str(tmp_path)}
    assert load(home).database == str(tmp_path / "hall.db")
    assert load(home | {"MCP_DATABASE_PATH": "~/x.db"}).database == str(Path.home() / "x.db")
    url = "postgresql://h@localhost/hall"
    assert load(home | {"MCP_DATABASE_PATH": "/x.db", "CREWHALL_DATABASE_URL": url}).database == url
    assert load({"CREWHALL_HOME": "~/hall"}).home == Path.home() / "hall"


@pytest.mark.parametrize(
    "pattern",
    [
        "/CLAUDE.md",
        "./CLAUDE.md",
        "secrets/",
        "secrets/**",
        "*.[yY]ml",
        "a//b",
        "../a",
        "a/../b",
        "a/.",
        "{a,b}",
        "!a",
        "a\\b",
    ],
)
def test_a_pattern_of_paths_that_would_match_nothing_is_refused(pattern: str, tmp_path: Path) -> None:
    for key in ("pulls.deny", "pulls.allow"):
        with pytest.raises(InvalidInput, match="is no path from the top"):
            load({"CREWHALL_HOME": str(tmp_path)}, {key: [pattern]})
