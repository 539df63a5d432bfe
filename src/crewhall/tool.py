"""
What a tool is: one typed function, declared once in its family.

The MCP schema, the REST route, the command line, the docs page and the permission all come from the declaration:

    @work.tool("agent_get", profiles=("worker", "standard"), resources=("crewhall://agents/{id}",))
    def agent_get(call: Call, id: AgentId) -> Agent:
        '''An agent's details.'''

A resource is a tool that reads, by an address. A prompt is declared the same way, and is a text for an agent:

    @work.prompt("leave_hall")
    def leave_hall(agent_id: AgentId) -> str:
        '''Leave the hall in good order.'''
"""

import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter

from crewhall.config import Settings
from crewhall.declaration import KEY, WORD, Declaration, Handler, Key, arguments_model, plain_schema
from crewhall.errors import NotFound
from crewhall.journal import SETTLE_SECONDS, Kind, settle_all
from crewhall.spelling import did_you_mean
from crewhall.store.sql import files_of

ANYONE = ("operator", "agent")
OPERATOR = ("operator",)
Pace = Literal["quick", "short", "long", "own"]
SCHEME = "crewhall://"
NOTICES = {
    "type": "array",
    "items": {"type": "string"},
    "description": "What you are told besides, once: your workflow was paused, you have a message. Often left out.",
}
DECLARING = ("chores", "prompts", "sources", "tools")  # how the names of modules that declare begin
DeclarationT = TypeVar("DeclarationT", bound="Declaration")
StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Profile:
    """A list of tools: whom it is for, and how many tools and bytes of them a model reads at most (None: any)."""

    about: str
    most_tools: int | None = None
    most_bytes: int | None = None


PROFILES = {
    "worker": Profile("Agents with the role worker, unless they choose another.", 15, 12_000),
    "coordinator": Profile("Agents with the role coordinator, unless they choose another."),
    "reviewer": Profile("Agents that review, unless they choose another."),
    "coding": Profile("Coding instances, unless they choose another.", 15, 15_000),
    "review": Profile("Review instances, unless they choose another.", 15, 15_000),
    "planning": Profile("Planning instances, unless they choose another.", 15, 15_000),
    "standard": Profile("The operator's clients, unless they choose another.", 25, 25_000),
    "worktree": Profile("Clients that need the files and recipes of one worktree only."),
    "readonly": Profile("Clients that must change nothing: every tool that only reads. Changes are refused."),
    "all": Profile("Clients that want every tool."),
}


class Result(BaseModel):
    """Base of what tools return: frozen, and closed in the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Tool(Declaration):
    """One declared tool.

    `changes` says whether it writes, `who` which kinds of actor may call it. `pace` says where it runs:

        quick  a few point reads in one transaction: on a local file an edge may run it in its own thread
        short  in the threads for short calls, as most do
        long   beside the short ones: git, hosts and the like
        own    in a thread for itself, with a time limit and a queue of its own; tool.timeout does not end it

    One that `creates` takes an idempotency key, which the door sees to. Called with one it runs in one transaction, so
    it does nothing outside the database; its answer is kept, so there is no secret in it.
    `resources` are the addresses under which its result can be read; {words} in them are its arguments.
    `route` is a further way in by REST that a seed asks for, such as ("GET", "prs"). One that is `outward` talks to
    services elsewhere. `aliases` are further names by which it can be called, and which no list shows.
    One that is `ours` is in no seed, so tests/requirements.toml has no line for it.
    `notes` tells the call log about a call before anything is checked, so that refused calls are known too.
    """

    name: str
    family: str
    handler: Handler
    changes: bool
    creates: bool = False
    who: tuple[str, ...] = ANYONE
    profiles: tuple[str, ...] = ()
    command: tuple[str, str] = ("", "")
    destructive: bool = False
    idempotent: bool = False
    pace: Pace = "short"
    resources: tuple[str, ...] = ()
    route: tuple[str, str] | None = None
    outward: bool = False
    aliases: tuple[str, ...] = ()
    ours: bool = False
    notes: Callable[..., None] | None = None
    arguments: type[BaseModel] = field(init=False, repr=False)
    acting: str | None = field(init=False)

    def __post_init__(self) -> None:
        assert self.pace != "quick" or not self.changes, f"{self.name} changes things, and cannot be quick"
        assert not self.creates or (self.changes and self.pace == "short"), f"{self.name} cannot take a key"
        added = {KEY: (Key | None, None)} if self.creates else {}
        model, acting = arguments_model(self.name, self.handler, **added)
        object.__setattr__(self, "arguments", model)
        object.__setattr__(self, "acting", acting)
        needed = {name for name, one in model.model_fields.items() if one.is_required()}
        for uri in self.resources:
            assert not self.changes, f"{self.name} changes things, and {uri} is for reading"
            assert uri.startswith(SCHEME) and needed <= set(variables(uri)) <= set(model.model_fields), uri

    @property
    def summary(self) -> str:
        return self.description.split("\n\n")[0].replace("\n", " ")

    @cached_property
    def result(self) -> TypeAdapter[Any]:
        return TypeAdapter(get_type_hints(self.handler, include_extras=True)["return"])

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """The result's schema, always an object: what is not one travels as `{"result": …}`. Any may have notices."""
        schema = plain_schema(self.result.json_schema(mode="serialization"))
        if schema.get("type") != "object":
            options = [option for option in schema.get("anyOf", []) if option.get("type") == "object"]
            properties = {**options[0]["properties"], "result": {"type": "null"}} if options else {"result": schema}
            schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | {"properties": {**schema.get("properties", {}), "notices": NOTICES}}

    def dump(self, result: Any) -> dict[str, Any]:
        """The result as plain data, an object always."""
        body = self.result.dump_python(result, mode="json")
        return body if isinstance(body, dict) else {"result": body}


