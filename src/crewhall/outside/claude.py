"""
The Claude CLI, asked once and headless: a prompt on its standard input, one JSON object on its standard output.

    version(cli, cwd, stop) -> "2.1.325 (Claude Code)"
    ask(cli, prompt, cwd=…, seconds=…, stop=…) -> ClaudeReply(text, problem, is_late, usage, seconds)

What the working tree brings along says and runs nothing:

    CLAUDE.md, rules, hooks, plugins, skills, memory       no settings but ours, no auto memory
    its MCP servers                                        --strict-mcp-config, and none is given
    its commit messages and branch, in the system prompt   a system prompt of our own
    what the prompt seems to mention, such as @file        attachments are off
    writing, running, fetching                             Read, Grep and Glob are all the tools there are, restricted
                                                           to the working directory, without what is secret by name

A person's own settings could widen that, and are not read: `judge.command` may have `--settings FILE` among its words,
where somebody logs in by them. `skip_permissions` gives all of its tools, and asks nobody.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from crewhall.errors import InvalidState, Unavailable
from crewhall.outside.environment import PROXIES, URL_PASSWORD, program_environment
from crewhall.outside.root_path import real_path
from crewhall.outside.run import Ended, run_long
from crewhall.outside.strict_json import strict_json
from crewhall.stop import Stop

READ_ONLY = ("Read", "Grep", "Glob")
SECRET = (  # by name; `project.allow` does not count here
    *(".env*", ".git/**", ".ssh/**", ".aws/**", ".gnupg/**", ".kube/**", ".netrc", "_netrc", ".git-credentials"),
    *(".pgpass", ".npmrc", ".pypirc", ".htpasswd", "operator.token", "*.pem", "*.key"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "id_xmss*"),
)
SYSTEM = "You judge the work of other agents. You answer with one JSON object, in the shape that you are asked for."
MOST_BYTES = 8_000_000  # of what it says; an answer has some thousands
LAST_WORDS = 8_000  # characters of a failed run; more than anybody keeps, so that the cut is in no secret
GRACE = 1.0  # seconds between the request to end and the kill
VERSION_SECONDS = 20.0
READ_TOKENS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
# What it logs in by, whatever its name looks like, and what tells it how to reach its model: if it does so by a cloud,
# that one's too.
ITS_OWN = re.compile(
    r"ANTHROPIC_\w+|CLAUDE_CODE_(OAUTH_TOKEN|API_KEY\w*|USE_\w+|SKIP_\w+_AUTH|CLIENT_(CERT|KEY\w*)|CERT_STORE"
    r"|PROXY_RESOLVES_HOSTS|MAX_RETRIES|DISABLE_NONESSENTIAL_TRAFFIC)"
    rf"|(?i:{'|'.join(sorted(PROXIES))})"
)
CLOUDS = {
    "CLAUDE_CODE_USE_BEDROCK": re.compile(r"AWS_\w+"),
    "CLAUDE_CODE_USE_VERTEX": re.compile(r"(GOOGLE|GCLOUD|CLOUD_ML|VERTEX)_\w+"),
    "CLAUDE_CODE_USE_FOUNDRY": re.compile(r"AZURE_\w+"),
}
# What an outer session of Claude Code tells its children, and what would change or run something in this one.
NOT_ITS = re.compile(r"CLAUDECODE|CLAUDE_PROJECT_DIR|CLAUDE_CODE_\w+|(BUN|NODE)_OPTIONS|(OLD)?PWD")
SECRET_VARIABLE = re.compile("TOKEN|SECRET|PASS|PWD|CREDENTIAL|KEY|PAT$|AUTH|JWT|COOKIE|DSN|WEBHOOK|HEADERS")
# What chooses the model that answers, where no setting does.
MODEL = re.compile(r"ANTHROPIC_((?>\w*?MODEL)\w*|BASE_URL)|CLAUDE_CODE_USE_\w+")
LEAST_SECRET = 8  # letters; shorter values are words that stand in any text
QUIET = {
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "DISABLE_AUTOUPDATER": "1",
}


@dataclass(frozen=True)
class Cli:
    """Which CLI, and how it is run."""

    command: tuple[str, ...]
    model: str = ""
    skip_permissions: bool = False
    schema: str = ""  # of the answer: it is then given by a call of its own, and not in prose
    passes: tuple[str, ...] = ()  # further variables of ours that it gets

    @property
    def argv(self) -> list[str]:
        """The command line of one run; the prompt comes over standard input."""
        form = ["--print", "--output-format", "json", "--no-session-persistence", "--system-prompt", SYSTEM]
        alone = ["--setting-sources", "", "--strict-mcp-config", "--disable-slash-commands"]
        model = ["--model", self.model] if self.model else []
        shape = ["--json-schema", self.schema] if self.schema else []
        read_only = ["--tools", ",".join(READ_ONLY), "--disallowedTools", ",".join(f"Read(**/{one})" for one in SECRET)]
        may = ["--dangerously-skip-permissions"] if self.skip_permissions else read_only
        return [*self.command, *form, *alone, *model, *shape, *may]

    @property
    def variables(self) -> dict[str, str]:
        return QUIET if self.skip_permissions else QUIET | {"CLAUDE_CODE_RESTRICTED": "1"}


@dataclass(frozen=True)
class Usage:
    """What a run took, as the CLI tells it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True)
