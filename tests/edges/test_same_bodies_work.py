"""Workflows, tasks, checkpoints and messages: the same body through every way in, and no one acts as someone else."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from crewhall.edges.hub import dispatch
from crewhall.families.all import registry
from crewhall.identity import OPERATOR
from tests.conftest import BOTH, Live
from tests.edges.conftest import SharedHubs, newcomer
from tests.edges.interfaces import (
    INTERFACES,
    MODERN,
    Interface,
    announce,
    by_input,
    by_mcp,
    by_rest,
    by_words,
    http,
    run_here,
)
from tests.edges.sample_arguments import furnish, needed
from tests.edges.test_same_bodies import GOOD, LASTING, Connected
from tests.families.work.claims import PERSON
from tests.outside.repos import make_repository
from tests.sizes import size

Step = tuple[str, dict[str, Any], str | None]
PLAN = {"approach": "So", "steps": ["one"]}
TASKS = [
    {"name": "a", "description": "ä", "sequence": 1, "files_likely_affected": ["src/a"], "parallel_group": "g"},
    {"name": "b", "description": "b", "sequence": 2, "depends_on": ["a"], "estimated_complexity": "low"},
    {"name": "d", "description": "d", "sequence": 1},
]
CYCLE = [TASKS[0] | {"depends_on": ["b"]}, *TASKS[1:]]
NEW = {"name": "w", "source_type": "prompt", "source_content": "Ünï", "repository_path": "$path"}
LETTER = {"sender_id": "$ada", "recipient_id": "$bob", "message_type": "query"}


def plan_of(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"summary": "s", "approach": "a", "tasks": tasks}


# One after the other, by each way for a crew and a workflow of its own: tool, arguments, the code of the refusal.
SCRIPT: list[Step] = [
    ("workflow_create", NEW, None),
    ("workflow_create", NEW | {"source_type": "fax"}, "INVALID_INPUT"),
    ("workflow_set_parallelism", {"id": "$wf", "max_parallel_tasks": 2}, None),
    ("workflow_set_parallelism", {"id": "$wf", "max_parallel_tasks": 0}, "INVALID_INPUT"),
    ("workflow_add_tasks", {"id": "$wf", "tasks": [TASKS[0]]}, "INVALID_STATE"),
    ("workflow_set_plan", {"id": "$wf", "plan": plan_of(CYCLE)}, "INVALID_INPUT"),
    ("workflow_set_plan", {"id": "$wf", "plan": plan_of([])}, "INVALID_INPUT"),
    ("workflow_set_plan", {"id": "$wf", "plan": plan_of(TASKS)}, None),
    ("workflow_set_plan", {"id": "$wf", "plan": plan_of(TASKS)}, "INVALID_STATE"),
    ("workflow_get", {"id": "$wf", "include_tasks": True, "include_task_summaries": False}, None),
    ("workflow_get", {"id": "wf_nothing"}, "NOT_FOUND"),
    ("workflow_list", {"repository_path": "$path", "status": ["ready"]}, None),
    ("workflow_list", {"status": ["asleep"]}, "INVALID_INPUT"),
    ("workflow_next_tasks", {"workflow_id": "$wf", "include_failed": False}, None),
    ("workflow_next_tasks", {"workflow_id": "wf_nothing"}, "NOT_FOUND"),
    ("task_get_available", {"agent_id": "$ada", "workflow_id": "$wf"}, None),
    ("task_get_available", {"agent_id": "ag_nobody"}, "NOT_FOUND"),
    ("task_check_dependencies", {"task_id": "$b"}, None),
    ("task_check_dependencies", {"task_id": "tk_nothing"}, "NOT_FOUND"),
    ("task_claim", {"task_id": "$b", "agent_id": "$ada"}, "TASK_BLOCKED"),
    ("task_claim", {"task_id": "$a", "agent_id": "$ada"}, None),
    ("task_claim", {"task_id": "$a", "agent_id": "$bob"}, None),
    ("workflow_set_parallelism", {"id": "$wf", "max_parallel_tasks": 1}, None),
    ("task_claim", {"task_id": "$d", "agent_id": "$bob"}, "LIMIT_EXCEEDED"),
    ("task_update_status", {"id": "$d", "status": "planning"}, "LIMIT_EXCEEDED"),
    ("task_set_plan", {"id": "$a", "plan": PLAN, "context": {"deep": [{"x": None, "y": 1.5}]}}, None),
    ("task_set_plan", {"id": "$a", "plan": {"approach": "So"}}, "INVALID_INPUT"),
    ("task_update_status", {"id": "$a", "status": "completed", "outcome": "o"}, "INVALID_TRANSITION"),
    ("task_update_status", {"id": "$a", "status": "blocked"}, "INVALID_TRANSITION"),
    ("task_update_status", {"id": "$b", "status": "in_progress"}, "TASK_BLOCKED"),
    ("task_update_status", {"id": "$a", "status": "in_progress"}, None),
    ("task_update_status", {"id": "$a", "status": "completed"}, "INVALID_INPUT"),
    ("task_update_status", {"id": "$a", "status": "paused", "claim_epoch": 7}, "STALE_CLAIM"),
    ("checkpoint_add", {"task_id": "$a", "type": "decision", "summary": "é", "detail": {"n": [1]}}, None),
    ("checkpoint_add", {"task_id": "$a", "type": "replan", "summary": ""}, "INVALID_INPUT"),
    ("checkpoint_add", {"task_id": "$a", "type": "error", "summary": "s", "claim_epoch": 9}, "STALE_CLAIM"),
    ("task_hand_over", {"task_id": "$a", "to": "$bob", "reason": "r"}, None),
    ("task_hand_over", {"task_id": "$a", "to": "$bob", "reason": "r"}, "INVALID_STATE"),
    ("task_hand_over", {"task_id": "$a", "to": "$ada", "reason": "r", "claim_epoch": 2}, None),
    ("task_release", {"task_id": "$a", "agent_id": "$bob"}, "STALE_CLAIM"),
    ("task_release", {"task_id": "$b", "agent_id": "$bob"}, "INVALID_STATE"),
    ("task_release", {"task_id": "$a", "agent_id": "$ada", "reason": "r"}, None),
    ("task_replan", {"id": "$a", "reason": "r", "new_plan": PLAN}, "INVALID_TRANSITION"),
    ("task_update_status", {"id": "$a", "status": "in_progress"}, None),
    ("task_update_status", {"id": "$a", "status": "failed", "error": "e"}, None),
    ("task_replan", {"id": "$a", "reason": "r", "new_plan": PLAN}, None),
    ("checkpoint_list", {"task_id": "$a", "type": ["replan", "recovery"]}, None),
    ("checkpoint_list", {"task_id": "$a", "since_sequence": -1}, "INVALID_INPUT"),
    ("task_get", {"id": "$a", "include_checkpoints": True, "checkpoint_limit": 2}, None),
    ("task_get", {"id": "tk_nothing"}, "NOT_FOUND"),
    ("task_list", {"workflow_id": "$wf", "status": ["blocked", "pending"]}, None),
    ("task_list", {"workflow_id": "$wf", "cursor": "here"}, "INVALID_INPUT"),
    ("workflow_progress", {"workflow_id": "$wf"}, None),
    ("workflow_progress", {"workflow_id": "wf_nothing"}, "NOT_FOUND"),
    ("task_load_context", {"task_id": "$a", "include": {"all_checkpoints": True}, "max_tokens": 3000}, None),
    ("task_load_context", {"agent_id": "$ada", "max_tokens": 499}, "INVALID_INPUT"),
    ("task_load_context", {}, "INVALID_INPUT"),
    ("workflow_get_summary", {"id": "$wf", "format": "markdown"}, None),
    ("workflow_get_summary", {"id": "$wf", "format": "html"}, "INVALID_INPUT"),
    ("workspace_create", {"workflow_id": "$wf", "branch": "b-1", "task_ids": ["$a"]}, None),
    ("workspace_create", {"workflow_id": "$wf", "branch": "..", "task_ids": ["$a"]}, "INVALID_INPUT"),
    ("workspace_list", {"workflow_id": "$wf", "status": ["active"]}, None),
    ("workspace_list", {"workflow_id": "$wf", "status": ["lost"]}, "INVALID_INPUT"),
    ("task_assign_workspace", {"task_id": "$b", "workspace_id": "$workspace"}, None),
    ("task_assign_workspace", {"task_id": "$b", "workspace_id": "ws_nothing"}, "NOT_FOUND"),
    ("workspace_forecast", {"workflow_id": "$wf"}, None),
    ("workspace_forecast", {"workflow_id": "wf_nothing"}, "NOT_FOUND"),
    ("workspace_update", {"id": "$workspace", "status": "merged"}, "INVALID_INPUT"),
    ("workspace_update", {"id": "$workspace", "status": "abandoned"}, None),
    ("file_reserve", {"agent_id": "$ada", "paths": ["src/**", "ä.py"], "repository_path": "$path"}, None),
    ("file_reserve", {"agent_id": "$bob", "paths": ["src/x.py"], "repository_path": "$path"}, None),
    ("file_reserve", {"agent_id": "$bob", "paths": ["../x"], "repository_path": "$path"}, "INVALID_INPUT"),
    ("file_reservations", {"repository_path": "$path", "path": "src"}, None),
    ("file_reservations", {"agent_id": "ag_nobody"}, "NOT_FOUND"),
    ("file_release", {"agent_id": "$ada", "repository_path": "$path"}, None),
    ("file_release", {"agent_id": "ag_nobody"}, "NOT_FOUND"),
    ("template_create", {"name": "t", "from_workflow_id": "$wf"}, None),
    ("template_create", {"name": "t"}, "INVALID_INPUT"),
    ("template_get", {"id": "$template"}, None),
    ("template_get", {"id": "tp_nothing"}, "NOT_FOUND"),
    ("template_list", {"limit": 1}, None),
    ("template_list", {"limit": 0}, "INVALID_INPUT"),
    ("template_apply", {"template_id": "$template", "workflow_name": "n", "repository_path": "$path"}, None),
    ("template_apply", {"template_id": "$template", "workflow_name": "n", "variables": {"x": "y"}}, "INVALID_INPUT"),
    ("workflow_add_tasks", {"id": "$wf", "tasks": [TASKS[1] | {"name": "c"}]}, None),
    ("workflow_remove_task", {"id": "$wf", "task_id": "$a"}, "INVALID_STATE"),
    ("workflow_remove_task", {"id": "$wf", "task_id": "$b"}, None),
    ("workflow_update_status", {"id": "$wf", "status": "completed"}, "INVALID_STATE"),
    ("workflow_update_status", {"id": "$wf", "status": "planning"}, "INVALID_TRANSITION"),
    ("workflow_update_status", {"id": "$wf", "status": "paused", "reason": "r"}, None),
    ("workflow_archive", {"id": "$wf"}, "INVALID_STATE"),
    ("workflow_archive", {"id": "$wf", "restore": True}, None),
    ("message_send", LETTER | {"body": {"ü": [1]}, "priority": "urgent", "workflow_id": "$wf"}, None),
    ("message_send", LETTER | {"body": "x", "reply_to_id": "ms_nothing"}, "NOT_FOUND"),
    ("message_send", LETTER | {"body": 7}, "INVALID_INPUT"),
    ("message_broadcast", {"sender_id": "$ada", "message_type": "notification", "body": "x"}, None),
    ("message_broadcast", {"sender_id": "$ada", "message_type": "query", "body": "x"}, "INVALID_INPUT"),
    ("message_list", {"agent_id": "$bob", "status": "all", "since": 1.5}, None),
    ("message_list", {"agent_id": "$bob", "limit": 501}, "INVALID_INPUT"),
    ("message_count_unread", {"agent_id": "$bob", "priority": ["normal"]}, None),
    ("message_count_unread", {"agent_id": "$bob", "priority": ["any"]}, "INVALID_INPUT"),
    ("message_get", {"id": "$ms"}, None),
    ("message_get", {"id": "ms_nothing"}, "NOT_FOUND"),
    ("message_mark_read", {"message_ids": ["$ms"]}, None),
    ("message_mark_read", {"message_ids": ["$ms", "ms_nothing"]}, "NOT_FOUND"),
    ("message_archive", {"message_ids": ["$ms"]}, None),
    ("message_archive", {"message_ids": "$ms"}, "INVALID_INPUT"),
    ("hall_pause", {"reason": "ü"}, None),
    ("hall_pause", {"reason": ""}, "INVALID_INPUT"),
    ("hall_resume", {}, None),
    ("hall_resume", {"reason": "r"}, "INVALID_INPUT"),
    ("text_read", {"id": "$wf", "field": "source_content", "offset": 1}, None),
    ("text_read", {"id": "$wf", "field": "name"}, "INVALID_INPUT"),
]
# The hall's things, as `needed` knows them, by the names that the steps give them.
KNOWN = {"wf": "$wf", "tk": "$a", "ag": "$ada", "ms": "$ms", "ws": "$workspace", "tp": "$template", "path": "$path"}
OF_WORK = [tool for tool in registry().tools if tool.family == "work"]
ELSEWHERE = {tool for tool, _ in GOOD} | {tool.name for tool in OF_WORK if tool.command[0] == "agent"}
# A tool that only reads needs no step above: it is called with what it requires, and with one argument too many.
READING = [
    tool for tool in OF_WORK if not tool.changes and tool.name not in ELSEWHERE | {name for name, _, _ in SCRIPT}
]
# What these return is of the whole hall, and differs with what other scripts left there.
HALL_WIDE = {tool.name for tool in READING if not needed(tool, KNOWN)} | {"hall_pause", "hall_resume"}
SCRIPT += [
    step
    for tool in READING
    for step in ((tool.name, needed(tool, KNOWN), None), (tool.name, {"zzz": 1}, "INVALID_INPUT"))
]


ALL_WAYS = (*INTERFACES, *LASTING)


@pytest.fixture(scope="module")
def interfaces(shared_hubs: SharedHubs) -> Iterator[dict[str, Interface]]:
    """All nine; the command line in the test's own process, which is quicker."""
    connected = Connected()
    yield INTERFACES | {"cli": by_input} | {kind: connected.interface(kind) for kind in LASTING}
    connected.close()


