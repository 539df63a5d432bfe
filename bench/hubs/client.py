"""A process of agents: each on a connection of its own, one call in flight, over REST or MCP."""

import asyncio
import json
import re
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from bench.hubs.calls import Told, calls, path_of
from bench.hubs.worker import Answer, Done, tell
from bench.load import rest_request, tool_request

REFUSED = re.compile(rb'"isError": ?true|"success": ?false')
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Agents:
    """The agents of one order, and what they did."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.done: list[Done] = []
        self.failures: Counter[str] = Counter()
        self.began = 0.0

    async def run(self) -> Answer:
        agents = self.order["agents"]
        had = [len(agent["tasks"]) for agent in agents]
        streams = [await asyncio.open_connection("127.0.0.1", agent["port"]) for agent in agents]
        tell("ready")
        sys.stdin.readline()
        self.began = time.perf_counter()
        await asyncio.gather(*(self._work(agent, two) for agent, two in zip(agents, streams, strict=True)))
        for _, writer in streams:
            writer.close()
        taken = [before - len(agent["tasks"]) for before, agent in zip(had, agents, strict=True)]
        return Answer(self.done, dict(self.failures), taken)

    async def _work(self, agent: dict[str, Any], streams: Streams) -> None:
        for told in calls(self.order["workload"], agent["id"], agent["peer"], agent["tasks"]):
            began = time.perf_counter()
            if began - self.began >= self.order["seconds"]:
                return
            problem = await _ask(streams, self._request(agent, told))
            ended = time.perf_counter()
            if problem is None:
                self.done.append(("write" if told.writes else "read", ended - self.began, ended - began))
            else:
                self.failures[f"{told.tool}: {problem}"] += 1

    def _request(self, agent: dict[str, Any], told: Told) -> bytes:
        if self.order["edge"] == "mcp":
            return tool_request(agent["port"], told.tool, told.arguments, agent["token"])
        request = rest_request(agent["port"], path_of(told.tool), told.arguments, agent["token"])
        return request.replace(b", text/event-stream", b"", 1)  # the answer alone, no progress before it


async def _ask(streams: Streams, request: bytes) -> str | None:
    """Why it was not done, or None."""
    reader, writer = streams
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
    body = await reader.readexactly(int(length)) if length else await _chunks(reader)
    is_done = b" 200 " in head[:20] and not REFUSED.search(body)
    return None if is_done else body.decode()[:160]


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """A body without a length."""
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:size]
    await reader.readexactly(2)
    return body


def main() -> None:
    for line in sys.stdin:
        tell(json.dumps(asdict(asyncio.run(Agents(json.loads(line)).run()))))


if __name__ == "__main__":
    main()
