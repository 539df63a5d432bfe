"""
What a tool is: one typed function, declared once in its family.

The MCP schema, the REST route, the command line, the docs page and the permission all come from the declaration:

    @work.tool("agent_get", profiles=("worker", "standard"))
    def agent_get(call: Call, id: AgentId) -> Agent:
        '''An agent's details.'''
"""

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic_core import ErrorDetails

from crewhall.errors import InvalidInput, NotFound
from crewhall.store.sql import text_of

ANYONE = ("operator", "agent")
OPERATOR = ("operator",)
PROFILES = ("worker", "coordinator", "reviewer", "standard", "readonly", "all")
PROBLEMS = 5  # of wrong arguments that an answer names
WORD = 80  # letters of a stranger's word that an answer repeats
Handler = Callable[..., Any]


class Keep:
    """The default of an argument that, left out, changes nothing, where null would clear a value."""

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Any = Keep()


@dataclass(frozen=True)
class Acting:
    """Marks the argument that says as which agent the caller acts; the door fills it in and checks it."""


class Result(BaseModel):
    """Base of what tools return: frozen, and closed in the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Tool:
    """One declared tool.

    `changes` says whether it writes, `who` which kinds of actor may call it. A `long` one runs under its own limit.
    A `quick` one makes a few point reads in one transaction and nothing else: where the database is a local file, an
    edge may run it without the way to a thread and back, which is a fifth of such a call.
    """

    name: str
    family: str
    handler: Handler
    changes: bool
    who: tuple[str, ...] = ANYONE
    profiles: tuple[str, ...] = ()
    command: tuple[str, str] = ("", "")
    destructive: bool = False
    idempotent: bool = False
    long: bool = False
    quick: bool = False
    arguments: type[BaseModel] = field(init=False, repr=False)
    acting: str | None = field(init=False)

    def __post_init__(self) -> None:
        assert not (self.quick and (self.changes or self.long)), f"{self.name} cannot be quick"
        model, acting = _arguments(self.name, self.handler)
        object.__setattr__(self, "arguments", model)
        object.__setattr__(self, "acting", acting)

    @cached_property
    def description(self) -> str:
        return inspect.cleandoc(self.handler.__doc__ or "")

    @property
    def summary(self) -> str:
        return self.description.split("\n\n")[0].replace("\n", " ")

    @cached_property
    def result(self) -> TypeAdapter[Any]:
        return TypeAdapter(get_type_hints(self.handler, include_extras=True)["return"])

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        schema = _plain(self.arguments.model_json_schema())
        return {"type": "object", "properties": {}, **schema}

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """The result's schema, always an object: what is not one travels as `{"result": …}`."""
        schema = _plain(self.result.json_schema(mode="serialization"))
        if schema.get("type") == "object":
            return schema
        options = [option for option in schema.get("anyOf", []) if option.get("type") == "object"]
        properties = {**options[0]["properties"], "result": {"type": "null"}} if options else {"result": schema}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def parse(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that were given, typed. Raises InvalidInput that names what is wrong, the first few of it."""
        try:
            model = self.arguments.model_validate(arguments)
        except ValidationError as error:
            problems = [self._problem(detail) for detail in error.errors(include_url=False)[:PROBLEMS]]
            more = [f"and {error.error_count() - PROBLEMS} more"] if error.error_count() > PROBLEMS else []
            raise InvalidInput("; ".join(problems + more), hint=self._usage()) from None
        return {name: getattr(model, name) for name in model.model_fields_set}

    def dump(self, result: Any) -> dict[str, Any]:
        """The result as plain data, an object always."""
        body = self.result.dump_python(result, mode="json")
        return body if isinstance(body, dict) else {"result": body}

    def _problem(self, detail: ErrorDetails) -> str:
        place = ".".join(str(part)[:WORD] for part in detail["loc"])
        if detail["type"] == "extra_forbidden":
            known = list(self.input_schema["properties"])
            near = difflib.get_close_matches(place, known, n=1, cutoff=0.5)
            return f"unknown argument '{place}'" + (f", did you mean '{near[0]}'?" if near else "")
        if detail["type"] == "missing":
            return f"missing argument '{place}'"
        return f"argument '{place}': {detail['msg'][:1].lower()}{detail['msg'][1:500]}"

    def _usage(self) -> str:
        required = self.input_schema.get("required", [])
        optional = [name for name in self.input_schema["properties"] if name not in required]
        parts = [
            f"needs {', '.join(required)}" if required else "",
            f"takes {', '.join(optional)}" if optional else "",
        ]
        return f"{self.name} {' and '.join(part for part in parts if part) or 'takes no arguments'}."


@dataclass
class Family:
    """A room of tools with its own words and queries."""

    name: str
    about: str
    package: str
    tools: list[Tool] = field(default_factory=list)

    @cached_property
    def queries(self) -> str:
        return text_of(self.package, "queries.sql")

    def tool(
        self, name: str, *, changes: bool = False, command: str | None = None, **more: Any
    ) -> Callable[[Handler], Handler]:
        """Declare a tool. Its command is `noun verb`: the name cut at its first underscore, unless given."""

        def declare(handler: Handler) -> Handler:
            noun, _, verb = (command or name.replace("_", " ", 1)).partition(" ")
            tool = Tool(name, self.name, handler, changes, command=(noun, verb.replace("_", "-")), **more)
            self.tools.append(tool)
            return handler

        return declare


class Registry:
    """All tools of a hall, in a fixed order."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.families = list(families)
        self.tools = [tool for family in self.families for tool in family.tools]
        self._by_name = {tool.name: tool for tool in self.tools}
        if len(self._by_name) != len(self.tools):
            raise ValueError("two tools have the same name")

    def find(self, name: str) -> Tool:
        """The tool of that name. Raises NotFound that names the nearest one."""
        if name in self._by_name:
            return self._by_name[name]
        near = difflib.get_close_matches(name, list(self._by_name), n=1, cutoff=0.5)
        hint = f"Did you mean '{near[0]}'?" if near else "tools/list and `crewhall --help` show the tools there are."
        raise NotFound(f"there is no tool '{name[:WORD]}'", hint=hint)

    def visible(self, kinds: Iterable[str], families: Iterable[str], profile: str) -> list[Tool]:
        """What an actor of these kinds sees of these families (none: all) under a profile."""
        kinds, families = set(kinds), set(families)
        return [
            tool
            for tool in self.tools
            if kinds & set(tool.who) and (not families or tool.family in families) and _in_profile(tool, profile)
        ]


def _in_profile(tool: Tool, profile: str) -> bool:
    if profile == "readonly":
        return not tool.changes
    return profile == "all" or profile in tool.profiles


def _arguments(name: str, handler: Handler) -> tuple[type[BaseModel], str | None]:
    """A strict model of a handler's parameters, `call` left out, and the name of the acting one."""
    hints = get_type_hints(handler, include_extras=True)
    fields: dict[str, Any] = {}
    acting = None
    for parameter in list(inspect.signature(handler).parameters.values())[1:]:
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        hint = hints[parameter.name]
        if any(isinstance(extra, Acting) for extra in getattr(hint, "__metadata__", ())):
            acting, hint, default = parameter.name, hint | None, None
        fields[parameter.name] = (hint, Field(default_factory=Keep) if default is KEEP else default)
    config = ConfigDict(extra="forbid", strict=True)
    return create_model(f"{name}_arguments", __config__=config, **fields), acting


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without titles and references, and without a null where leaving the argument out says the same."""
    definitions = schema.pop("$defs", {})

    def clean(node: Any, *, is_properties: bool = False) -> Any:
        if isinstance(node, list):
            return [clean(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            name = re.sub(r"^#/\$defs/", "", node["$ref"])
            return clean({**definitions[name], **{k: v for k, v in node.items() if k != "$ref"}})
        out = {
            key: clean(value, is_properties=key == "properties")
            for key, value in node.items()
            if is_properties or not (key == "title" and isinstance(value, str))
        }
        return out if is_properties else _without_null(out)

    cleaned: dict[str, Any] = clean(schema)
    return cleaned


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    if "default" not in node or node["default"] is not None:
        return node
    del node["default"]
    options = [option for option in node.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        del node["anyOf"]
        return {**options[0], **node}
    if options:
        node["anyOf"] = options
    return node
