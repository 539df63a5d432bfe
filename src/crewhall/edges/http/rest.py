"""
The REST edge: every tool at `/api/v1/<noun>/<verb>`, by POST with a JSON object, reads also by GET with a query.

The routes are mechanical: `agent_register` is `POST /api/v1/agent/register` as it is `crewhall agent register`.
`/api/openapi.json` describes them.
"""

import json
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from crewhall import __version__
from crewhall.app import Origin
from crewhall.edges.bridge.hello import client_directory, client_variables
from crewhall.edges.http.guard import credentials, refusal
from crewhall.edges.http.reply import EVENTS, reply
from crewhall.edges.http.typed_values import typed_value
from crewhall.edges.hub.dispatch import Dispatcher
from crewhall.errors import Failure, InvalidInput, NotFound, every_failure
from crewhall.identity import Actor
from crewhall.tool import Registry, Tool

PREFIX = "/api/v1"


class RestEdge:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.registry = dispatcher.hub.registry
        self._commands = {tool.command: tool for tool in self.registry.tools}
        self._routes = {tool.route: tool for tool in self.registry.tools if tool.route is not None}

    def routes(self) -> list[Route]:
        return [
            Route("/api/openapi.json", self._openapi),
            Route(f"{PREFIX}/tools", self._tools),
            Route(f"{PREFIX}/{{noun}}/{{verb}}", InPlace(self.dispatcher, self._tool), methods=["GET", "POST"]),
            *(
                Route(f"{PREFIX}/{path}", InPlace(self.dispatcher, self._route), methods=methods)
                for path, methods in self._further().items()
            ),
        ]

    def _further(self) -> dict[str, list[str]]:
        """The paths that seeds ask for, and their methods."""
        found: dict[str, list[str]] = {}
        for method, path in self._routes:
            found.setdefault(path, []).append(method)
        return found

    async def _openapi(self, request: Request) -> Response:
        await actor_of(self.dispatcher, request)
        return Response(self._description, media_type="application/json")

    @cached_property
    def _description(self) -> bytes:
        """It takes milliseconds to make."""
        return bytes(JSONResponse(openapi(self.registry)).body)

    async def _tools(self, request: Request) -> JSONResponse:
        """Every tool, as the command line needs them: `Hub.call` decides whether the caller may use one."""
        await actor_of(self.dispatcher, request)
        return JSONResponse({"tools": [describe(tool) for tool in self.registry.tools]})

    async def _route(self, request: Request, actor: Actor) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        tool = self._routes[method, request.url.path.removeprefix(f"{PREFIX}/")]
        return await self._call(request, actor, tool)

    async def _tool(self, request: Request, actor: Actor) -> Response:
        command = (request.path_params["noun"], request.path_params["verb"])
        tool = self._commands.get(command)
        if tool is None:
            raise NotFound(
                f"there is no {PREFIX}/{'/'.join(command)}"[:200], hint="/api/openapi.json lists the routes."
            )
        return await self._call(request, actor, tool)

    async def _call(self, request: Request, actor: Actor, tool: Tool) -> Response:
        try:
            arguments = await _arguments(tool, request)
        except Failure as failure:
            return refusal(failure, tool.name)
        coming = partial(self.dispatcher.answer, tool.name, arguments, actor, "rest", origin=_origin(request, actor))
        return await reply(request, coming)


async def actor_of(dispatcher: Dispatcher, request: Request) -> Actor:
    """Who sent a request. Raises Unauthorized."""
    return await dispatcher.actor(credentials(request.scope, dispatcher.hub.settings))


class InPlace:
    """A route whose requests, if they are large, wait for a place, and hold it until they are answered."""

    def __init__(self, dispatcher: Dispatcher, endpoint: Callable[[Request, Actor], Awaitable[Response]]) -> None:
        self._dispatcher = dispatcher
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        actor = await self._dispatcher.caller(credentials(request.scope, self._dispatcher.hub.settings))
        async with self._dispatcher.place(request.headers, actor):
            response = await self._endpoint(request, actor)
            await response(scope, receive, send)


def _origin(request: Request, actor: Actor) -> Origin:
    """Where the client says that it is, and what its environment says about its calls; the command line does.

    An agent's words can hold it back (tiers.py); addresses and tokens are taken from the operator alone.
    """
    variables = _variables(unquote(request.headers.get("x-crewhall-variables", "")))
    if actor.kind != "operator":
        variables = {name: value for name, value in variables.items() if name.startswith("CLAUDEOPS_")}
    return Origin(client_directory(unquote(request.headers.get("x-crewhall-directory", ""))), variables=variables)


