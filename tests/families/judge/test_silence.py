"""A review that takes longer than its client bears silence: the client hears of it, and gets its verdict."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from crewhall.identity import OPERATOR
from tests.conftest import Live
from tests.edges.interfaces import CREWHALL
from tests.edges.program import PASSED_ON
from tests.edges.stdio import hall_of
from tests.families.judge.judge_site import CONTRACT, JudgeSite, rules

pytestmark = pytest.mark.slow

SILENCE, REVIEW = 1.5, 4.0  # seconds


async def review_over(client: Client, contract: str) -> tuple[dict[str, Any], list[str]]:
    """The result of a review, for a client that gives up after so long a silence; and what it heard meanwhile."""
    loop, heard = asyncio.get_running_loop(), list[tuple[float, str]]()
    heard_at = loop.time()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        nonlocal heard_at
        heard_at = loop.time()
        heard.append((progress, message or ""))

    call = asyncio.create_task(client.call_tool("claude_judge_review", {"contract_path": contract}, None, hear))
    while not call.done():
        await asyncio.wait({call}, timeout=max(0.0, heard_at + SILENCE - loop.time()))
        if not call.done() and loop.time() > heard_at + SILENCE:
            call.cancel()
            raise TimeoutError(f"nothing was heard for {SILENCE} s; before: {heard}")
    result = await call
    assert result.structured_content is not None
    assert [one for one, _ in heard] == sorted({one for one, _ in heard}), "progress goes forward, each time"
    return result.structured_content, [message for _, message in heard]


def test_a_long_review_is_not_dropped_by_bridge_or_by_http(
    live_judge: Callable[..., Live], site_in: Callable[..., JudgeSite]
) -> None:
    live = live_judge(tool__progress="300ms")
    near, far = site_in(live.hub, "near"), site_in(live.hub, "far")
    for site in (near, far):
        site.cli.plays(rules(waits=REVIEW))
    live.hub.call("repository_register", {"path": str(far.root)}, OPERATOR)
    words = ["--home", str(live.hub.settings.home), "mcp", "--families", "judge", "--directory", str(near.root)]
    bridge = StdioServerParameters(command=CREWHALL, args=words, env=PASSED_ON | hall_of(live))

    async def use() -> Sequence[tuple[dict[str, Any], list[str]]]:
        async with Client(bridge) as one, Client(streamable_http_client(f"{live.url}/mcp/judge")) as two:
            return await asyncio.gather(review_over(one, CONTRACT), review_over(two, str(far.root / CONTRACT)))

    for answer, heard in asyncio.run(use()):
        assert (answer["success"], answer["verdict"]) == (True, "PASS")
        assert answer["duration_ms"] >= REVIEW * 1000
        assert len(heard) >= REVIEW / SILENCE and any("of at most 900 s" in message for message in heard)
