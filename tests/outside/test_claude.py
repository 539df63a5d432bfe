"""The Claude CLI from outside: what its output means, what it is told by its words and its environment."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.errors import InvalidState, Unavailable
from crewhall.outside.claude import (
    QUIET,
    READ_ONLY,
    SECRET,
    ClaudeReply,
    Cli,
    Usage,
    _hide_secrets,
    ask,
    manner,
    program,
    reply_of,
    surroundings,
    version,
)
from crewhall.outside.run import Ended
from crewhall.stop import Stop

USAGE = {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 100}
GOOD: dict[str, Any] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "the answer",
    "usage": USAGE,
    "total_cost_usd": 0.25,
}
SPENT = Usage(123, 5, 0.25)
LINE = json.dumps(GOOD)


def run_result(out: Any = GOOD, code: int = 0, err: str = "", **more: Any) -> Ended:
    text = out if isinstance(out, str) else json.dumps(out)
    return Ended(code, text.encode("utf-8", "surrogatepass"), err.encode(), **more)


@pytest.mark.parametrize(
    "out",
    [
        LINE,
        f"\n{json.dumps(GOOD, indent=2)}\n\n",
        [{"type": "system", "result": "no"}, {"type": "assistant"}, GOOD],
        f'warning: {{}} \n{{"type": "assistant", "result": "no"}}\n{LINE}\n',
        GOOD | {"permission_denials": [{"tool": "Read"}], "result": "the answer"},
        {name: GOOD[name] for name in ("type", "result", "usage", "total_cost_usd")},
    ],
)
def test_the_text_of_a_run_that_ended_well_is_what_was_said(out: Any) -> None:
    assert reply_of(run_result(out, err="a warning")) == ClaudeReply("the answer", usage=SPENT)


@pytest.mark.parametrize("text", ["", "a\u2028b\x85c\fd", "x\ny", "\x00", "é" * 99])
def test_any_text_comes_as_it_is_also_behind_other_lines(text: str) -> None:
    line = json.dumps(GOOD | {"result": text}, ensure_ascii=False)
    assert reply_of(run_result(f"note\n{line}\n")).text == text == reply_of(run_result(line)).text


def test_an_answer_in_its_shape_goes_before_what_is_said() -> None:
    said = reply_of(run_result(GOOD | {"structured_output": {"verdict": "FAIL"}, "result": "PASS, I would say"}))
    assert json.loads(said.text or "") == {"verdict": "FAIL"}
    words = Cli(("claude",), schema="{}").argv
    assert words[words.index("--json-schema") + 1] == "{}" and "--json-schema" not in Cli(("claude",)).argv


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (run_result(GOOD | {"is_error": True}), "the answer"),
        (run_result(GOOD | {"is_error": True, "result": "Not logged in"}, 1), "Not logged in"),
        (run_result(GOOD | {"is_error": True, "result": " ", "errors": ["a", 2]}, 1), "a; 2"),
        (run_result({"type": "result", "subtype": "error_max_turns", "is_error": True}, 1), "error_max_turns"),
        (run_result(GOOD | {"is_error": "false"}), "the answer"),
        (run_result(GOOD | {"is_error": None}, err="x"), "exit code 0: x"),
        (run_result(GOOD | {"subtype": "error_during_execution"}), "error_during_execution"),
        (run_result(GOOD, 3), "exit code 3"),
        (run_result(GOOD, 3, "at last"), "exit code 3: at last"),
        (run_result(GOOD, -9), "signal 9"),
        (run_result("", 1, "Error: unknown option\n"), "exit code 1: Error: unknown option"),
        (run_result("said to stdout", 1), "exit code 1: said to stdout"),
        (run_result("", -15), "signal 15"),
        (run_result("", 1, "x" * 9000 + "the end"), "exit code 1: " + "x" * 7993 + "the end"),
    ],
)
def test_a_run_that_failed_has_no_text_and_says_why(run: Ended, problem: str) -> None:
    said = reply_of(run)
    assert (said.text, said.problem, said.is_late, said.is_garbage) == (None, problem, False, False)


GARBAGE = [
    "",
    "}{",
    LINE[:-9],
    "null",
    "1",
    '"the answer"',
    "[]",
    "[1, null]",
    "{}",
    '{"type": "assistant", "result": "x"}',
]
GARBAGE += ["[" * 200_000, '{"type": "result", "result": "a\nb"}', "NaN", f"{LINE} {LINE}", f"{LINE}\n{LINE}"]
GARBAGE += [
    f"[{LINE}, {LINE}]",
    f"{LINE}\na last word",
    LINE.replace("0.25", "NaN"),
    LINE[:-1] + ', "is_error": false}',
]


@pytest.mark.parametrize("out", GARBAGE, ids=lambda out: out[:20])
def test_what_is_not_its_json_is_garbage_and_never_a_text(out: str) -> None:
    said = reply_of(run_result(out))
    assert (said.text, said.is_garbage, said.usage) == (None, True, Usage())
    assert said.problem == f"the CLI said {len(out)} bytes that are not its JSON"


@pytest.mark.parametrize("text", [None, 5, ["x"], {"a": 1}])
def test_json_without_a_text_is_garbage_that_cost_something(text: Any) -> None:
    said = reply_of(run_result(GOOD | {"result": text}))
    assert (said.text, said.is_garbage, said.usage) == (None, True, SPENT) and said.problem


def test_what_came_too_late_or_not_as_a_whole_counts_for_nothing() -> None:
    assert reply_of(run_result(is_late=True, code=-15)) == ClaudeReply(None, is_late=True, usage=SPENT)
    said = reply_of(run_result(left_out=7))
    assert (said.text, said.is_garbage) == (None, True) and f"{len(LINE) + 7} bytes" in str(said.problem)


def test_an_answer_in_the_shape_that_was_asked_for_goes_before_what_is_said_beside_it() -> None:
    shaped = GOOD | {"structured_output": {"verdict": "FAIL"}}
    assert reply_of(run_result(shaped)) == ClaudeReply('{"verdict": "FAIL"}', usage=SPENT)
    assert reply_of(run_result(shaped | {"result": None})).text == '{"verdict": "FAIL"}'
    assert reply_of(run_result(shaped | {"structured_output": ["x"]})).text == "the answer"
    for bad in ({"is_error": True}, {"subtype": "error_max_turns"}):
        assert reply_of(run_result(shaped | bad)).text is None


@pytest.mark.parametrize("odd", [None, "9", True, -1, 10**400, [1], {}])
def test_numbers_that_are_none_count_for_nothing(odd: Any) -> None:
    told = GOOD | {"usage": dict.fromkeys(USAGE, odd), "total_cost_usd": odd}
    assert reply_of(run_result(told)) == ClaudeReply("the answer")
    assert reply_of(run_result(GOOD | {"usage": odd})).usage == Usage(0, 0, 0.25)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), st.lists, max_leaves=4
)


@settings(max_examples=80, deadline=None)
@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys([*GOOD, "errors"], ANY | st.just("result"))), st.integers(-9, 2)
)
def test_whatever_it_prints_a_text_is_only_that_of_a_good_result(told: dict[str, Any], code: int) -> None:
    said = reply_of(run_result(told, code))
    if said.text is not None:
        assert (told["type"], told["result"], code) == ("result", said.text, 0)
        assert told.get("is_error", False) is False and told.get("subtype", "success") == "success"
    else:
        assert said.problem


def test_the_words_let_it_read_and_nothing_else() -> None:
    words = Cli(("env", "claude")).argv
    assert words[:4] == ["env", "claude", "--print", "--output-format"]
    told = dict(pairwise(words))
    assert (told["--output-format"], told["--setting-sources"], told["--tools"]) == ("json", "", "Read,Grep,Glob")
    assert set(READ_ONLY) == {"Read", "Grep", "Glob"}
    denied = told["--disallowedTools"].split(",")
    assert denied == [f"Read(**/{name})" for name in SECRET] and "Read(**/.env*)" in denied
    assert {"--strict-mcp-config", "--disable-slash-commands", "--no-session-persistence"} < set(words)
    assert not {"--model", "--dangerously-skip-permissions", "--mcp-config"} & set(words)


def test_each_setting_has_its_words() -> None:
    plain, skipping = Cli(("claude",)), Cli(("claude",), skip_permissions=True)
    chosen = Cli(("claude",), "opus").argv
    where = chosen.index("--model")
    assert chosen[where : where + 2] == ["--model", "opus"] and chosen[:where] + chosen[where + 2 :] == plain.argv
    assert skipping.argv[-1] == "--dangerously-skip-permissions"
    assert not {"--tools", "--disallowedTools"} & set(skipping.argv)
    assert plain.variables == QUIET | {"CLAUDE_CODE_RESTRICTED": "1"} and skipping.variables == QUIET
    assert {"CLAUDE_CODE_DISABLE_ATTACHMENTS", "CLAUDE_CODE_DISABLE_AUTO_MEMORY"} < QUIET.keys()


NEVER = [
    "CREWHALL_TOKEN",
    "CREWHALL_HOME",
    "MCP_SERVER_PORT",
    "MCP_TIMEOUT",
    "GITHUB_TOKEN",
    "GITEA_TOKEN",
    "GITEA_URL",
]
NEVER += [
    "DEPLOY_SECRET",
    "DB_PASSWORD",
    "OPENAI_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_PROFILE",
    "AZURE_CLIENT_SECRET",
]
NEVER += ["CLAUDECODE", "CLAUDE_PROJECT_DIR", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_EXTRA_BODY", "CLAUDEOPS_TIER"]
NEVER += ["STRIPE_KEY", "SMTP_PASS", "DATABASE_URL", "SSH_AUTH_SOCK", "JWT", "SENTRY_DSN", "EDITOR", "MYSQL_PWD"]
NEVER += ["BUN_OPTIONS", "NODE_OPTIONS", "GOOGLE_APPLICATION_CREDENTIALS"]
ALWAYS = ["PATH", "HOME", "LANG", "HTTPS_PROXY", "NO_PROXY", "CLAUDE_CONFIG_DIR", "ANTHROPIC_API_KEY", "SSL_CERT_FILE"]
ALWAYS += ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "NODE_EXTRA_CA_CERTS"]


def test_the_environment_has_what_it_logs_in_by_and_no_secret_of_others() -> None:
    environ = dict.fromkeys([*NEVER, *ALWAYS], "/x")
    assert surroundings(environ) == dict.fromkeys(ALWAYS, "/x")
    named = ("STRIPE_KEY", "DB_*", "NODE_OPTIONS")
    assert surroundings(environ, named) == dict.fromkeys([*ALWAYS, "STRIPE_KEY", "DB_PASSWORD"], "/x")


def test_it_reaches_its_model_by_a_proxy_that_has_a_password() -> None:
    proxy = {"HTTPS_PROXY": "http://ada:pw-of-the-proxy@proxy:3128", "https_proxy": "http://ada:pw@proxy:3128"}
    assert surroundings(proxy | {"PATH": "/x"}) == proxy | {"PATH": "/x"}
    assert b"pw-of" not in _hide_secrets(b"no way to http://ada:pw-of-the-proxy@proxy:3128", proxy)


@pytest.mark.parametrize(
    "name", ["HALL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"]
)
@pytest.mark.parametrize("kind", ["operator", "agent", "browser", "link"])
def test_a_token_of_the_halls_is_not_passed_on_under_any_name(name: str, kind: str) -> None:
    assert surroundings({name: f"Bearer ch_{kind}_{'aB3-' * 11}"[:-1], "PATH": "/x"}) == {"PATH": "/x"}


@pytest.mark.parametrize(
    ("switch", "secret"),
    [
        ("CLAUDE_CODE_USE_BEDROCK", "AWS_SECRET_ACCESS_KEY"),
        ("CLAUDE_CODE_USE_VERTEX", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("CLAUDE_CODE_USE_FOUNDRY", "AZURE_CLIENT_SECRET"),
    ],
)
def test_a_clouds_login_is_passed_on_where_it_is_reached_by_that_cloud(switch: str, secret: str) -> None:
    environ = dict.fromkeys(NEVER, "x") | {"PATH": "/x"}
    assert secret in surroundings(environ | {switch: "1"}) and secret not in surroundings(environ | {switch: ""})
    passed = surroundings(environ | {switch: "1"}).keys()
    assert {name.partition("_")[0] for name in passed - {switch, "PATH"}} == {secret.partition("_")[0]}


def test_no_program_is_looked_for_in_the_tree_that_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("tree", "bin"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "claude").write_text("#!/bin/sh\necho 9.9\n")
        (tmp_path / place / "claude").chmod(0o755)
    monkeypatch.chdir(tmp_path / "tree")
    relative, absolute = {"PATH": ".::../tree"}, {"PATH": f".:{tmp_path}/bin:"}
    assert surroundings(relative)["PATH"] == "" and surroundings(absolute)["PATH"] == f"{tmp_path}/bin"
    assert program(Cli(("claude",)), absolute) == f"{tmp_path}/bin/claude"
    with pytest.raises(Unavailable, match="no program claude"):
        program(Cli(("claude",)), relative)


def test_who_answers_is_told_by_program_words_and_variables(tmp_path: Path) -> None:
    cli = tmp_path / "claude"
    cli.write_text("#!/bin/sh\n")
    cli.chmod(0o755)
    environ = {"PATH": str(tmp_path), "ANTHROPIC_API_KEY": "x" * 20}
    plain = manner(Cli(("claude",)), environ)
    assert plain == manner(Cli(("claude",)), environ | {"ANTHROPIC_API_KEY": "another", "HOME": "/x"})
    others = [manner(Cli(("claude",)), environ | {name: "x"}) for name in ("ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL")]
    others += [manner(Cli(("claude",), "opus"), environ), manner(Cli(("claude",), skip_permissions=True), environ)]
    cli.write_text("#!/bin/sh\n# another\n")
    others.append(manner(Cli(("claude",)), environ))
    assert plain not in others and len({json.dumps(one) for one in others}) == 5
    assert "x" * 20 not in json.dumps([plain, others])


def test_a_real_run_gets_its_prompt_by_stdin_and_what_it_says_is_heard() -> None:
    script = f"""test "$(cat)" = 'is it | so?' && test -z "$CREWHALL_TOKEN" && printf %s '{LINE}'"""
    said = ask(Cli(("sh", "-c", script)), "is it | so?", cwd="/", seconds=20, stop=Stop())
    assert (said.text, said.usage, said.seconds > 0) == ("the answer", SPENT, True)
    half = ask(Cli(("sh", "-c", "cat >&2; exit 4")), "\ud800", cwd="/", seconds=20, stop=Stop())
    assert half.problem == "exit code 4: ?"


def test_what_outlives_it_does_not_answer_in_its_place() -> None:
    """A process that it left behind has its pipe too, and speaks when it has gone: then there are two answers."""
    other = json.dumps(GOOD | {"result": "another answer"})
    waits = "trap '' TERM; while kill -0 $$ 2>/dev/null; do :; done"
    script = f"""({waits}; printf '%s\\n' '{other}') & printf '%s\\n' '{LINE}'"""
    said = ask(Cli(("sh", "-c", script)), "", cwd="/", seconds=20, stop=Stop())
    assert said.text == "the answer" or said.is_garbage, "it may have been ended before it spoke"


def test_what_it_logs_in_by_is_not_told_even_if_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "any-letters-at-all"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    said = ask(
        Cli(("sh", "-c", "echo $ANTHROPIC_API_KEY | tee /dev/stderr; exit 1")), "", cwd="/", seconds=20, stop=Stop()
    )
    assert said.problem == "exit code 1: [secret: ANTHROPIC_API_KEY]"
    script = f"""printf '{LINE}' | sed "s/the answer/$ANTHROPIC_API_KEY/" """
    assert ask(Cli(("sh", "-c", script)), "", cwd="/", seconds=20, stop=Stop()).text == "[secret: ANTHROPIC_API_KEY]"


def test_a_cli_that_is_not_there_or_says_nothing_is_told_apart() -> None:
    with pytest.raises(Unavailable, match="the Claude CLI is not there") as refused:
        version(Cli(("no-such-claude",)), "/", Stop())
    assert "judge.command" in str(refused.value.hint)
    for script, why in (("exit 0", "exit code 0"), ("echo so; exit 3", "exit code 3: so"), ("kill -9 $$", "signal 9")):
        with pytest.raises(InvalidState, match=f"--version failed: {why}"):
            version(Cli(("sh", "-c", script)), "/", Stop())
    assert version(Cli(("printf", "9.9 (Stand-in)\nmore%s")), "/", Stop()) == "9.9 (Stand-in)"
