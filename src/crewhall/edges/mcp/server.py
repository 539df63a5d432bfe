"""
The MCP edge: the official SDK's lowlevel server in front of `Hub.call`.

Streamable HTTP at `/mcp`, for 2026-07-28 and for 2025-era clients, stateless in both: a request carries all that
is needed to answer it. `/mcp/work` shows one family; `X-Crewhall-Families`, `X-Crewhall-Profile` and
`?profile=` pick as well.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any

from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    ServerCapabilities,
    ToolAnnotations,
)
from mcp_types import Tool as McpTool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from crewhall import __version__
from crewhall.edges.bridge.jsonrpc import tool_result
from crewhall.edges.http.guard import WrongMethod, credentials, refusal
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.edges.mcp.caller import UNAUTHORIZED, Caller, HeldStart, caller_by, caller_of, tool_caller_of
from crewhall.edges.mcp.envelope import read_body, read_envelope
from crewhall.edges.mcp.resources import Offers
from crewhall.edges.mcp.subscriptions import Listening
from crewhall.errors import NotFound, Unauthorized
from crewhall.tool import Registry, Tool

INSTRUCTIONS = """\
Crewhall is the hall where the coding agents of this machine coordinate. Other agents are in it with you.

1. Join once: agent_register(name, runtime, capabilities), and keep the id it returns. Your connection, or your token, \
tells who you are then: leave agent_id out, unless others share it.
2. Take work: task_get_available(repository_path=your directory) shows what you could do, task_claim takes a task so \
that no one else does it. When success is false another has it: take the next. LIMIT_EXCEEDED, or a no_room that is \
not 0, means that as many tasks of a workflow run as may: ask again when one has ended. Work in the workspace that it \
names; where it names none, file_reserve what you will change. task_load_context tells all about the task, also \
when your memory was cleared: it knows which you hold. Begin it with task_update_status in_progress.
3. Note each step, decision and error with checkpoint_add: it is your memory, and your successor's. Give the \
claim_epoch of your claim with what you write; STALE_CLAIM means that the task is another's now: stop.
4. End it with task_update_status: completed and the outcome, or failed and the error. task_release gives it back.
5. Plan work with workflow_create and workflow_set_plan; workflow_next_tasks and workflow_progress show how it stands.
6. Talk with message_send, read with message_list; operator is the person. event_list tells what \
happened.
7. Act as yourself only. Leave with agent_unregister when you are done.
8. Heed the notices in an answer: a pause of your workflow, a message.