class ClaudeReply:
    """The result of one run: a text, or the problem why there is none; `is_late` when it ran out of time."""

    text: str | None
    problem: str | None = None
    is_late: bool = False
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    is_garbage: bool = False  # it ended well and said nothing that can be read


def program(cli: Cli, environ: Mapping[str, str] = os.environ) -> str:
    """Where the CLI is; PATH's relative entries would lead into the tree that is judged. Raises Unavailable."""
    found = shutil.which(cli.command[0], path=_absolute(environ.get("PATH", os.defpath)))
    if found is None:
        raise Unavailable(
            f"the Claude CLI is not there: no program {cli.command[0]}",
            hint="Install Claude Code and log in, or set judge.command to where it is; then start the hub anew.",
        )
    return found


def version(cli: Cli, cwd: str, stop: Stop) -> str:
    """What it calls its version. Raises Unavailable when it is not there, InvalidState when it does not answer."""
    ended = _run(cli, [*cli.command, "--version"], b"", cwd, VERSION_SECONDS, stop)
    line = ended.out.decode("utf-8", "replace").strip().partition("\n")[0]
    if ended.is_late:
        raise InvalidState(f"{cli.command[0]} did not answer within {VERSION_SECONDS:g} s", hint="Run it by hand.")
    if ended.code or not line:
        raise InvalidState(f"{' '.join(cli.command)} --version failed: {_problem(ended, {})}", hint="Run it by hand.")
    return line[:100]


def ask(cli: Cli, prompt: str, *, cwd: str, seconds: float, stop: Stop) -> ClaudeReply:
    """Ask, and wait for the answer. No process of it is left when this returns or raises.

    Raises Unavailable when there is no such CLI, and what `stop` raises.
    """
    return reply_of(_run(cli, cli.argv, prompt.encode("utf-8", "replace"), cwd, seconds, stop))


def manner(cli: Cli, environ: Mapping[str, str] = os.environ) -> list[str]:
    """All that decides who answers. Raises Unavailable."""
    path = real_path(program(cli, environ))
    try:
        told = os.stat(path)
    except OSError as error:  # it is being replaced
        raise Unavailable(f"{path} can't be looked at: {error.strerror}", hint="Ask again in a moment.") from None
    chosen = [f"{name}={environ[name]}" for name in sorted(environ) if MODEL.fullmatch(name)]
    return [*cli.argv, path, str(told.st_size), str(told.st_mtime_ns), *chosen]


def _run(cli: Cli, words: list[str], stdin: bytes, cwd: str, seconds: float, stop: Stop) -> Ended:
    """A run that ends with ours, whatever ends that: kill -9 too."""
    env = surroundings(os.environ, cli.passes) | cli.variables
    limited = partial(run_long, seconds=seconds, most_bytes=MOST_BYTES, grace=GRACE, guarded=True)
    ended = limited([program(cli), *words[1:]], cwd=cwd, env=env, stdin=stdin, stop=stop, called=cli.command[0])
    return replace(ended, out=_hide_secrets(ended.out, env), err=_hide_secrets(ended.err, env))


