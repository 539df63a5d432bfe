"""A server on the SDK, by HTTP."""

import asyncio
import os
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk")


@server.tool(structured_output=True)
def who(name: str = "") -> dict[str, Any]:
    """Who answers."""
    return {"pid": os.getpid(), "name": name}


@server.tool()
async def tick(ctx: Context, times: int, seconds: float) -> str:
    """Report so many times, then answer."""
    for number in range(times):
        await asyncio.sleep(seconds)
        await ctx.report_progress(number, times, "on")
    return "done"


@server.tool()
async def wait(path: str) -> str:
    """Never answer; the file is written when this begins, and again when it is cancelled."""
    try:
        with open(path, "w") as file:
            file.write("begun")
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        with open(path, "w") as file:
            file.write("cancelled")
        raise
    return "never"


if __name__ == "__main__":
    uvicorn.run(server.streamable_http_app(), port=int(sys.argv[1]), log_level="error")
