"""Every default and every enum that seed 003 prints: left out is as good as given, and no other word is taken."""

import copy
import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from crewhall.app import Hub
from crewhall.errors import Failure
from crewhall.identity import OPERATOR
from tests.conftest import Live
from tests.edges.forked_bridge import ForkedBridge
from tests.edges.interfaces import by_mcp
from tests.edges.stdio import hall_of

Body = dict[str, Any]
MESSAGE_TYPES = ("task_assignment", "status_update", "query", "response", "notification")
PRIORITIES = ("low", "normal", "high", "urgent")
WORKFLOW_STATUSES = ("planning", "ready", "in_progress", "paused", "completed", "failed", "abandoned")
TASK_STATUSES = ("pending", "blocked", "planning", "in_progress", "paused", "completed", "failed", "skipped")
CHECKPOINT_TYPES = ("plan", "progress", "decision", "error", "recovery", "complete")
RUNTIMES = ("claude_code", "codex", "opencode", "custom")
ROLES = ("coordinator", "worker")

TASK = {"name": "one", "description": "", "sequence": 1}
NEW_WORKFLOW = {"name": "w", "source_type": "prompt", "source_content": "Do it."}
NEW_PLAN = {"id": "$planning", "plan": {"summary": "", "approach": "", "tasks": [TASK]}}
NEW_AGENT = {"name": "x", "runtime": "codex"}
LETTER = {"sender_id": "$lead", "recipient_id": "$ada", "message_type": "query", "body": "?"}
NEWS = {"sender_id": "$lead", "message_type": "notification", "body": "!", "recipient_filter": {}}


def a_busy_hall(call: Callable[..., Body]) -> dict[str, str]:
    """Ids of a hall where every default makes a difference: more than 20 of what is listed, something failed, …"""
    lead, ada = (call("agent_register", name=name, runtime="codex")["id"] for name in ("lead", "ada"))
    made = [call("workflow_create", **NEW_WORKFLOW)["id"] for _ in range(25)]
    tasks = [TASK, TASK | {"name": "two"}]
    call("workflow_set_plan", id=made[0], plan={"summary": "", "approach": "", "tasks": tasks})
    one, two = (task["id"] for task in call("workflow_next_tasks", workflow_id=made[0])["tasks"])
    for status in ("in_progress", "failed"):
        call("task_update_status", id=one, status=status, error="No")
    for n in range(30):
        call("checkpoint_add", task_id=one, type="progress", summary=f"{n}")
    letters = [
        call("message_send", sender_id=lead, recipient_id=ada, message_type="query", body="?") for _ in range(25)
    ]
    call("message_get", id=letters[0]["id"])
    ids = {"lead": lead, "ada": ada, "planning": made[1], "workflow": made[0], "failed": one, "pending": two}
    return ids | {"message": letters[1]["id"]}


def filled(value: Any, ids: dict[str, str]) -> Any:
    """The value with `$word` replaced by the id it stands for."""
    if isinstance(value, dict):
        return {name: filled(item, ids) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, ids) for item in value]
    return ids[value[1:]] if isinstance(value, str) and value.startswith("$") else value


@pytest.fixture
def ids(operator: Callable[..., Body]) -> dict[str, str]:
    return a_busy_hall(operator)