def directly(live: Live, tool: str, arguments: dict[str, Any], token: str) -> dict[str, Any]:
    """The hub itself, by no edge."""
    return dispatch.call(live.hub, tool, arguments, PERSON, edge="test").body


class Telling:
    """The script by one way, for a crew of its own; what it made is known by name to the steps that follow."""

    def __init__(self, live: Live, name: str, interface: Interface, turn: int = 0) -> None:
        self.live, self.interface, self.turn = live, interface, turn
        self.codes: set[str] = set()
        self.tools_by_way: set[str] = set()
        crew = {
            who: live.hub.call("agent_register", {"name": who, "runtime": "codex"}, OPERATOR)["id"]
            for who in ("ada", "bob")
        }
        self.known = crew | {"path": make_repository(live.hub.settings.home / f"{name}-repository").root}
        self.bodies: list[tuple[str, dict[str, Any]]] = []

    def run(self) -> list[Any]:
        for number, (tool, arguments, code) in enumerate(SCRIPT):
            interface: Interface = directly
            if self._takes_the_way(number, code):
                interface = self.interface
                self.tools_by_way.add(tool)
            body = interface(self.live, tool, self._filled(arguments), self.live.token)
            assert body.get("code") == code, (tool, arguments, body)
            self._learn(tool, body)
            if tool == "template_list" and code is None:  # it counts those of the tellings before, too
                body = {**body, "total": 1, "next_offset": None}
            if tool in HALL_WIDE and code is None:
                body = dict.fromkeys(body)
            self.bodies.append((tool, body))
        assert self.tools_by_way == {tool for tool, _, _ in SCRIPT}, "every tool was called by this way"
        for who in ("ada", "bob"):  # a broadcast of the next one is not for them
            self.live.hub.call("agent_unregister", {"id": self.known[who]}, OPERATOR)
        return self._alike()

    def _takes_the_way(self, number: int, code: str | None) -> bool:
        """Half of the calls do on one database, the other half on the other; on both the first refused with a code."""
        turn = self.turn + ("://" in self.live.hub.settings.database)
        if (number + turn) % size(2, full=1) and (code is None or code in self.codes):
            return False
        self.codes |= {code} if code else set()
        return True

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._filled(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        return self.known[value[1:]] if isinstance(value, str) and value.startswith("$") else value

    def _learn(self, tool: str, body: dict[str, Any]) -> None:
        if "code" in body:
            return
        if tool == "workflow_create":
            self.known["wf"] = body["id"]
        elif tool in ("workspace_create", "template_create"):
            self.known[tool.removesuffix("_create")] = body["id"]
        elif tool == "message_send":
            self.known["ms"] = body["id"]
        elif tool == "workflow_get":
            self.known |= {task["name"]: task["id"] for task in body["tasks"]}

    def _alike(self) -> list[Any]:
        """The bodies with each id as the number of its first appearance, and without what the clock writes."""
        text = json.dumps([(tool, timeless(body)) for tool, body in self.bodies]).replace(self.known["path"], "/path")
        numbers: dict[str, str] = {}
        text = re.sub(
            r"\b([a-z]{2})_[0-9a-z]{12}\b",
            lambda found: numbers.setdefault(found[0], f"{found[1]}#{len(numbers)}"),
            text,
        )
        alike: list[Any] = json.loads(text)
        return alike


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: timeless(item)
            for key, item in value.items()
            if not key.endswith("_at") and key != "token_estimate"  # ids differ, and so do their tokens
        }
    return [timeless(item) for item in value] if isinstance(value, list) else value


