"""What an instance's program is started with: token, MCP config, prompt, settings and the launcher's spec."""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from functools import partial

from crewhall.config import Settings
from crewhall.errors import Failure, InvalidInput, Unavailable
from crewhall.families.crew import claude_code
from crewhall.families.crew.model import InstanceRow
from crewhall.families.crew.run_directory import RunDirectory, plainly, run_directory
from crewhall.families.crew.runtimes import RESUMED, Runtime, runtime_named
from crewhall.families.project.rules_file import refuse_secret
from crewhall.identity import hash_of
from crewhall.outside.clients.by_bridge import by_bridge
from crewhall.outside.environment import instance_environment
from crewhall.outside.files import open_root
from crewhall.outside.just import recipe_words, recipes
from crewhall.outside.launch_spec import LaunchSpec, write_spec
from crewhall.store.sql import text_of

WORD_BYTES = 131_071  # Linux starts no program with a longer argument


def refuse_missing_program(settings: Settings, name: str, *, resumes: bool = False) -> None:
    """Raise Unavailable when a runtime's program is nowhere: not at its absolute path, nor in the PATH that it gets.

    One whose place depends on the worktree is not looked for: the setup may make it.
    """
    runtime = runtime_named(settings, name)
    program = runtime.template(resumes=resumes)[0]
    path = {**instance_environment(settings["programs.variables"], runtime.passes), **runtime.environment}.get(
        "PATH", os.defpath
    )
    is_absolute = os.path.isabs(program)
    if "{" in program or (os.sep in program and not is_absolute):
        return
    if not is_absolute and not all(os.path.isabs(one) for one in path.split(os.pathsep)):
        return
    if shutil.which(program, path=path) is None:
        raise Unavailable(
            f"the runtime {name} needs {program}, which can't be found",
            hint=f"Install it where the hub's PATH has it, or put its absolute path into [crew.runtimes.{name}] in "
            "config.toml, as the first word of `command`.",
        )


def write_files(settings: Settings, row: InstanceRow, template: str | None, *, resumes: bool) -> str:
    """Write all that the launcher needs; the hash of the new token. Raises InvalidState, InvalidInput, Unavailable.

    `template` is the repository's own text for its type, if it has one.
    """
    refuse_missing_program(settings, row["runtime"], resumes=resumes)
    runtime = runtime_named(settings, row["runtime"])
    place = run_directory(settings, row["id"])
    place.make()
    token = f"ch_agent_{secrets.token_urlsafe(32)}"
    prompt = RESUMED if resumes and runtime.resume else first_message(row, template)
    place.write("prompt.md", prompt)
    bridge = by_bridge(settings, None, None, row["worktree"])
    own = {**bridge.variables, "CREWHALL_TOKEN": token, "CLAUDEOPS_TIER": str(row["tier"])}
    entry = {"command": bridge.words[0], "args": list(bridge.words[1:]), "env": own}
    place.write("mcp.json", json.dumps({"mcpServers": {"crewhall": entry}}, indent=1))
    spec = _spec(settings, row, runtime, place, prompt, own, resumes)
    if runtime.state == "claude":
        claude_code.prepare(place, spec.environment)
    with plainly(place.spec):
        write_spec(str(place.spec), spec)
    return hash_of(token)


def _spec(
    settings: Settings,
    row: InstanceRow,
    runtime: Runtime,
    place: RunDirectory,
    prompt: str,
    own: Mapping[str, str],
    resumes: bool,
) -> LaunchSpec:
    places = {
        "prompt": prompt,
        "prompt_file": str(place.prompt),
        "mcp_config": str(place.mcp_config),
        "worktree": row["worktree"],
        "run_directory": str(place.path),
        "conversation": row["conversation_id"],
    }
    filled = {name: value.replace("{run_directory}", str(place.path)) for name, value in runtime.environment.items()}
    hall = {
        "CREWHALL_HOME": str(settings.home),
        "CREWHALL_INSTANCE": row["id"],
        "CREWHALL_STATE_FILE": str(place.state_file),
        "CREWHALL_MCP_CONFIG": str(place.mcp_config),
    }
    usual = instance_environment(settings["programs.variables"], runtime.passes)
    environment = {**usual, **filled, **hall, **_port_variables(row), **own}
    words = runtime.words(places, resumes=resumes)
    _refuse_long(row, words)
    limits = {"setup": _setup_words(settings, row), "setup_seconds": settings["crew.setup_seconds"]}
    return LaunchSpec(words, environment, row["worktree"], str(place.path), **limits)


def _refuse_long(row: InstanceRow, words: list[str]) -> None:
    """Raise InvalidInput for an argument that no program can be started with."""
    most = max(len(os.fsencode(word)) for word in words)
    if most > WORD_BYTES:
        raise InvalidInput(
            f"the first message of {row['id']} has {most} bytes, and a program takes {WORD_BYTES} in an argument",
            hint="Shorten the prompt; or put the text into a file, and name it in the prompt.",
            instance_id=row["id"],
        )


def _port_variables(row: InstanceRow) -> dict[str, str]:
    """CREWHALL_PORT, CREWHALL_PORT_2 …"""
    ports = enumerate(json.loads(row["ports"]), 1)
    return {f"CREWHALL_PORT{'' if number == 1 else f'_{number}'}": str(port) for number, port in ports}


def _setup_words(settings: Settings, row: InstanceRow) -> list[str] | None:
    """The command that runs the setup recipe; None when the worktree's justfile has no such recipe."""
    name, check = settings["crew.setup"], partial(refuse_secret, allow=settings["project.allow"])
    if not name:
        return None
    try:
        with open_root(row["worktree"]) as top:
            found = any(recipe.name == name and not recipe.needs for recipe in recipes(top, check))
            return recipe_words(top, name, check) if found else None
    except Failure:  # no justfile, or one that is broken: the program will see that itself
        return None


def first_message(row: InstanceRow, template: str | None) -> str:
    """The instance's prompt: the template, or the hall's own text for its type, around the task."""
    template = template or text_of("crewhall.families.crew", f"texts/{row['type']}.md")
    facts = {"instance": row["id"], "worktree": row["worktree"], "branch": row["branch"]}
    for name, value in {**facts, "base_branch": row["base_branch"]}.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    before, place, after = template.partition("{{task}}")
    return f"{before}{row['prompt']}{after}" if place else f"{before.rstrip()}\n\n{row['prompt']}\n"
