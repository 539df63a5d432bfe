"""
Runtimes as data: how an agent program is started, resumed, watched and reached.

    command = ["claude", …, "--mcp-config", "{mcp_config}", "{permission}", "--", "{prompt}"]

Places in a command: {prompt} the first message, {prompt_file} a file with it, {mcp_config}, {worktree},
{run_directory}, {conversation} an id that the hall chooses, {permission} the words of the chosen permission mode. A
person adds a runtime, or changes parts of one, under [crew.runtimes.NAME] in config.toml.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from crewhall.config import Settings
from crewhall.errors import InvalidInput


def _refuse_prompt_inside(word: str) -> str:
    """The word. A message inside another word could be read as options or, in a shell's, as commands."""
    if "{prompt}" in word and word != "{prompt}":
        raise ValueError("{prompt} must be a word of its own; {prompt_file} can be a part of one")
    return word


Words = tuple[Annotated[str, Field(max_length=4_000), AfterValidator(_refuse_prompt_inside)], ...]
PLACES = ("prompt", "prompt_file", "mcp_config", "worktree", "run_directory", "conversation")
PLACE = re.compile(f"{{({'|'.join(PLACES)})}}")
RESUMED = "Your session was restarted by the hall. Check where you were (task_load_context helps), then continue."


class Runtime(BaseModel):
    """How one agent program is run.

    `state` names who tells its state: Claude Code's own files, the file named in CREWHALL_STATE_FILE, or nobody.
    `messages` says how a message reaches it while it runs: by hooks and paste, or into its inbox in the hall only.
    `passes` are variables of the hub's environment that it gets, such as its login; tokens of the hall never.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: Words = Field(min_length=1)
    resume: Words = ()
    permission: Literal["skip", "ask"] = "skip"
    skip: Words = ()
    ask: Words = ()
    environment: dict[str, str] = Field(default_factory=dict)
    passes: tuple[str, ...] = ()
    state: Literal["claude", "file"] = "file"
    messages: Literal["claude", "inbox"] = "inbox"

    def template(self, *, resumes: bool = False) -> Words:
        """The command line with its places: the one that resumes, if that is wanted and there is one."""
        return self.resume if resumes and self.resume else self.command

    def words(self, places: Mapping[str, str], *, resumes: bool = False) -> list[str]:
        """The command line, its places filled."""
        chosen = self.template(resumes=resumes)
        permission = self.skip if self.permission == "skip" else self.ask
        spread = [word for one in chosen for word in (permission if one == "{permission}" else (one,))]
        return [_fill_places(word, places) for word in spread]


def _fill_places(word: str, places: Mapping[str, str]) -> str:
    """The word with its places filled, once: a value that holds such a place stays as it is."""
    return PLACE.sub(lambda place: places[place[1]], word)


_CLAUDE = (
    *("claude", "--settings", "{run_directory}/settings.json", "--mcp-config", "{mcp_config}", "--strict-mcp-config"),
    *("--setting-sources", "", "{permission}"),
)
BUILT_IN: dict[str, dict[str, Any]] = {
    "claude_code": {
        "command": (*_CLAUDE, "--session-id", "{conversation}", "--", "{prompt}"),
        "resume": (*_CLAUDE, "--resume", "{conversation}", "--", "{prompt}"),
        "skip": ("--dangerously-skip-permissions",),
        "ask": ("--permission-mode", "manual"),
        "environment": {
            "CLAUDE_CONFIG_DIR": "{run_directory}/claude",
            "CLAUDE_CODE_SANDBOXED": "1",
            "IS_SANDBOX": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        "passes": (
            *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
            *("CLAUDE_CODE_OAUTH_TOKEN", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"),
        ),
        "state": "claude",
        "messages": "claude",
    },
}


def runtime_named(settings: Settings, name: str) -> Runtime:
    """The runtime of that name, built in or from the settings. Raises InvalidInput when there is none."""
    own: dict[str, Any] = settings["crew.runtimes"].get(name, {})
    known = sorted({*BUILT_IN, *settings["crew.runtimes"]})
    if name not in known:
        raise InvalidInput(
            f"there is no runtime '{name[:80]}'; the hall knows {', '.join(known)}",
            hint=f"Add one under [crew.runtimes.{name[:80]}] in config.toml; docs/instances.md shows how.",
        )
    try:
        return Runtime.model_validate({**BUILT_IN.get(name, {}), **own})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(
            f"the runtime {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            hint=f"Correct [crew.runtimes.{name}] in config.toml.",
        ) from None