# tool, its other arguments, the argument, its default, and another value, which must make a difference. What a tool
# changes is looked at by a second one, where its own answer does not show it; $id is the id in that answer.
DEFAULTS: list[tuple[str, Body, str, Any, Any, tuple[str, Body] | None]] = [
    ("workflow_create", NEW_WORKFLOW, "max_parallel_tasks", 1, 2, None),
    ("workflow_get", {"id": "$workflow"}, "include_tasks", False, True, None),
    ("workflow_get", {"id": "$workflow", "include_tasks": True}, "include_task_summaries", True, False, None),
    ("workflow_list", {}, "limit", 20, 19, None),
    ("task_get", {"id": "$failed"}, "include_checkpoints", False, True, None),
    ("task_get", {"id": "$failed", "include_checkpoints": True}, "checkpoint_limit", 30, 29, None),  # all of them
    ("workflow_next_tasks", {"workflow_id": "$workflow"}, "include_failed", True, False, None),
    ("task_load_context", {"task_id": "$failed"}, "max_tokens", 8000, 600, None),
    ("workflow_get_summary", {"id": "$workflow"}, "format", "json", "markdown", None),
    ("agent_register", NEW_AGENT, "role", "worker", "coordinator", ("agent_get", {"id": "$id"})),
    ("message_send", LETTER, "priority", "normal", "high", ("message_get", {"id": "$id", "mark_read": False})),
    ("message_list", {"agent_id": "$ada"}, "status", "unread", "read", None),
    ("message_list", {"agent_id": "$ada"}, "limit", 20, 19, None),
    ("message_get", {"id": "$message"}, "mark_read", True, False, ("message_list", {"agent_id": "$ada"})),
]


def test_what_is_left_out_is_the_seeds_default(operator: Callable[..., Body], ids: dict[str, str]) -> None:
    for tool, given, argument, default, other, look in DEFAULTS:

        def answer(**more: Any) -> str:
            """What comes of the call, without the ids that are made anew; a message is unread before each."""
            fresh = ids | {"message": operator("message_send", **filled(LETTER, ids))["id"]}
            body = operator(tool, **filled(given, fresh), **more)  # noqa: B023 - called in this turn of the loop
            seen = operator(look[0], **filled(look[1], fresh | body)) if look else None  # noqa: B023
            if tool == "agent_register":  # noqa: B023 - the next one is to have the same name
                operator("agent_unregister", id=body["id"])
            return without_counts(re.sub(r"\b(wf|ag|ms|th)_[0-9a-z]{12}", r"\1", f"{body} {seen}"))

        absent, same, different = answer(), answer(**{argument: default}), answer(**{argument: other})
        assert absent == same != different, (tool, argument)


def without_counts(text: str) -> str:
    """Without how many there are in all, which grows from call to call."""
    return re.sub(r"'(total|unread_count|next_cursor|next_offset)': [^,}]+", r"'\1'", text)


def test_the_repository_of_a_workflow_is_the_directory_of_its_client(live: Live) -> None:
    """`repository_path` defaults to cwd: that of the bridge, which is the client's; over HTTP there is none."""
    client = ForkedBridge(live.hub.settings.home, **hall_of(live))
    try:
        made = client.call("workflow_create", **NEW_WORKFLOW)["id"]
        assert client.call("workflow_get", id=made)["repository_path"] == os.getcwd()
    finally:
        client.close()
    made = by_mcp("2026-07-28")(live, "workflow_create", NEW_WORKFLOW, live.token)["id"]
    assert live.hub.call("workflow_get", {"id": made}, OPERATOR)["repository_path"] is None


