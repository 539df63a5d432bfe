"""A client written from seed 003 alone runs a whole workflow, by every way in, on both databases."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Clock, Live
from tests.edges.stdio import LEGACY, Stdio, hall_of
from tests.edges.story import Body, Story
from tests.edges.ways import MODERN, Way, by_cli, by_mcp, by_rest, by_words, exit_code, in_words, run_here

REQUESTS = {"mcp": by_mcp(MODERN), "mcp-2025": by_mcp(LEGACY), "rest": by_rest, "command line": by_words}


@pytest.fixture
def held(serve: Callable[..., Live], clock: Clock) -> Live:
    """A live hub whose clock the test holds."""
    return serve(clock=clock)


@pytest.fixture
def bridge(held: Live) -> Iterator[Stdio]:
    client = Stdio(held.hub.settings.home, **hall_of(held))
    yield client
    client.close()


def asking(way: Way, live: Live, tool: str, **arguments: Any) -> Body:
    return way(live, tool, arguments, live.token)


@pytest.mark.parametrize("way", REQUESTS.values(), ids=REQUESTS)
def test_a_seed_client_runs_a_workflow_by(way: Way, held: Live, clock: Clock, tmp_path: Path) -> None:
    Story(partial(asking, way, held), tmp_path / "shop", clock.advance).tell()


def test_a_seed_client_runs_a_workflow_over_the_bridge(bridge: Stdio, clock: Clock, tmp_path: Path) -> None:
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

    Story(ask, tmp_path / "shop").tell()