def tell_by_rest(live: Live) -> list[Any]:
    """What every other way is held against."""
    return Telling(live, "rest", by_rest, ALL_WAYS.index("rest")).run()


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("name", [name for name in ALL_WAYS if name != "rest"])
def test_good_and_bad_calls_give_the_same_bodies_by_every_way(
    shared_hubs: SharedHubs, interfaces: dict[str, Interface], kind: str, name: str
) -> None:
    live, expected = shared_hubs.furnished(kind, tell_by_rest)
    bodies = Telling(live, name, interfaces[name], ALL_WAYS.index(name)).run()
    for ours, theirs in zip(expected, bodies, strict=True):
        assert ours == theirs


def test_the_script_has_a_good_and_a_bad_call_of_every_tool_of_the_work() -> None:
    wanted = {tool.name for tool in OF_WORK} - ELSEWHERE
    for what, steps in (
        ("that succeeds", {tool for tool, _, code in SCRIPT if code is None}),
        ("that is refused", {tool for tool, _, code in SCRIPT if code is not None}),
    ):
        for name in sorted(wanted - steps):
            raise AssertionError(f"add a call of {name} {what} to SCRIPT in tests/edges/test_same_bodies_work.py")
        assert steps == wanted


@pytest.fixture(params=BOTH)
def hall(request: pytest.FixtureRequest, shared_hubs: SharedHubs) -> Live:
    """One hub on each database for tests of what is refused."""
    return shared_hubs.find("hall", request.param)