# tool, its arguments with the place of the word, the words. A place in a list or an object is a path.
ENUMS: list[tuple[str, Body, str, tuple[str, ...]]] = [
    ("workflow_create", NEW_WORKFLOW, "source_type", ("prompt", "github_issue", "linear", "jira", "custom")),
    ("workflow_list", {"status": [""]}, "status.0", WORKFLOW_STATUSES),
    ("workflow_set_plan", NEW_PLAN, "plan.tasks.0.estimated_complexity", ("low", "medium", "high")),
    ("workflow_update_status", {"id": "$workflow"}, "status", WORKFLOW_STATUSES),
    ("task_update_status", {"id": "$pending", "outcome": "o", "error": "e"}, "status", TASK_STATUSES),
    ("checkpoint_add", {"task_id": "$failed", "summary": "s"}, "type", CHECKPOINT_TYPES),
    ("checkpoint_list", {"task_id": "$failed", "type": [""]}, "type.0", CHECKPOINT_TYPES),
    ("workflow_get_summary", {"id": "$workflow"}, "format", ("json", "markdown")),
    ("workspace_list", {"workflow_id": "$workflow", "status": [""]}, "status.0", ("active", "merged", "abandoned")),
    ("agent_register", NEW_AGENT, "runtime", RUNTIMES),
    ("agent_register", NEW_AGENT, "role", ROLES),
    ("agent_heartbeat", {"agent_id": "$ada"}, "status", ("online", "busy")),
    ("agent_update", {"id": "$ada"}, "status", ("online", "offline", "busy")),
    ("agent_list", {"status": [""]}, "status.0", ("online", "offline", "busy")),
    ("agent_list", {}, "role", ROLES),
    ("message_send", LETTER, "message_type", MESSAGE_TYPES),
    ("message_send", LETTER, "priority", PRIORITIES),
    ("message_broadcast", NEWS, "recipient_filter.role", ROLES),
    ("message_broadcast", NEWS, "recipient_filter.status", ("online", "busy")),
    ("message_broadcast", NEWS, "message_type", ("notification", "status_update")),
    ("message_broadcast", NEWS, "priority", PRIORITIES),
    ("message_list", {"agent_id": "$ada"}, "status", ("unread", "read", "all")),
    ("message_list", {"agent_id": "$ada", "message_type": [""]}, "message_type.0", MESSAGE_TYPES),
    ("message_list", {"agent_id": "$ada", "priority": [""]}, "priority.0", PRIORITIES),
    ("message_count_unread", {"agent_id": "$ada", "priority": [""]}, "priority.0", PRIORITIES),
]
REFUSED_STEPS = {"INVALID_TRANSITION", "INVALID_STATE"}  # a word that is known, and does not follow the state


def placed(arguments: Body, place: str, word: Any) -> Body:
    """The arguments with a word put in its place."""
    made = copy.deepcopy(arguments)
    node: Any = made
    *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    for part in path:
        node = node[part]
    node[last] = word
    return made


def code_of(hub: Hub, tool: str, arguments: Body) -> str | None:
    try:
        hub.call(tool, arguments, OPERATOR)
    except Failure as failure:
        return failure.code
    return None


def test_the_seeds_words_are_taken_and_no_other(hub: Hub, ids: dict[str, str]) -> None:
    for tool, given, place, words in ENUMS:
        for word in words:
            ids["planning"] = hub.call("workflow_create", NEW_WORKFLOW, OPERATOR)["id"]  # a plan is set once
            code = code_of(hub, tool, placed(filled(given, ids), place, word))
            assert code is None or (tool.endswith("_update_status") and code in REFUSED_STEPS), (tool, word, code)
        before = hub.call("event_list", {}, OPERATOR)["newest"]
        others: list[Any] = ["", "nonsense", words[0].upper(), f"{words[0]} ", 7, [words[0]]]
        for other in others:
            assert code_of(hub, tool, placed(filled(given, ids), place, other)) == "INVALID_INPUT", (tool, place, other)
        assert hub.call("event_list", {}, OPERATOR)["newest"] == before


def test_every_status_that_is_set_by_hand_can_be_reached(operator: Callable[..., Body], ids: dict[str, str]) -> None:
    for status in ("in_progress", "paused", "in_progress", "failed", "in_progress"):
        if operator("workflow_get", id=ids["workflow"])["status"] != status:
            operator("workflow_update_status", id=ids["workflow"], status=status)
    for status in ("planning", "paused", "in_progress", "failed", "skipped"):
        operator("task_update_status", id=ids["pending"], status=status, error="e")
        assert operator("task_get", id=ids["pending"])["status"] == status
    for status in ("in_progress", "completed"):
        operator("task_update_status", id=ids["failed"], status=status, outcome="o")
        assert operator("task_get", id=ids["failed"])["status"] == status
    operator("workflow_update_status", id=ids["workflow"], status="completed")
    operator("workflow_update_status", id=ids["planning"], status="abandoned", reason="Not wanted")
    assert operator("workflow_get", id=ids["planning"])["status"] == "abandoned"
