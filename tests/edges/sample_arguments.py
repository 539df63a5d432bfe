"""
Arguments for every declared tool, made from its schema: ones that fit, and ones that do not.

A sample names things that are in the hall, so that a bad call which slips through would change something.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crewhall.app import Hub
from crewhall.identity import OPERATOR
from crewhall.tool import Tool

Arguments = dict[str, Any]
Path = tuple[str | int, ...]
HUGE = 3 * 1024 * 1024
NOUNS = {
    "workflow": "wf",
    "task": "tk",
    "agent": "ag",
    "message": "ms",
    "text": "ms",
    "workspace": "ws",
    "template": "tp",
    "instance": "in",
}
# By the name of an argument: which thing of the hall it names.
NAMED = {
    "instance_id": "in",
    "workflow_id": "wf",
    "task_id": "tk",
    "current_task_id": "tk",
    "agent_id": "ag",
    "sender_id": "ag",
    "recipient_id": "ag",
    "claimed_by": "ag",
    "workspace_id": "ws",
    "template_id": "tp",
    "from_workflow_id": "wf",
    "task_ids": "tk",
    "merge_commit": "commit",
    "reply_to_id": "ms",
    "message_ids": "ms",
    "thread_id": "th",
    "path": "path",
    "repository_path": "path",
    "field": "field",
}


def furnish(hub: Hub, name: str = "ada") -> dict[str, str]:
    """One thing of each kind in the hall, by its prefix."""

    def ask(tool: str, **arguments: Any) -> dict[str, Any]:
        return hub.call(tool, arguments, OPERATOR)

    agent = ask("agent_register", name=name, runtime="codex")["id"]
    workflow = ask("workflow_create", name="w", source_type="prompt", source_content="Do it.")["id"]
    tasks = [{"name": one, "description": "", "sequence": 1} for one in ("a", "b")]
    ask("workflow_set_plan", id=workflow, plan={"summary": "", "approach": "", "tasks": tasks})
    task = ask("workflow_next_tasks", workflow_id=workflow)["tasks"][0]["id"]
    ask("task_claim", task_id=task, agent_id=agent)
    ask("task_update_status", id=task, status="in_progress")
    ask("checkpoint_add", task_id=task, type="progress", summary="Begun")
    letter = ask("message_send", sender_id=agent, recipient_id=agent, message_type="query", body="?")
    ask("repository_register", path="/srv/app")
    template = ask("template_create", name="t", template={"tasks": tasks})["id"]
    ids = {"wf": workflow, "tk": task, "ag": agent, "ms": letter["id"], "th": letter["thread_id"], "tp": template}
    return ids | {"path": "/srv/app", "field": "body", "commit": "abc123", "in": "work-1-a1"}


def needed(tool: Tool, ids: dict[str, str]) -> Arguments:
    """The arguments that a call cannot do without."""
    names = [*tool.input_schema.get("required", []), *([tool.acting] if tool.acting else [])]
    return {name: sample(tool, name, ids) for name in names}


def sample(tool: Tool, name: str, ids: dict[str, str]) -> Any:
    """A value that fits an argument."""
    return _fitting(tool.input_schema["properties"][name], name, ids | {"id": ids.get(NOUNS.get(tool.command[0], ""))})


def _fitting(schema: dict[str, Any], name: str, ids: dict[str, Any]) -> Any:
    option = schema.get("anyOf", [schema])[0]
    if "enum" in option:
        return option["enum"][0]
    match option["type"]:
        case "string":
            known = ids["id"] if name == "id" else ids.get(NAMED.get(name, ""))
            return known or "x"
        case "integer" | "number":
            return max(1, option.get("minimum", 1))
        case "array":
            return [] if name == "depends_on" else [_fitting(option["items"], name, ids)]
        case "object":
            fields = option.get("properties", {})
            return {one: _fitting(inner, one, ids) for one, inner in fields.items()} or {"k": "v"}
    return True


@dataclass(frozen=True)
class Case:
    """A bad call: what is bad about it, where, and its arguments."""

    kind: str
    place: str
    arguments: Arguments


def bad_calls(tool: Tool, ids: dict[str, str]) -> Iterator[Case]:
    """Every way in which a call of the tool can be bad, one at a time."""
    base = needed(tool, ids)
    for name in base:
        yield Case("missing", name, {other: value for other, value in base.items() if other != name})
    yield Case("unknown", "zzz", base | {"zzz": 1})
    for name, schema in tool.input_schema["properties"].items():
        whole = base | {name: sample(tool, name, ids)}
        for path, inner in _places(schema, whole[name], (name,)):
            for kind, value in _bad_values(inner):
                yield Case(kind, ".".join(map(str, path)), _placed(whole, path, value))
            if inner is not None and "properties" in inner.get("anyOf", [inner])[0]:
                yield Case("unknown", ".".join(map(str, path)), _placed(whole, (*path, "zzz"), 1))
        yield Case("deep", name, whole | {name: _deep(100)})


def _places(schema: dict[str, Any] | None, value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """A value and all that is in it, each with its schema; None where anything may stand."""
    yield path, schema
    option = (schema or {}).get("anyOf", [schema or {}])[0]
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(option.get("properties", {}).get(name), inner, (*path, name))
    elif isinstance(value, list) and value:
        yield from _places(option.get("items"), value[0], (*path, 0))


EXAMPLES: dict[str, Any] = {
    "integer": 7,
    "number": 1.5,
    "boolean": True,
    "string": "x",
    "array": ["x"],
    "object": {"zzz": 1},
}
NOT_NUMBERS = (float("nan"), float("inf"), float("-inf"))


def _bad_values(schema: dict[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Values that no argument of this schema may have."""
    options = [{}] if schema is None else schema.get("anyOf", [schema])
    kinds = {option.get("type") for option in options}
    if schema is not None:
        fits = kinds | ({"integer"} if "number" in kinds else set())
        yield from (("wrong type", value) for kind, value in EXAMPLES.items() if kind not in fits)
    if kinds & {"string", None}:
        yield from (("NUL", "a\0b"), ("surrogate", "a\ud800"), ("huge text", "x" * HUGE))
    if kinds & {"integer", "number", None}:
        yield from (("NaN", value) for value in NOT_NUMBERS)
    if kinds & {"integer", "number"}:
        yield from (("huge number", value) for value in (10**30, -(10**30)))
        if all(option.get("minimum", -1) >= 0 for option in options):
            yield "negative", -1


def _placed(arguments: Arguments, path: Path, value: Any) -> Arguments:
    made = copy.deepcopy(arguments)
    node: Any = made
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return made


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"x": [value]}
    return value
