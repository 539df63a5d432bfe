"""A small HTTP client that costs little: keep-alive connections, one request in flight on each."""

import asyncio
import json
import time
from typing import Any

MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


def tool_request(port: int, tool: str, arguments: dict[str, Any], token: str | None = None) -> bytes:
    """A tools/call of the 2026-07-28 era, as bytes."""
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return _post(
        port, "/mcp", body, {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}, token
    )


def rest_request(port: int, path: str, arguments: dict[str, Any], token: str | None = None) -> bytes:
    return _post(port, f"/api/v1/{path}", json.dumps(arguments).encode(), {}, token)


def _post(port: int, path: str, body: bytes, more: dict[str, str], token: str | None) -> bytes:
    headers = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json", "Content-Length": str(len(body))}
    headers |= {"Accept": "application/json, text/event-stream"} | more
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return "\r\n".join([f"POST {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]).encode() + body


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """A response's body; one that took its time comes as a stream of events, in chunks."""
    if b"transfer-encoding: chunked" not in head:
        return await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
    chunks = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        chunks.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(chunks)


async def _connection(port: int, request: bytes, count: int, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await _body(reader, head.lower())
        times.append(time.perf_counter() - began)
        if b" 200 " not in head[:20] or b'"isError":true' in body:
            raise RuntimeError(f"refused: {head!r} {body[:500]!r}")
    writer.close()


def block(port: int, request: bytes, connections: int, calls: int) -> tuple[float, list[float]]:
    """Seconds a call took on average while all connections were busy, and the time of each."""
    times: list[float] = []

    async def run() -> float:
        each = calls // connections
        began = time.perf_counter()
        await asyncio.gather(*(_connection(port, request, each, times) for _ in range(connections)))
        return (time.perf_counter() - began) / (each * connections)

    return asyncio.run(run()), times
