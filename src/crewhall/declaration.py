"""
What tools and prompts have in common: a typed function whose parameters become a strict model and a plain schema.

    def agent_get(call: Call, id: AgentId) -> Agent  ──▶  {"id": "ag_…"} and nothing else, or InvalidInput that says why
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError, create_model, model_validator
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError

from crewhall.errors import InvalidInput
from crewhall.spelling import AT_THE_END, did_you_mean

BRANCHES = ("str", "dict[str,any]")  # what the parser calls the sides of `str | dict`, which no caller wrote
PROBLEMS = 5  # of wrong arguments that an answer names
COUNTED = 1000  # problems that are looked at one by one; each costs memory
SPARE = 10  # fields too many that are each named
WORD = 80  # letters of a stranger's word that an answer repeats
Handler = Callable[..., Any]
LARGE = 100_000  # above it a maximum is what a database holds, and tells a caller nothing
KEY = "idempotency_key"
Key = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="A new word for each thing. Repeated with it within 24 hours, a call is done once.",
    ),
]


class Keep:
    """The default of an argument that, left out, changes nothing, where null would clear a value."""

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Any = Keep()


@dataclass(frozen=True)
class ActingAgent:
    """Marks the argument that names the agent a caller acts as; `Hub.call` fills it in and checks it."""


@dataclass(frozen=True)
class Suggest:
    """Marks an argument that a client may complete: the query gives rows of `value` and `total` for :prefix, :limit."""

    query: str


def _fail_fast(node: Any) -> Any:
    """The same schema, in which no list or mapping is read on after its first wrong item."""
    if isinstance(node, list | tuple):
        return type(node)(_fail_fast(item) for item in node)
    if not isinstance(node, dict):
        return node
    node = {key: _fail_fast(value) for key, value in node.items()}
    return node | {"fail_fast": True} if node.get("type") in ("list", "dict") else node


class InputModel(BaseModel):
    """Base of objects that callers pass, the arguments of a tool among them: typed strictly, no other fields.

    A list is not read on after its first wrong item, and an object with far more fields than it has is not read at
    all: each wrong one would be a problem of its own, and a request may have a million.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_crowd(cls, given: Any) -> Any:
        most = len(cls.model_fields)
        if isinstance(given, dict) and len(given) > most + SPARE:
            count = {"count": len(given), "most": most}
            raise PydanticCustomError("crowd", "{count} fields, and it has {most}", count)
        return given

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = _fail_fast(handler(source))
        return schema


class Declaration:
    """What tools and prompts have in common: a name, a typed function, and the arguments that it takes."""

    name: str
    handler: Handler
    arguments: type[BaseModel]

    @cached_property
    def description(self) -> str:
        return inspect.cleandoc(self.handler.__doc__ or "")

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        schema = plain_schema(self.arguments.model_json_schema())
        return {"type": "object", "properties": {}, **schema}

    @cached_property
    def brief_schema(self) -> dict[str, Any]:
        """The same for a model to read: limits that nobody meets by accident cost memory, and are checked anyway."""
        brief: dict[str, Any] = _without_limits(self.input_schema)
        return brief

    def parse(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that were given, typed. Raises InvalidInput that names what is wrong, the first few of it.

        Of a list it names the first wrong item.
        """
        try:
            model = self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise InvalidInput(self._problems(error), hint=self._usage()) from None
        return {name: getattr(model, name) for name in model.model_fields_set}

    def suggestions(self, argument: str) -> tuple[list[str], str | None]:
        """The words that an argument may be, and the query that knows more of them, if its type tells."""
        hints = get_type_hints(self.handler, include_extras=True)
        parts = list(_parts(hints.get(argument)))  # the handler has none for what the door adds
        words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
        return words, next((part.query for part in parts if isinstance(part, Suggest)), None)

    def _problems(self, error: ValidationError) -> str:
        count = error.error_count()
        if count > COUNTED:
            return f"{count} parts of the arguments are wrong"
        problems = [self._problem(detail) for detail in error.errors(include_url=False, include_input=False)[:PROBLEMS]]
        return "; ".join([*problems, f"and {count - PROBLEMS} more"] if count > PROBLEMS else problems)

    def _problem(self, detail: ErrorDetails) -> str:
        place = ".".join(str(part)[:WORD] for part in detail["loc"] if part not in BRANCHES)
        if detail["type"] == "extra_forbidden":
            name, known = str(detail["loc"][-1])[:WORD], self._names_at(detail["loc"])
            return f"unknown argument '{place}'{did_you_mean(name, known, AT_THE_END, cutoff=0.5)}"
        if detail["type"] == "missing":
            return f"missing argument '{place}'"
        if detail["type"] in ("model_type", "dict_type"):
            return f"argument '{place}': input should be an object"
        if not place:
            return f"{detail['ctx']['count']} arguments, and {self.name} takes {detail['ctx']['most']}"
        words = detail["msg"].removeprefix("Value error, ")
        return f"argument '{place}': {words[:1].lower()}{words[1:500]}"

    def _names_at(self, place: tuple[str | int, ...]) -> list[str]:
        """The valid names where an unknown one was given: of the arguments, or of the fields inside one."""
        node = self.input_schema
        for part in place[:-1]:
            node = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
        return list(node.get("properties", {}))

    def _usage(self) -> str:
        required = self.input_schema.get("required", [])
        optional = [name for name in self.input_schema["properties"] if name not in required]
        parts = [
            f"needs {', '.join(required)}" if required else "",
            f"takes {', '.join(optional)}" if optional else "",
        ]
        return f"{self.name} {' and '.join(part for part in parts if part) or 'takes no arguments'}."


def arguments_model(name: str, handler: Handler, **added: Any) -> tuple[type[BaseModel], str | None]:
    """A strict model of a handler's parameters, `call` left out, and of what the door adds; the acting one's name."""
    hints = get_type_hints(handler, include_extras=True)
    fields: dict[str, Any] = {}
    acting = None
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.name == "call":
            continue
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        hint = hints[parameter.name]
        if any(isinstance(extra, ActingAgent) for extra in getattr(hint, "__metadata__", ())):
            acting, hint, default = parameter.name, hint | None, None
        fields[parameter.name] = (hint, Field(default_factory=Keep) if default is KEEP else default)
    return create_model(f"{name}arguments_model", __base__=InputModel, **fields, **added), acting


def _parts(hint: Any) -> Iterator[Any]:
    """A type and all that it is made of: options, items, marks."""
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without titles and references, and without null where omitting the argument means the same."""
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


def _without_limits(node: Any, *, is_properties: bool = False) -> Any:
    if isinstance(node, list):
        return [_without_limits(item) for item in node]
    if not isinstance(node, dict):
        return node
    if is_properties:
        return {name: _without_limits(one) for name, one in node.items()}
    if node.get("additionalProperties") is True:  # as it is when nothing is said
        node = {key: value for key, value in node.items() if key != "additionalProperties"}
    return {
        key: _without_limits(value, is_properties=key == "properties")
        for key, value in node.items()
        if key not in ("minLength", "maxLength", "maxItems") and not (key == "maximum" and value > LARGE)
    }


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
