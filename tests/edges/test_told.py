"""Pause and mail are in the next request that the model of a real client is sent, and in that one alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.edges.led import LedClient, Site, site_on
from tests.families.work.workflows import plan_workflow, task

STARTS = {"claude": Site.claude, "codex": Site.codex}


@pytest.fixture
def site(database: str, tmp_path: Path) -> Iterator[Site]:
    with site_on(database, tmp_path) as site:
        yield site


@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", STARTS)
def test_a_pause_and_a_message_are_in_what_the_model_is_sent_next(site: Site, name: str) -> None:
    """Both happen while the model thinks; whatever it calls then, it is told, although the client shows it no more
    than the structured body."""
    workflow, tasks = plan_workflow(site.ask, task("colours"), name="Dark mode")
    with STARTS[name](site) as client:
        me = client.call("agent_register", name="ada", runtime="custom")["id"]
        assert client.call("task_claim", task_id=tasks["colours"])["success"]
        site.ask("workflow_update_status", id=workflow, status="paused", reason="the colours change")
        mail = {"message_type": "query", "subject": "Which blue?", "body": "The darker one.", "priority": "high"}
        sent = site.ask("message_send", sender_id="operator", recipient_id=me, **mail)["id"]
        pause, message = told_next(client)
        assert "Dark mode" in pause and "paused" in pause and "the colours change" in pause
        assert "Which blue?" in message and "operator" in message and "high" in message
        assert f'message_get(id="{sent}")' in message
        assert client.call("agent_list").get("notices") is None, "once"
        refused = client.call("task_update_status", id=tasks["colours"], status="in_progress")
        assert refused["code"] == "INVALID_STATE" and refused["paused_by"] == "operator"
        assert "code" not in client.call("checkpoint_add", task_id=tasks["colours"], type="progress", summary="half")
        site.ask("workflow_update_status", id=workflow, status="in_progress")
        assert "code" not in client.call("task_update_status", id=tasks["colours"], status="in_progress")


def told_next(client: LedClient) -> list[str]:
    """The notices in the next request that the client sends its model: in the last tool result of it."""
    before = len(client.model.requests)
    client.call("agent_list")
    (request,) = (one for one in client.model.requests[before:] if one.get("tools"))
    _, (*_, given) = client.model.told(request)
    notices: list[str] = given["notices"]
    return notices
