"""One client of Crewhall, by bridge and by URL, and of ollama-mcp, at the same time."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from crewhall.client import Client, ToolFailed
from crewhall.errors import InvalidInput, NotFound
from tests.client.ollama import ollama
from tests.conftest import Live
from tests.edges.interfaces import CREWHALL
from tests.edges.stdio import hall_of


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_hall_and_ollama_mcp_are_used_at_once(live: Live) -> None:
    bridge = {
        "command": CREWHALL,
        "args": ["--home", str(live.hub.settings.home), "mcp", "--families", "work"],
        "env": hall_of(live),
    }
    with ollama() as models, Client({"hall": bridge, "ollama": models.entry, "url": f"{live.url}/mcp"}) as client:
        models.plays({"qwen2.5-coder:14b": [{"files": {}}, "no JSON at all"]})
        listed = {(tool.server, tool.name) for tool in client.list_tools()}
        assert {("hall", "agent_register"), ("url", "agent_register"), ("ollama", "ollama_generate")} <= listed
        with pytest.raises(InvalidInput, match="'agent_register' is a tool of hall and of url"):
            client.call_tool("agent_register", {"name": "ada", "runtime": "custom"})
        with ThreadPoolExecutor(2) as threads:
            made = threads.submit(client.call_tool, "hall.agent_register", {"name": "ada", "runtime": "custom"})
            known = threads.submit(client.call_tool, "ollama_list")
            agent, names = made.result(20)["id"], [one["name"] for one in known.result(20)["models"]]
        assert names == ["qwen2.5-coder:14b"]
        assert [one["id"] for one in client.call_tool("url.agent_list")["agents"]] == [agent]
        with pytest.raises(NotFound, match="no workflow 'wf_none'") as missing:
            client.call_tool("workflow_get", {"id": "wf_none"}, server="hall")
        assert missing.value.hint
        asked = {"model": "qwen2.5-coder:14b", "prompt": "Go."}
        assert client.call_tool("ollama_generate", asked) == {"files": {}}
        assert client.call_tool("ollama_generate", asked | {"format": "markdown"}) == "no JSON at all"
        with pytest.raises(ToolFailed, match="model 'other' not found"):
            client.call_tool("ollama_generate", asked | {"model": "other"})
        assert all(status.connected for status in client.servers().values())
