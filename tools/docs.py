"""
The generated pages: tools, settings, errors, events, and a snapshot of every tool and prompt. `make docs` writes them.

They are made from the declarations; a test fails when a page differs from what would be written now.
"""

import json
from pathlib import Path
from typing import Any

from crewhall.config import SETTINGS, Setting, seconds
from crewhall.declaration import Declaration
from crewhall.edges.http.rest import PREFIX, describe
from crewhall.edges.mcp.resources import resources
from crewhall.errors import Failure, every_failure
from crewhall.events import EVENTS
from crewhall.families.all import registry
from crewhall.tool import PROFILES, Prompt, Registry, Tool

MADE = "<!-- Made by `make docs` from the declarations in the code; edit those. -->\n"


def pages(tools: Registry) -> dict[str, str]:
    """Every generated file, by its path from the project's root."""
    made = {
        "docs/tools.md": tools_page(tools),
        "docs/settings.md": settings_page(),
        "docs/errors.md": errors_page(),
        "docs/events.md": events_page(),
    }
    for tool in tools.tools:
        made[f"tests/snapshots/{tool.name}.json"] = _snapshot(describe(tool) | _addresses(tool))
    for prompt in tools.prompts:
        made[f"tests/snapshots/prompt.{prompt.name}.json"] = _snapshot(
            {
                "name": prompt.name,
                "family": prompt.family,
                "description": prompt.description,
                "input_schema": prompt.input_schema,
            }
        )
    return made


def _addresses(tool: Tool) -> dict[str, Any]:
    """Where else a tool is: its resources; the route and the names that its seed asks for, if it does."""
    further = {"route": tool.route, "aliases": tool.aliases}
    return {"resources": list(tool.resources)} | {name: list(told) for name, told in further.items() if told}


def _snapshot(declared: dict[str, Any]) -> str:
    return json.dumps(declared, indent=2, ensure_ascii=False) + "\n"


def tools_page(tools: Registry) -> str:
    parts = [MADE, "# Tools\n", _PROLOGUE, _profiles(tools)]
    for family in tools.families:
        parts.append(f"## Family `{family.name}`\n\n{family.about}\n")
        parts += [_tool(tool) for tool in tools.tools if tool.family == family.name]
    parts += [_RESOURCES, _resources(tools), _PROMPTS]
    parts += [_prompt(prompt) for prompt in tools.prompts]
    return "\n".join(parts)


_PROLOGUE = f"""\
Every tool is there over MCP under its name, over REST at `{PREFIX}/<noun>/<verb>`, and as `crewhall <noun> <verb>`.
The result is the same on each; a refusal is one of the bodies in [errors](errors.md).
Arguments marked `*` are required. An unknown argument is refused.
"""


def _profiles(tools: Registry) -> str:
    rows = []
    for name, profile in PROFILES.items():
        count = len(tools.visible_tools(("operator", "agent"), (), name))
        rows.append(f"| `{name}` | {profile.about} | {count} | {profile.most_tools or 'any number'} |")
    return _PROFILES + "\n".join(rows) + "\n"


_PROFILES = """\
## Profiles

A client sees the tools of its profile; it may call whatever its actor may. Choose one with `--profile`, the header
`X-Crewhall-Profile` or `?profile=` in the URL ([clients](clients.md#by-bridge-or-by-url)). Every description costs an
agent tokens, so some profiles are full: a tool that is in none of them can still be called.

| profile | for | tools now | tools at most |
|---|---|--:|--:|
"""


def _tool(tool: Tool) -> str:
    noun, verb = tool.command
    method = "POST" if tool.changes else "GET or POST"
    who = "" if "agent" in tool.who else f" For: {', '.join(tool.who)}."
    also = f" Also called {', '.join(f'`{alias}`' for alias in tool.aliases)}." if tool.aliases else ""
    route = f"`{tool.route[0]} {PREFIX}/{tool.route[1]}` · " if tool.route else ""
    ways = f"`{method} {PREFIX}/{noun}/{verb}` · {route}`crewhall {noun} {verb}`"
    head = f"### `{tool.name}`\n\n{tool.description}{who}{also}\n\n{ways}\n"
    return "\n".join([head, _argument_rows(tool), _table("result", _fields(tool.output_schema, starred=False))])


def _argument_rows(declared: Declaration) -> str:
    given = _fields(declared.input_schema, starred=True)
    return _table("argument", given) if given else "It takes no arguments.\n"


_RESOURCES = """\
## Resources

Over MCP, what these tools read is there by an address too: `resources/read` gives the tool's result as JSON text, with
the same permissions and the same row in the call log. An address with `{words}` is a template; they are the tool's
arguments, percent-encoded. A refusal is a protocol error, with the body in its `data`.

`subscriptions/listen` tells of changes at these addresses; the acknowledgement lists those of which it will. A task's
context and a page of events after a cursor are not among them: listen to the workflow, or to `crewhall://events`. The
lists of tools, resources and prompts don't change while a hub runs, so it announces no changes of them.
"""


def _resources(tools: Registry) -> str:
    rows = [f"| `{uri}` | `{tool.name}` | {tool.summary} |" for uri, tool in resources(tools.tools)]
    return "\n".join(["| address | tool | what it gives |", "|---|---|---|", *rows]) + "\n"