@dataclass(frozen=True)
class Prompt(Declaration):
    """One declared prompt: from its arguments, a message that tells an agent what to do with the tools."""

    name: str
    family: str
    handler: Callable[..., str]
    arguments: type[BaseModel] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", arguments_model(self.name, self.handler)[0])

    def text(self, arguments: Mapping[str, Any]) -> str:
        """The message. Raises InvalidInput as `parse` does."""
        return self.handler(**self.parse(arguments))


@dataclass(frozen=True)
class Chore:
    """What hubs do every so many seconds (0: at each tick): one of them at a time, by a leased row, or `everywhere`.

    After `limit_seconds` its tick's `stop` ends what waits for it, and `crewhall doctor` calls the chore stuck.
    """

    name: str
    seconds: float
    run: Callable[..., None]
    everywhere: bool = False
    limit_seconds: float = 60.0


@dataclass(frozen=True)
class Source:
    """A source of context about a worktree, for `get_project_context`: a function of the call and the open root.

    It returns `SourceLines`, or raises a Failure that says why it has nothing. The lowest `priority` is shown first. If
    the budget is too small for all sources, each gets a share by `weight`.
    """

    name: str
    family: str
    priority: int
    weight: int
    handler: "Callable[..., SourceLines]"


@dataclass(frozen=True)
class SourceLines:
    """The lines of a source, the most important first, and how many `more` it did not collect.

    `rest` says what else it left out, where lines can't be counted.
    """

    lines: Sequence[str]
    more: int = 0
    rest: str | None = None


@dataclass(frozen=True, eq=False)
class State(Generic[StateT]):
    """What a family keeps in memory of each hub, such as a cache or a queue; `call.state(…)` gives this hub's own.

    Another hub, or the same one after a restart, must not miss it.
    """

    make: Callable[[Settings], StateT]