CONFLICTS: list[tuple[str, str, dict[str, Any]]] = [
    ("TASK_BLOCKED", "task claim", {"task_id": "$b", "agent_id": "$ada"}),
    ("INVALID_TRANSITION", "task update-status", {"id": "$a", "status": "completed", "outcome": "o"}),
    ("STALE_CLAIM", "checkpoint add", {"task_id": "$a", "type": "error", "summary": "s", "claim_epoch": 9}),
    ("INVALID_STATE", "workflow update-status", {"id": "$wf", "status": "completed"}),
]


def test_what_does_not_fit_the_state_is_409_and_exit_code_5(hall: Live) -> None:
    telling = Telling(hall, "rest", by_rest)
    known = telling.known
    for tool, arguments, code in SCRIPT[:10]:
        if code is None:
            telling._learn(tool, by_rest(hall, tool, telling._filled(arguments), hall.token))
    hall.hub.call("workflow_update_status", {"id": known["wf"], "status": "in_progress"}, OPERATOR)
    for code, command, template in CONFLICTS:
        arguments = telling._filled(template)
        noun, verb = command.split()
        headers = {"Authorization": f"Bearer {hall.token}"}
        answer = http.post(f"{hall.url}/api/v1/{noun}/{verb}", json=arguments, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (409, code)
        words = ["--home", str(announce(hall)), "--json", noun, verb, f"--input={json.dumps(arguments)}"]
        exit_code, out = run_here(words, CREWHALL_TOKEN=hall.token)
        assert (exit_code, json.loads(out)) == (5, answer.json())


# No one acts as someone else

BY_TOKEN = {"mcp": by_mcp(MODERN), "rest": by_rest, "cli": by_words}


def test_no_tool_lets_an_agent_act_as_another(hall: Live) -> None:
    ids = furnish(hall.hub)
    bob = newcomer(hall)
    before = hall.hub.call("event_list", {}, OPERATOR)["newest"]
    acting = [tool for tool in registry().tools if tool.acting]
    assert len(acting) >= 9
    for tool in acting:
        for name, interface in BY_TOKEN.items():
            body = interface(hall, tool.name, needed(tool, ids), bob.token)
            assert (body["code"], body["tool_name"]) == ("FORBIDDEN", tool.name), (name, body)
            assert ids["ag"] in body["message"] and bob.id in body["message"]
    assert hall.hub.call("event_list", {}, OPERATOR)["newest"] == before


def test_an_agent_writes_to_no_task_that_another_holds_and_reads_no_letter_for_it(hall: Live) -> None:
    ids = furnish(hall.hub)
    bob = newcomer(hall)
    before = hall.hub.call("event_list", {}, OPERATOR)["newest"]
    writes: list[tuple[str, dict[str, Any], str]] = [
        ("task_update_status", {"id": ids["tk"], "status": "completed", "outcome": "o"}, "STALE_CLAIM"),
        ("task_set_plan", {"id": ids["tk"], "plan": PLAN}, "STALE_CLAIM"),
        ("task_replan", {"id": ids["tk"], "reason": "r", "new_plan": PLAN}, "STALE_CLAIM"),
        ("checkpoint_add", {"task_id": ids["tk"], "type": "error", "summary": "s"}, "STALE_CLAIM"),
        ("task_release", {"task_id": ids["tk"]}, "STALE_CLAIM"),
        ("task_assign_workspace", {"task_id": ids["tk"], "workspace_id": "ws_x"}, "STALE_CLAIM"),
        ("message_mark_read", {"message_ids": [ids["ms"]]}, "FORBIDDEN"),
        ("message_archive", {"message_ids": [ids["ms"]]}, "FORBIDDEN"),
    ]
    for name, interface in BY_TOKEN.items():
        for tool, arguments, code in writes:
            assert interface(hall, tool, arguments, bob.token)["code"] == code, (name, tool)
        assert interface(hall, "message_get", {"id": ids["ms"]}, bob.token)["status"] == "unread", (
            "its read state is ada's"
        )
        held = interface(hall, "task_claim", {"task_id": ids["tk"]}, bob.token)
        assert (held["success"], held["already_claimed_by"]) == (False, ids["ag"])
    assert hall.hub.call("event_list", {}, OPERATOR)["newest"] == before
