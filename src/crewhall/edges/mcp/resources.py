"""
What the hall offers over MCP beside tools: resources, prompts, and what to type next.

    crewhall://agents/ag_1 ──▶ agent_get(id="ag_1") ──▶ the door ──▶ its body, as JSON text
    join_hall(name="ada")  ──▶ a message that tells an agent what to do with the tools

Each is declared in its family. What is refused is a protocol error, with the body that every edge sends as its data.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    PromptArgument,
    PromptMessage,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)
from mcp_types import Prompt as McpPrompt
from pydantic import BaseModel

from crewhall.app import refuse_unstorable
from crewhall.declaration import WORD, Declaration
from crewhall.edges.http.typed_values import typed_value
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.edges.mcp.caller import Caller, caller_of
from crewhall.errors import Failure, InvalidInput, NotFound
from crewhall.tool import SCHEME, Prompt, Registry, Tool, variables

JSON = "application/json"
SUGGESTED = 100  # values in an answer, as the protocol has it
ADDRESS = 1000  # letters of an address that a refusal repeats
BESIDE = {"workflow": ("task", "checkpoint"), "instance": ("review",)}  # nouns whose events change that one's, too
# Nobody can listen to these: what the whole workflow does changes a context, and a page of the log is one of many.
UNTOLD = ("crewhall://tasks/{task_id}/context", "crewhall://events/{after}")
parsed = cache(UriTemplate.parse)
Ctx = ServerRequestContext[Any]


class Offers:
    """The lowlevel server's handlers for resources, prompts and completion."""

    def __init__(self, dispatcher: Dispatcher, registry: Registry) -> None:
        self.dispatcher = dispatcher
        self.registry = registry

    async def list_resources(self, ctx: Ctx, _: PaginatedRequestParams | None) -> ListResourcesResult:
        found = [(uri, tool) for uri, tool in self._seen_by(caller_of(ctx)) if not variables(uri)]
        return ListResourcesResult(resources=[Resource(uri=uri, **_about(uri, tool)) for uri, tool in found])

    async def list_templates(self, ctx: Ctx, _: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        found = [(uri, tool) for uri, tool in self._seen_by(caller_of(ctx)) if variables(uri)]
        templates = [ResourceTemplate(uri_template=uri, **_about(uri, tool)) for uri, tool in found]
        return ListResourceTemplatesResult(resource_templates=templates)

    def _seen_by(self, who: Caller) -> list[tuple[str, Tool]]:
        """What a caller may read of the families it chose; a profile shortens the list of tools alone."""
        return resources(self.registry.visible_tools(who.actor.kinds, who.families, "all"))

    async def read_resource(self, ctx: Ctx, params: ReadResourceRequestParams) -> ReadResourceResult:
        """The body of the tool that the address names, through the door as every call."""
        who, report = caller_of(ctx), ctx.session.report_progress
        with refusals(params):
            tool, given = self._at(params.uri)
        answer = await self.dispatcher.answer(tool.name, given, who.actor, who.edge, report, origin=who.origin)
        if answer.failure is not None:
            raise protocol_error(answer.failure, answer.body | {"uri": params.uri[:ADDRESS]})
        text = json.dumps(answer.body, ensure_ascii=False)
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=JSON, text=text)])

    def _at(self, address: str) -> tuple[Tool, dict[str, Any]]:
        """The tool at an address, and the arguments in it. Raises NotFound."""
        for uri, tool in resources(self.registry.tools):
            texts = parsed(uri).match(address)
            if texts is not None:
                return tool, values(tool, {name: str(text) for name, text in texts.items()})
        raise _nowhere(address)

    async def list_prompts(self, ctx: Ctx, _: PaginatedRequestParams | None) -> ListPromptsResult:
        families = caller_of(ctx).families
        found = [prompt for prompt in self.registry.prompts if not families or prompt.family in families]
        return ListPromptsResult(prompts=[_as_mcp(prompt) for prompt in found])

    async def get_prompt(self, ctx: Ctx, params: GetPromptRequestParams) -> GetPromptResult:
        with refusals(params):
            prompt = self.registry.find_prompt(params.name)
            text = prompt.text(values(prompt, params.arguments or {}))
        message = PromptMessage(role="user", content=TextContent(text=text))
        return GetPromptResult(description=prompt.description, messages=[message])

    async def complete(self, ctx: Ctx, params: CompleteRequestParams) -> CompleteResult:
        """What an argument may be that begins so: its type's words, or what the hall holds."""
        name, prefix = params.argument.name, params.argument.value
        with refusals(params):
            declared, names = self._resolve(params.ref, caller_of(ctx))
            if name not in names:
                known = f"It takes {', '.join(names)}." if names else "It takes no arguments."
                raise InvalidInput(f"unknown argument '{name[:WORD]}'", hint=known)
            words, query = declared.suggestions(name)
            if query is not None:
                return await self.dispatcher.thread(lambda: self._stored_values(query, prefix))
        fitting = [word for word in words if word.startswith(prefix)]
        return _completion(fitting, len(fitting))

    def _resolve(self, ref: PromptReference | ResourceTemplateReference, who: Caller) -> tuple[Declaration, list[str]]:
        """What a reference names, and the arguments that can be completed in it. Raises NotFound."""
        if isinstance(ref, PromptReference):
            prompt = self.registry.find_prompt(ref.name)
            return prompt, list(prompt.arguments.model_fields)
        for uri, tool in resources(self.registry.visible_tools(who.actor.kinds, (), "all")):
            if uri == ref.uri:
                return tool, variables(uri)
        raise _nowhere(ref.uri)

    def _stored_values(self, query: str, prefix: str) -> CompleteResult:
        """In a thread: the values in the hall that start with this."""
        with self.dispatcher.hub.store.read() as tx:
            rows = tx.all(query, prefix=prefix, limit=SUGGESTED)
        return _completion([row["value"] for row in rows], rows[0]["total"] if rows else 0)