@dataclass
class Family:
    """A room of tools, prompts and chores with its own words and queries.

    `instructions` are for a client that sees this family alone; without them it is told of the hall as a whole.
    """

    name: str
    about: str
    package: str
    instructions: str = ""
    tools: list[Tool] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    chores: list[Chore] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    operations: list[Kind[Any]] = field(default_factory=list)

    def load(self) -> None:
        """Import the family's modules that declare something, known by their names: `tools.py`, `chores_message.py`."""
        _load_declarations(self.package)

    @cached_property
    def queries(self) -> str:
        """The family's statements, from all its files of queries."""
        texts = [item.read_text("utf-8") for item in files_of(self.package) if item.name.startswith("queries")]
        return "\n".join(texts)

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

    def prompt(self, name: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
        """Declare a prompt."""

        def declare(handler: Callable[..., str]) -> Callable[..., str]:
            self.prompts.append(Prompt(name, self.name, handler))
            return handler

        return declare

    def source(
        self, name: str, *, priority: int, weight: int
    ) -> Callable[[Callable[..., SourceLines]], Callable[..., SourceLines]]:
        """Declare a source of context."""

        def declare(handler: Callable[..., SourceLines]) -> Callable[..., SourceLines]:
            self.sources.append(Source(name, self.name, priority, weight, handler))
            return handler

        return declare

    def state(self, make: Callable[[Settings], StateT]) -> State[StateT]:
        """Declare what each hub keeps in memory for this family, made from the settings at its first use."""
        return State(make)

    def chore(
        self, name: str, *, seconds: float = 0.0, everywhere: bool = False, limit_seconds: float = 60.0
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Declare a chore: a function of a `Tick`."""

        def declare(run: Callable[..., None]) -> Callable[..., None]:
            self.chores.append(Chore(name, seconds, run, everywhere, limit_seconds))
            return run

        return declare

    def operation(
        self, name: str, *, settle_seconds: float = SETTLE_SECONDS, limit_seconds: float = 60.0, **more: Any
    ) -> Kind[Any]:
        """Declare a kind of operation outside the database (journal.py), and the chore that settles what was left."""
        kind: Kind[Any] = Kind(name, **more)
        self.operations.append(kind)
        chore = Chore(f"settle_{name}", settle_seconds, partial(settle_all, kind), True, limit_seconds)
        self.chores.append(chore)
        return kind


class Registry:
    """All tools, resources, prompts and chores of a hall, in a fixed order."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.families = list(families)
        self.tools = [tool for family in self.families for tool in sorted(family.tools, key=lambda tool: tool.command)]
        self.prompts = [prompt for family in self.families for prompt in family.prompts]
        self.operations = [kind for family in self.families for kind in family.operations]
        self.chores = [chore for family in self.families for chore in family.chores]
        self.sources = sorted((one for family in self.families for one in family.sources), key=lambda one: one.priority)
        self._tools = _by_name("tools", self.tools)
        self._aliases = {alias: tool for tool in self.tools for alias in tool.aliases}
        self._prompts = _by_name("prompts", self.prompts)

    def find(self, name: str) -> Tool:
        """The tool of that name, or with that alias. Raises NotFound that names the nearest one."""
        if name in self._aliases:
            return self._aliases[name]
        return _find("tool", self._tools, name, "tools/list and `crewhall --help` show the tools there are.")

    def find_prompt(self, name: str) -> Prompt:
        """The prompt of that name. Raises NotFound that names the nearest one."""
        return _find("prompt", self._prompts, name, "prompts/list shows the prompts there are.")

    def visible_tools(self, kinds: Iterable[str], families: Iterable[str], profile: str) -> list[Tool]:
        """The tools that an actor of these kinds sees in these families (none: all) under a profile.

        A family that was asked for and has nothing in that profile shows all its tools.
        """
        kinds, families = set(kinds), set(families)
        shown = [tool for tool in self.tools if not families or tool.family in families]
        chosen = {tool.family for tool in shown if _in_profile(tool, profile)}
        whole = families - chosen if profile not in ("readonly", "all") else set()
        return [
            tool for tool in shown if kinds & set(tool.who) and (_in_profile(tool, profile) or tool.family in whole)
        ]

    def narrow(self, profile: str) -> "Registry":
        """A registry with the tools of one profile only."""
        chosen = ((family, [tool for tool in family.tools if profile in tool.profiles]) for family in self.families)
        return Registry(Family(one.name, one.about, one.package, tools=tools) for one, tools in chosen if tools)


@cache
def _load_declarations(package: str) -> None:
    """Import them once per process: to walk the packages again takes longer than to open a hub."""
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        if is_declaring(module.name):
            import_module(module.name)


def is_declaring(module: str) -> bool:
    """Whether a hub loads the module when it starts; `@family.tool` and the like stand in such modules only."""
    return module.rpartition(".")[2].partition("_")[0] in DECLARING


def _by_name(what: str, declared: Sequence[DeclarationT]) -> dict[str, DeclarationT]:
    named = {one.name: one for one in declared}
    if len(named) != len(declared):
        raise ValueError(f"two {what} have the same name")
    return named


def _find(what: str, known: Mapping[str, DeclarationT], name: str, where: str) -> DeclarationT:
    if name in known:
        return known[name]
    raise NotFound(f"there is no {what} '{name[:WORD]}'", hint=did_you_mean(name, known, cutoff=0.5) or where)


def _in_profile(tool: Tool, profile: str) -> bool:
    if profile == "readonly":
        return not tool.changes
    return profile == "all" or profile in tool.profiles


def variables(uri: str) -> list[str]:
    """The arguments that an address leaves open; none when it is the address of one thing."""
    return re.findall(r"\{(\w+)\}", uri)
