"""
A client written from seed 003 alone runs a whole workflow, by every way in, on both databases.

Over the bridge it makes every call. By the other ways it makes those that differ in their tool or in the shape of
their arguments, and the hub itself is asked for the rest (`make soak`: all by each way).
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.edges.hub import dispatch
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from tests.conftest import Clock, Live, settings_for
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import MODERN, Interface, by_cli, by_mcp, by_rest, by_words, exit_code, in_words, run_here
from tests.edges.stdio import LEGACY, hall_of
from tests.edges.story import Body, Story, once_per_shape

REQUESTS = {"mcp": by_mcp(MODERN), "mcp-2025": by_mcp(LEGACY), "rest": by_rest, "command line": by_words}


@pytest.fixture
def held(serve: Callable[..., Live], clock: Clock) -> Live:
    """A live hub whose clock the test holds."""
    return serve(clock=clock)


@pytest.fixture
def bridge(held: Live) -> Iterator[ForkedBridge]:
    client = ForkedBridge(held.hub.settings.home, **hall_of(held))
    yield client
    client.close()


def asking(way: Interface, live: Live, tool: str, **arguments: Any) -> Body:
    return way(live, tool, arguments, live.token)


def asking_itself(hub: Hub, tool: str, **arguments: Any) -> Body:
    return dispatch.call(hub, tool, arguments, OPERATOR, edge="test").body


@pytest.mark.parametrize("way", REQUESTS.values(), ids=REQUESTS)
def test_a_seed_client_runs_a_workflow_by(way: Interface, held: Live, clock: Clock, tmp_path: Path) -> None:
    ask = once_per_shape(partial(asking, way, held), partial(asking_itself, held.hub))
    Story(ask, tmp_path / "shop", clock.advance).tell()


def test_a_seed_client_runs_a_workflow_over_the_bridge(bridge: ForkedBridge, clock: Clock, tmp_path: Path) -> None:
    """Without a token: the agents are named by the arguments, as the seed has it."""
    Story(bridge.call, tmp_path / "shop", clock.advance).tell()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_seed_client_begins_a_workflow_with_commands_as_processes(held: Live, clock: Clock, tmp_path: Path) -> None:
    story = Story(partial(asking, by_cli, held), tmp_path / "shop", clock.advance)
    story.crew()
    story.plan()


def test_a_seed_client_runs_a_workflow_with_commands_and_no_hub(database: str, tmp_path: Path) -> None:
    def ask(tool: str, **arguments: Any) -> Body:
        noun, _, verb = tool.partition("_")
        words = ["--home", str(tmp_path / "home"), "--json", noun, verb.replace("_", "-"), *in_words(arguments)]
        variable = "CREWHALL_DATABASE_URL" if "://" in database else "MCP_DATABASE_PATH"
        code, out = run_here(words, **{variable: database})
        body: Body = json.loads(out)
        assert code == exit_code(tool, body)
        return body

    with closing(Hub(settings_for(database, tmp_path / "home"), registry())) as hub:
        Story(once_per_shape(ask, partial(asking_itself, hub)), tmp_path / "shop").tell()