Errors are results with a code, a message and a hint. Do what the hint says; when `recoverable` is false, do not \
repeat the call. A call that answered has happened and is on disk. Give what creates something an idempotency_key: \
when no answer comes, repeat the call with the same key, and it is done once. Lists are bounded: total says how many \
there are, next_offset or next_cursor where to go on, left_out what of a text was cut.
"""

# What a list says depends on who asks and on the hub's version, and on nothing that happens.
FIXED = CacheHint(ttl_ms=300_000, scope="private")


class McpEdge:
    """An ASGI application that serves MCP for a hub, or those of its tools that a registry has.

    A client that sees one family alone is served by an edge of its own, where that family has words for it.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        listening: Listening,
        registry: Registry | None = None,
        instructions: str | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.registry = registry or dispatcher.hub.registry
        families = self.registry.families if instructions is None else []
        self._alone = {
            family.name: McpEdge(dispatcher, listening, self.registry, family.instructions)
            for family in families
            if family.instructions
        }
        offers = Offers(dispatcher, self.registry)
        self.server: Server[Any] = SteadyServer(
            "crewhall",
            version=__version__,
            title="Crewhall",
            instructions=INSTRUCTIONS if instructions is None else instructions,
            cache_hints={
                "tools/list": FIXED,
                "server/discover": FIXED,
                "resources/list": FIXED,
                "resources/templates/list": FIXED,
                "prompts/list": FIXED,
                "resources/read": CacheHint(ttl_ms=0, scope="private"),
            },
            # No tool asks for Mcp-Param headers; without this the SDK would list all tools at every call.
            get_tool_input_schema=lambda name: None,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=offers.list_resources,
            on_list_resource_templates=offers.list_templates,
            on_read_resource=offers.read_resource,
            on_list_prompts=offers.list_prompts,
            on_get_prompt=offers.get_prompt,
            on_completion=offers.complete,
            on_subscriptions_listen=listening,
        )
        # The guard in front of every route checks Host, Origin and size; the SDK's own checks would say it twice.
        self.manager = StreamableHTTPSessionManager(
            self.server, stateless=True, max_request_body_size=max(1, dispatcher.hub.settings["server.max_body_bytes"])
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Requests can come, until the block ends."""
        async with AsyncExitStack() as stack:
            for edge in (self, *self._alone.values()):
                await stack.enter_async_context(edge.manager.run())
            yield

    def seen_by(self, families: Sequence[str]) -> "McpEdge":
        """The edge for a client that sees these families."""
        return self._alone.get(families[0], self) if len(families) == 1 else self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who = await self.caller(scope, guess=scope["method"] == "POST")
        if scope["method"] != "POST":
            # The SDK would hold a 2025-era GET open for ever, saying nothing, and a stopping hub would wait for it.
            await _only_post(scope, receive, send)
            return
        async with self.dispatcher.place(Headers(scope=scope), who.actor, who.origin):
            body, receive = await read_body(scope, receive)
            method, refused = read_envelope(body)
            if who.actor.unproven is not None and method != "tools/call":
                who = await self.caller(scope)
            scope["crewhall"] = who
            answer = refused or self.seen_by(who.families).manager.handle_request
            await answer(scope, receive, HeldStart(scope, receive, send) if who.actor.unproven else send)
        if who.told:
            await self.dispatcher.note_told(who.told)

    async def caller(self, scope: Scope, edge: str = "mcp", *, guess: bool = False) -> Caller:
        """Who sent an HTTP request, and what it wants to see. Raises Unauthorized, InvalidInput.

        It may be a guess, which only calls tools.
        """
        given = credentials(scope, self.dispatcher.hub.settings)
        actor = await (self.dispatcher.caller(given) if guess else self.dispatcher.actor(given))
        return caller_by(self.registry, actor, scope, edge, given)

    async def _list(self, ctx: ServerRequestContext[Any], _: PaginatedRequestParams | None) -> ListToolsResult:
        who = caller_of(ctx)
        tools = self.registry.visible_tools(who.actor.kinds, who.families, who.profile)
        return ListToolsResult(tools=[as_mcp(tool) for tool in tools])

    async def _call(self, ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Any:
        try:
            tool = self.registry.find(params.name)
        except NotFound as unknown:
            raise MCPError(code=INVALID_PARAMS, message=f"{unknown.message}. {unknown.hint}") from None
        who = tool_caller_of(ctx)
        report = ctx.session.report_progress
        answer = await self.dispatcher.answer(
            params.name,
            params.arguments or {},
            who.actor,
            who.edge,
            report,
            origin=who.origin,
            tool=tool,
            told=who.told,
        )
        if isinstance(answer.failure, Unauthorized) and isinstance(ctx.request, Request):
            ctx.request.scope[UNAUTHORIZED] = answer.failure
        return tool_result(answer.body, is_error=answer.failure is not None)


class SteadyServer(Server[Any]):
    """A server whose lists stay as they are while it runs: it doesn't promise to tell of their changes."""

    def get_capabilities(self, *given: Any, **named: Any) -> ServerCapabilities:
        found = super().get_capabilities(*given, **named)
        for one in (found.tools, found.resources, found.prompts):
            if one is not None:
                one.list_changed = None
        return found


_only_post = refusal(
    WrongMethod("MCP is spoken by POST here; there are no sessions to open or end", hint="Send each message by POST.")
)


@cache
def as_mcp(tool: Tool) -> McpTool:
    """A tool as MCP lists it."""
    return McpTool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.brief_schema,
        output_schema=tool.output_schema,
        annotations=ToolAnnotations(
            read_only_hint=not tool.changes,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent or not tool.changes,
            open_world_hint=tool.outward,
        ),
        _meta={"crewhall/aliases": list(tool.aliases)} if tool.aliases else None,
    )
