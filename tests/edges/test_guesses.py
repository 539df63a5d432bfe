"""On PostgreSQL a call's first trip looks up the token that it came with: what a hub remembers of one is a guess."""

from collections.abc import Callable

import httpx2
import pytest

from crewhall.app import Hub
from crewhall.identity import OPERATOR, Credentials
from tests.conftest import Agent, Live
from tests.edges.raw_http import ERAS, assert_refused, http, mcp_headers, mcp_params

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)


@pytest.fixture
def other(make_hub: Callable[..., Hub], live: Live) -> Hub:
    """Another hub of the same hall, which knows nothing of what the first one remembers."""
    return make_hub()


@pytest.fixture
def ada(live: Live) -> Agent:
    """An agent that the first hub has seen."""
    ada = Agent(live.hub)
    assert call(live, ada, "agent/get", id=ada.id).status_code == 200
    assert live.hub.guess(Credentials(token=ada.token)) is not None
    return ada


def bearer(agent: Agent) -> dict[str, str]:
    return {"Authorization": f"Bearer {agent.token}"}


def call(live: Live, agent: Agent, tool: str, **arguments: object) -> httpx2.Response:
    return http.post(f"{live.url}/api/v1/{tool}", json=arguments, headers=bearer(agent))


def test_a_token_that_another_hub_revoked_opens_nothing_and_nothing_is_kept(live: Live, other: Hub, ada: Agent) -> None:
    other.call("agent_token_revoke", {"agent_id": ada.id}, OPERATOR)
    letter = {"recipient_id": "operator", "message_type": "query", "body": "still here"}
    tries = {
        "a read": call(live, ada, "agent/get", id=ada.id),
        "a write": call(live, ada, "message/send", **letter),
        "bad arguments": call(live, ada, "message/send", recipient_id="operator"),
        "what it may not call": call(live, ada, "workflow/set-parallelism", workflow_id="wf_1", max_parallel_tasks=2),
        "a long call": call(live, ada, "review/request"),
    }
    for name, answer in tries.items():
        body = assert_refused(live, answer, 401, "FORBIDDEN")
        assert "wrong, expired or revoked" in body["message"], name
        assert answer.headers["www-authenticate"].startswith("Bearer"), name
    assert other.call("message_list", {"agent_id": "operator"}, OPERATOR)["total"] == 0


@pytest.mark.parametrize("version", ERAS)
def test_the_same_over_mcp(live: Live, other: Hub, ada: Agent, version: str) -> None:
    headers = mcp_headers(version) | bearer(ada)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": mcp_params(version, name="agent_list")}
    assert http.post(f"{live.url}/mcp", json=message, headers=headers).status_code == 200
    other.call("agent_token_revoke", {"agent_id": ada.id}, OPERATOR)
    answer = http.post(f"{live.url}/mcp", json=message, headers=headers)
    assert_refused(live, answer, 401, "FORBIDDEN")
    assert "www-authenticate" in answer.headers


def set_role(hub: Hub, role: str) -> None:
    hub.store.texts["role_set"] = hub.store.dialect.query("UPDATE agent SET role = :role WHERE true")
    with hub.own_work() as tx:
        tx.run("role_set", role=role)


def test_an_agent_whose_role_changed_calls_as_what_it_is_now(live: Live, ada: Agent) -> None:
    assert call(live, ada, "judge/health").status_code == 403
    set_role(live.hub, "coordinator")
    assert call(live, ada, "judge/health").status_code == 200
    set_role(live.hub, "worker")
    assert call(live, ada, "judge/health").status_code == 403