def _hide_secrets(said: bytes, env: Mapping[str, str]) -> bytes:
    """Replace the secrets by which the CLI logs in, wherever its output shows them."""
    for name, value in env.items():
        is_secret = SECRET_VARIABLE.search(name) or URL_PASSWORD.search(value)
        if is_secret and len(value) >= LEAST_SECRET:
            for form in (value, json.dumps(value)[1:-1]):
                said = said.replace(form.encode("utf-8", "surrogateescape"), f"[secret: {name}]".encode())
    return said


def _absolute(path: str) -> str:
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))


def surroundings(environ: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """The environment for the CLI: the usual, `more`, and what it logs in with and reaches its model by."""
    clouds = [pattern for switch, pattern in CLOUDS.items() if environ.get(switch)]
    own = [name for name in environ if any(one.fullmatch(name) for one in (ITS_OWN, *clouds))]
    passed = program_environment(environ, [*more, *own]).items()
    others = {name: value for name, value in passed if name in own or not NOT_ITS.fullmatch(name)}
    return others | {"PATH": _absolute(environ.get("PATH", os.defpath))}


def reply_of(ended: Ended) -> ClaudeReply:
    """The reply in a run's output: its text counts only if the run exited with 0, in time and without an error."""
    told = _result(ended)
    usage, seconds = _usage(told), ended.seconds
    if ended.is_late:
        return ClaudeReply(None, None, is_late=True, usage=usage, seconds=seconds)
    is_well = told.get("is_error", False) is False and told.get("subtype", "success") == "success"
    if ended.code or (told and not is_well):
        return ClaudeReply(None, _problem(ended, told), usage=usage, seconds=seconds)
    structured, text = told.get("structured_output"), told.get("result")
    if isinstance(structured, dict):
        text = json.dumps(structured, ensure_ascii=False)
    if not isinstance(text, str):
        problem = "the CLI's JSON has no text" if told else f"the CLI said {_size(ended)} that are not its JSON"
        return ClaudeReply(None, problem, usage=usage, seconds=seconds, is_garbage=True)
    return ClaudeReply(text, usage=usage, seconds=seconds)


def _result(ended: Ended) -> dict[str, Any]:
    """The one object that tells the result: alone, in a list of messages, or on the last line; {} if that is not so."""
    if ended.left_out:
        return {}
    out = ended.out.decode("utf-8", "replace").strip()
    results = [one for one in _objects(out) if one.get("type") == "result"]
    if not results:
        lines = [list(_objects(line)) for line in out.split("\n")]
        results = [one for line in lines for one in line if one.get("type") == "result"]
        if results and results[-1] not in lines[-1]:
            return {}  # something came behind it
    return results[0] if len(results) == 1 else {}


def _objects(text: str) -> Iterator[dict[str, Any]]:
    try:
        told = strict_json(text)
    except ValueError:
        return
    yield from (one for one in (told if isinstance(told, list) else [told]) if isinstance(one, dict))


def _usage(told: Mapping[str, Any]) -> Usage:
    usage = told.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    read = sum(_number(usage.get(name)) for name in READ_TOKENS)
    return Usage(int(read), int(_number(usage.get("output_tokens"))), _number(told.get("total_cost_usd")))


def _number(raw: Any) -> float:
    """A number that can be one of a bill; anything else is none."""
    return raw if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw < 1e15 else 0


def _problem(ended: Ended, told: Mapping[str, Any]) -> str:
    """Why a run failed, in its own words; an answer that it gave all the same is none of them."""
    text = told.get("result") if told.get("is_error") else None
    if isinstance(text, str) and text.strip():
        return text
    return _errors(told) or _crash(ended.err if told else ended.err or ended.out, ended.code)


def _errors(told: Mapping[str, Any]) -> str | None:
    errors = told.get("errors")
    said = "; ".join(str(one) for one in errors) if isinstance(errors, list) else ""
    return said or (str(told["subtype"]) if told.get("subtype") not in (None, "success") else None)


def _crash(said: bytes, code: int) -> str:
    """How a run ended that failed, and its last words."""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    words = said.decode("utf-8", "replace").strip()[-LAST_WORDS:]
    return f"{how}: {words}" if words else how


def _size(ended: Ended) -> str:
    return f"{len(ended.out) + ended.left_out} bytes"
