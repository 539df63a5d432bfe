"""The tools of all servers, and which of them a name means."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.client.client import Client as Connection
from mcp.shared.exceptions import MCPError

from crewhall.errors import InvalidInput, NotFound
from crewhall.spelling import did_you_mean

ALIASES = "crewhall/aliases"  # in a tool's _meta: further names for it
NEAREST = 3
PAGES = 100  # of a list


@dataclass(frozen=True)
class ServerTool:
    """A tool, and whose it is. `aliases` are further names by which it can be called."""

    server: str
    name: str
    description: str = ""
    input_schema: dict[str, Any] = field(default_factory=dict, repr=False)
    output_schema: dict[str, Any] | None = field(default=None, repr=False)
    aliases: tuple[str, ...] = ()

    @classmethod
    def from_mcp(cls, server: str, tool: types.Tool) -> "ServerTool":
        """A tool as its server lists it; aliases that are no list of names are none."""
        said = (tool.meta or {}).get(ALIASES)
        aliases = tuple(name for name in said if isinstance(name, str)) if isinstance(said, list) else ()
        return cls(server, tool.name, tool.description or "", tool.input_schema, tool.output_schema, aliases)


async def tools_of(server: str, connection: Connection) -> dict[str, ServerTool]:
    """The tools that a server lists; none where it knows of no such list. Raises MCPError."""
    found: list[ServerTool] = []
    cursor: str | None = None
    for _ in range(PAGES):
        try:
            page = await connection.list_tools(cursor=cursor)
        except MCPError as error:
            if error.code != types.METHOD_NOT_FOUND:
                raise
            break
        found += [ServerTool.from_mcp(server, tool) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    return {tool.name: tool for tool in found}


def matching_tools(tools: Iterable[ServerTool], name: str) -> list[ServerTool]:
    """The tools that a name may mean; within a server, a tool's own name wins over another tool's alias."""
    tools = [tool for tool in tools if name in (tool.name, *tool.aliases)]
    own = {tool.server for tool in tools if tool.name == name}
    return [tool for tool in tools if tool.name == name or tool.server not in own]


def split_name(name: str, servers: Iterable[str]) -> tuple[str, str] | None:
    """Split "server.tool" at the longest server name that fits; None if no server fits."""
    found = max((server for server in servers if name.startswith(f"{server}.")), key=len, default=None)
    return None if found is None else (found, name.removeprefix(f"{found}."))


def ambiguous_tool(name: str, found: list[ServerTool]) -> InvalidInput:
    owners = [tool.server for tool in found]
    ways = " or ".join(f"'{tool.server}.{tool.name}'" for tool in found)
    return InvalidInput(
        f"{name!r} is a tool of {' and of '.join(owners)}", hint=f"Say which: {ways}, or server={owners[0]!r}."
    )


def unknown_tool(name: str, tools: Iterable[ServerTool], servers: Iterable[str]) -> NotFound:
    """That no tool is called so, with the names that are nearest."""
    names = [each for tool in tools for each in (tool.name, *tool.aliases)]
    meant = did_you_mean(name.rpartition(".")[2], names, "Did you mean {}?", most=NEAREST, cutoff=0.5)
    hint = meant or "list_tools() shows the tools there are."
    return NotFound(f"there is no tool {name!r} in {', '.join(servers)}", hint=hint)