def resources(tools: list[Tool]) -> list[tuple[str, Tool]]:
    """The addresses of these tools, in order."""
    return [(uri, tool) for tool in tools for uri in tool.resources]


def is_told(registry: Registry, address: str) -> bool:
    """Whether those who listen hear of every change of what is at an address."""
    return any(uri not in UNTOLD and parsed(uri).match(address) is not None for uri, _ in resources(registry.tools))


def addresses(registry: Registry, what: str, subject: str, owners: Collection[str] = ()) -> set[str]:
    """The resources that an event touches: its noun's, the subject's and its owners', and the log itself.

    The owner of a task, a checkpoint or a workspace is a workflow, those of a message are the agents it is in the
    inbox of.
    """
    noun = what.partition(".")[0]
    touched = set()
    for uri, tool in resources(registry.tools):
        own, names = tool.command[0], variables(uri)
        if not names and (own in (noun, "event") or noun in BESIDE.get(own, ())):
            touched.add(uri)
        elif len(names) == 1 and uri not in UNTOLD:
            ids = _ids(names[0], own, noun, subject, owners)
            touched |= {parsed(uri).expand({names[0]: id}) for id in ids}
    return touched


def _ids(name: str, own: str, noun: str, subject: str, owners: Collection[str]) -> Collection[str]:
    """The values of an address's variable for which an event changes what the tool of this noun tells."""
    of_subject = {"task_id": ("task", "checkpoint"), "workflow_id": ("workflow",), "id": (own, *BESIDE.get(own, ()))}
    of_owner = {"workflow_id": ("task", "workspace"), "agent_id": ("message",)}
    if own == "workflow" and noun in BESIDE[own]:
        return owners
    return (subject,) if noun in of_subject.get(name, ()) else owners if noun in of_owner.get(name, ()) else ()


def values(declared: Declaration, texts: Mapping[str, str]) -> dict[str, Any]:
    """Texts as the values that the arguments ask for; what does not fit is left for the parser to refuse."""
    properties = declared.input_schema["properties"]
    return {name: typed_value(properties.get(name, {"type": "string"}), [text]) for name, text in texts.items()}


@contextmanager
def refusals(params: BaseModel) -> Iterator[None]:
    """What is refused inside, or holds text that no wire can, leaves as a protocol error."""
    try:
        refuse_unstorable(params.model_dump())
        yield
    except Failure as failure:
        raise protocol_error(failure, failure.body()) from None


def protocol_error(failure: Failure, body: dict[str, Any]) -> MCPError:
    """A failure as a protocol error; what is not there is the caller's mistake as well (SEP-2164)."""
    code = INVALID_PARAMS if isinstance(failure, InvalidInput | NotFound) else INTERNAL_ERROR
    return MCPError(code, f"{failure.message}. {failure.hint}", body)


def _nowhere(address: str) -> NotFound:
    return NotFound(
        f"there is no resource '{address[:WORD]}'",
        hint="resources/list and resources/templates/list show the addresses there are.",
        uri=address[:ADDRESS],
    )


def _completion(found: list[str], total: int) -> CompleteResult:
    shown = found[:SUGGESTED]
    return CompleteResult(completion=Completion(values=shown, total=total, has_more=total > len(shown)))


def _about(uri: str, tool: Tool) -> dict[str, Any]:
    return {"name": uri.removeprefix(SCHEME), "description": tool.description, "mime_type": JSON}


@cache
def _as_mcp(prompt: Prompt) -> McpPrompt:
    """A prompt as MCP lists it."""
    schema = prompt.input_schema
    required = schema.get("required", [])
    arguments = [
        PromptArgument(name=name, description=one.get("description"), required=name in required)
        for name, one in schema["properties"].items()
    ]
    return McpPrompt(name=prompt.name, description=prompt.description, arguments=arguments)
