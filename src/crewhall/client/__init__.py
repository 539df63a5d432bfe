"""
Many MCP servers behind one object, for a plain script.

    with Client({"claude": ["crewhall", "mcp"], "ollama": ["npx", "-y", "ollama-mcp"]}) as client:
        client.call_tool("claude_judge_review", {"contract_path": "_handoff/TASK_CONTRACT.json"})

    client ── loop thread ── fleet ──┬── link "claude" ── child      a process, by stdio
      (threads)     (one loop)       └── link "ollama" ── HTTP       a URL

It needs nothing of a hall: of Crewhall's own it uses the failures alone.
"""

from crewhall.client.answers import ToolFailed
from crewhall.client.client import AsyncClient, Client
from crewhall.client.link import ServerStatus
from crewhall.client.tools import ServerTool

__all__ = ["AsyncClient", "Client", "ServerStatus", "ServerTool", "ToolFailed"]