def _variables(text: str) -> dict[str, str]:
    try:
        values = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    return client_variables({name: value for name, value in values.items() if isinstance(value, str)})


async def _arguments(tool: Tool, request: Request) -> dict[str, Any]:
    if request.method in ("GET", "HEAD"):
        if tool.changes:
            raise InvalidInput(f"{tool.name} changes the hall, and GET never does", hint="Send it by POST.")
        properties = tool.input_schema["properties"]
        query = request.query_params
        return {name: typed_value(properties.get(name, {"type": "string"}), query.getlist(name)) for name in query}
    if request.url.query:
        raise InvalidInput("a POST with a query string", hint="Its arguments go into the body, as a JSON object.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if kind != "application/json" and body:
        raise InvalidInput(f"the body is '{kind[:50]}'", hint="Send a JSON object with Content-Type: application/json.")
    try:
        arguments = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        raise InvalidInput("the body is not JSON", hint="Send one JSON object with the tool's arguments.") from None
    if not isinstance(arguments, dict):
        raise InvalidInput("the body is not a JSON object", hint="Send one object with the arguments, one call each.")
    return arguments


def describe(tool: Tool) -> dict[str, Any]:
    """A tool as plain data, from which the command line, the docs and the snapshots are made."""
    return {
        "name": tool.name,
        "family": tool.family,
        "command": list(tool.command),
        "acting": tool.acting,
        "description": tool.description,
        "changes": tool.changes,
        "long": tool.pace in ("long", "own"),
        "who": list(tool.who),
        "profiles": list(tool.profiles),
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
    }


def openapi(registry: Registry) -> dict[str, Any]:
    """The hall's REST interface as OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Crewhall",
            "version": __version__,
            "description": _ABOUT,
        },
        "paths": {f"{PREFIX}/{'/'.join(tool.command)}": _operations(tool) for tool in registry.tools}
        | _further(registry),
        "components": {"schemas": {"Error": _error_schema()}, "securitySchemes": {"token": _SCHEME}},
        "security": [{"token": []}],
    }


_ABOUT = f"""\
A coordination hall for coding agents.

A POST with `Accept: {EVENTS}` is answered by events: `progress` (`{{progress, total, message}}`) while it runs,
at last `answer` (`{{status, body}}`), which is what the plain answer would have been.
"""
_SCHEME = {"type": "http", "scheme": "bearer", "description": "An operator's or agent's token."}


def _operations(tool: Tool) -> dict[str, Any]:
    shared = {
        "tags": [tool.command[0]],
        "summary": tool.summary,
        "description": tool.description,
        "responses": {
            "200": {"description": "The result.", **_json_content(tool.output_schema)},
            "default": {"description": "A refusal.", **_json_content({"$ref": "#/components/schemas/Error"})},
        },
    }
    body = {"required": bool(tool.input_schema.get("required")), **_json_content(tool.input_schema)}
    operations: dict[str, Any] = {"post": {"operationId": tool.name, **shared, "requestBody": body}}
    if not tool.changes:
        operations["get"] = {"operationId": f"{tool.name}_by_get", **shared, "parameters": _parameters(tool)}
    return operations


def _further(registry: Registry) -> dict[str, Any]:
    """The paths that seeds ask for."""
    found: dict[str, Any] = {}
    for tool in registry.tools:
        if tool.route is not None:
            method, path = tool.route
            operation = _operations(tool)[method.lower()]
            found.setdefault(f"{PREFIX}/{path}", {})[method.lower()] = operation | {
                "operationId": f"{tool.name}_at_{path}"
            }
    return found


def _parameters(tool: Tool) -> list[dict[str, Any]]:
    required = tool.input_schema.get("required", [])
    properties = tool.input_schema["properties"].items()
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema} for name, schema in properties
    ]


def _json_content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _error_schema() -> dict[str, Any]:
    codes = sorted({failure.code for failure in every_failure()})
    text: dict[str, Any] = {"type": "string"}
    fields: dict[str, Any] = {"error": {"type": "string", "enum": codes}, "code": {"type": "string", "enum": codes}}
    fields |= {"message": text, "hint": text, "recoverable": {"type": "boolean"}, "tool_name": text}
    return {"type": "object", "properties": fields, "required": list(fields)[:5]}