_PROMPTS = """\
## Prompts

A prompt is a message to an agent that says what to do with the tools. A client shows it to its person, in Claude Code
as `/mcp__crewhall__<name>`. Clients can complete the arguments: agents by id or name, and what is one of a few words.
"""


def _prompt(prompt: Prompt) -> str:
    return f"### `{prompt.name}`\n\n{prompt.description}\n\n{_argument_rows(prompt)}"


def _table(title: str, rows: list[tuple[str, str, str]]) -> str:
    lines = [
        f"| {title} | type | |",
        "|---|---|---|",
        *(f"| `{name}` | {kind} | {note} |" for name, kind, note in rows),
    ]
    return "\n".join(lines) + "\n"


def _fields(schema: dict[str, Any], *, starred: bool) -> list[tuple[str, str, str]]:
    required = schema.get("required", [])
    rows = []
    for name, one in schema["properties"].items():
        default = f"Default `{json.dumps(one['default'])}`." if "default" in one else ""
        note = " ".join(part for part in (one.get("description", ""), default) if part)
        rows.append((f"{name}{'*' if starred and name in required else ''}", kind(one), note))
    return rows


def kind(schema: dict[str, Any]) -> str:
    """A schema's type in a few words."""
    if "anyOf" in schema:
        return " or ".join(kind(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def settings_page() -> str:
    rows = [f"| `{s.key}` | {_variables(s)} | `{default_text(s)}` | {s.help} |" for s in SETTINGS]
    head = "| key | variables | default | what it does |\n|---|---|---|---|\n"
    return f"{MADE}\n# Settings\n\n{_SOURCES}\n{head}" + "\n".join(rows) + "\n"


_SOURCES = """\
A value comes from, first found first: a flag of the command line, the `CREWHALL_…` variable, the seed's variable,
`config.toml` in the hall's directory (`[server]` then `port = 3001`), the default.
Times are `90`, `90s`, `1500ms`, `2m` or `1h`; a bare number from 10,000 up is milliseconds.
"""


def _variables(setting: Setting) -> str:
    return ", ".join(f"`{name}`" for name in setting.variables)


def default_text(setting: Setting) -> str:
    """A setting's default as config.toml would have it: a time has its unit, any other number has none."""
    return f"{setting.default:g}s" if setting.read is seconds else json.dumps(setting.default)


def errors_page() -> str:
    rows = [_failure(cls) for cls in every_failure() if cls.__module__ == "crewhall.errors"]
    head = "| code | HTTP | exit code | recoverable | what happened |\n|---|--:|--:|---|---|\n"
    return f"{MADE}\n# Errors\n\n{_BODY}\n{head}" + "\n".join(rows) + "\n"


def _failure(cls: type[Failure]) -> str:
    again = "yes" if cls.recoverable else "no"
    return f"| `{cls.code}` | {cls.status} | {cls.exit_code} | {again} | {(cls.__doc__ or '').strip()} |"


_BODY = """\
One flat body on every edge. Over MCP it is a tool result with `isError: true`, and for resources, prompts and
completion the `data` of a protocol error; over REST it comes with the HTTP status; the command line prints the message
and the hint, or with `--json` the body, and ends with the exit code.

```json
{"error": "NOT_FOUND", "code": "NOT_FOUND", "message": "there is no agent 'ag_1'",
 "hint": "agent_list shows the agents; agent_register makes one.", "recoverable": true, "tool_name": "agent_get"}
```

`recoverable` says whether doing what the hint says can make the same call succeed. Bad input never changes state.

An answer that is no failure can end a command with another code than 0, too: 5 when it has `success: false`, such as a
claim that came too late; a recipe's own code; 9 when the judge's answer is not PASS, not valid, or has findings.
"""


def events_page() -> str:
    rows = [f"| `{name}` | {kind.subject} | {kind.about} |" for name, kind in EVENTS.items()]
    head = "| event | its subject | what has happened |\n|---|---|---|\n"
    return f"{MADE}\n# Events\n\n{_EVENTS}\n{head}" + "\n".join(rows) + f"\n\n{_REPLAY}"


_EVENTS = """\
Every change of state writes an event in the same transaction. [`event_list`](tools.md#event_list), `crewhall watch` and
the WebSocket at `/api/v1/events` show them; `topic` filters by noun (`task`) or by event (`task.claimed`). `subject` is
the id of what the second column names. If its status changed, `before_status` and `after_status` say how; `data` says
more, and `changes` has each row as it was and as it is. [Event](nouns/event.md) has examples and what the log promises.
"""

_REPLAY = """\
## Replaying the log

Start with no rows and the oldest event; apply each change of each event in order:

- If `before` is null, add a row with the values in `after`. Values that are null are omitted.
- If `after` is null, delete the row. `before` has its values.
- Otherwise set the row's values to those in `after`; the others stay.

To go back in time, start with the rows as they are now and the newest event, and swap `before` and `after`. That works
as far back as events are kept. The id of a claim is `task/epoch`, of a dependency `task/depends_on`, of a review
`coder/reviewer`.
"""


def main() -> None:
    for path, text in pages(registry()).items():
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
