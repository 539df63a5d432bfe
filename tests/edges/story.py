"""
The story of seed 003, told by a client that knows the seed's parameters and result fields and nothing else.

                 ┌─▶ api ─┐               ┌─▶ unit ─┐
    design ──────┤ build  ├──▶ join ──────┤  check  ├──▶ release        (release names no dependency: it waits for
                 └─▶ ui ──┘               └─▶ e2e ──┘                    all of lower sequences)
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.edges.seed import RESULTS, TASK_STATUSES, misfit
from tests.outside.repos import git, make_repository
from tests.sizes import size

Body = dict[str, Any]
Call = Callable[..., Body]
MINUTE = 60_000
STEP_SECONDS = 4  # the whole story stays within the lease of an agent that beats


def planned_task(name: str, sequence: int, *depends_on: str, **more: Any) -> Body:
    wanted = {"depends_on": list(depends_on)} if depends_on else {}
    return {"name": name, "description": f"Do {name}.", "sequence": sequence, **wanted, **more}


PLAN: Body = {
    "summary": "A shop",
    "approach": "Build it, then test it",
    "tasks": [
        planned_task("design", 1, estimated_complexity="low"),
        planned_task("api", 2, "design", parallel_group="build", files_likely_affected=["src/api.py"]),
        planned_task("ui", 2, "design", parallel_group="build", estimated_complexity="high"),
        planned_task("join", 3, "api", "ui", estimated_complexity="medium"),
        planned_task("unit", 4, "join", parallel_group="check"),
        planned_task("e2e", 4, "join", parallel_group="check"),
        planned_task("release", 5),
    ],
    "risks": ["the deadline"],
    "assumptions": ["there is a server"],
}
WAITS = {task["name"]: task.get("depends_on", []) for task in PLAN["tasks"]}
WAITS["release"] = [name for name in WAITS if name != "release"]
GROUPS = {"build": ("api", "ui"), "check": ("unit", "e2e")}
SEQUENCE = {task["name"]: task["sequence"] for task in PLAN["tasks"]}


def once_per_shape(interface: Call, directly: Call) -> Call:
    """Calls over a slow interface once for each tool and shape of its arguments; further ones go directly."""
    asked: Counter[str] = Counter()

    def ask(tool: str, **arguments: Any) -> Body:
        form = f"{tool} {_shape(arguments)}"
        asked[form] += 1
        return (interface if asked[form] <= size(1, full=1000) else directly)(tool, **arguments)

    return ask


def _shape(value: Any) -> Any:
    """Which arguments there are, and of which types, at every depth."""
    if isinstance(value, dict):
        return {name: _shape(value[name]) for name in sorted(value)}
    return [_shape(item) for item in value] if isinstance(value, list) else type(value).__name__


class Story:
    """One telling, in a new git repository.

    `advance` lets the hall's clock go on, where the teller holds it; then estimates are exact.
    """

    def __init__(self, ask: Call, repository: Path, advance: Callable[[float], None] | None = None) -> None:
        self._ask = ask
        self._advance = advance
        self.repository = make_repository(repository).root
        self.called: set[str] = set()
        self.elapsed_ms = 0
        self.agents: dict[str, str] = {}
        self.tasks: dict[str, str] = {}
        self.workflow = ""
        self.status = dict.fromkeys(WAITS, "pending")

    def call(self, tool: str, **arguments: Any) -> Body:
        """The body of a call that succeeds, with every field that the seed prints."""
        body = self._ask(tool, **arguments)
        assert "code" not in body, (tool, arguments, body)
        assert misfit(body, RESULTS[tool], tool) is None, misfit(body, RESULTS[tool], tool)
        self.called.add(tool)
        return body

    def tell(self) -> None:
        self.repositories()
        self.crew()
        self.plan()
        self.first_task()
        self.parallel_tasks()
        self.checkpoints()
        self.workspaces()
        self.messages()
        self.remaining_tasks()
        self.end()
        self.templates()
        assert self.called == set(RESULTS), "every tool had its part"

    # Progress, at every step

    def advance_clock(self, seconds: float = STEP_SECONDS) -> None:
        if self._advance is not None:
            self._advance(seconds)
            self.elapsed_ms += int(seconds * 1000)

    def check_progress(self, **changed: str) -> Body:
        """The progress, after it was held against what the story knows: these tasks have changed since."""
        self.status |= changed
        body = self.call("workflow_progress", workflow_id=self.workflow)
        finished = {name for name, status in self.status.items() if status == "completed"}
        waiting = {name: [one for one in WAITS[name] if one not in finished] for name in WAITS}
        blocked = {name: waits for name, waits in waiting.items() if waits and self.status[name] == "pending"}
        shown = ["blocked" if name in blocked else status for name, status in self.status.items()]
        assert body["total_tasks"] == len(WAITS)
        assert body["by_status"] == {status: shown.count(status) for status in TASK_STATUSES}
        assert {one["name"]: sorted(one["blocked_by"]) for one in body["blocked_tasks"]} == {
            name: sorted(waits) for name, waits in blocked.items()
        }
        assert {one["name"]: one["id"] for one in body["blocked_tasks"]}.items() <= (self.tasks or _ids(body)).items()
        assert {one["group_id"]: (one["task_count"], one["completed"]) for one in body["parallel_groups"]} == {
            group: (len(names), len(finished & set(names))) for group, names in GROUPS.items()
        }
        open_sequences = {SEQUENCE[name] for name in WAITS if name not in finished}
        current = min(open_sequences, default=0)
        assert body["current_sequence"] == current
        assert body["completed_sequence"] == max((s for s in SEQUENCE.values() if s < (current or 99)), default=0)
        self._check_estimate(body["estimated_remaining"], len(finished))
        return body

    def _check_estimate(self, remaining: float, finished: int) -> None:
        """By the completed rate: as long for each task that is left as it was for each that is done."""
        left = len(WAITS) - finished
        if finished and self._advance is not None:
            assert remaining == left * self.elapsed_ms // finished
        assert (remaining > 0) == (left > 0)

    def check_ready(self, *names: str, recommended: int, **arguments: Any) -> list[Body]:
        """The next tasks, which are these."""
        body = self.call("workflow_next_tasks", workflow_id=self.workflow, **arguments)
        assert [task["name"] for task in body["tasks"]] == list(names)
        assert body["recommended_count"] == recommended
        assert body["all_complete"] is False
        tasks: list[Body] = body["tasks"]
        return tasks

    # The chapters

    def repositories(self) -> None:
        made = self.call("repository_register", path=self.repository, name="shop")["id"]
        assert self.call("repository_register", path=self.repository)["id"] == made
        listed = self.call("repository_list", limit=5, offset=0)["repositories"]
        assert [(one["id"], one["path"], one["name"]) for one in listed] == [(made, self.repository, "shop")]
        assert self.call("repository_get", path=self.repository) == listed[0]
        assert self._ask("repository_get", path="/srv/other") == {"result": None}, "null, as an object carries it"

    def crew(self) -> None:
        for name, runtime, role in (
            ("lead", "claude_code", "coordinator"),
            ("ada", "codex", "worker"),
            ("bob", "opencode", "worker"),
            ("cyd", "custom", "worker"),
        ):
            made = self.call(
                "agent_register",
                name=name,
                runtime=runtime,
                role=role,
                capabilities=["python", "testing"],
                workspace_path=f"/srv/{name}",
                metadata={"shift": 1},
            )
            assert made["name"] == name
            self.agents[name] = made["id"]
        ada = self.agents["ada"]
        assert self.call("agent_heartbeat", agent_id=ada, status="online")["next_heartbeat_ms"] > 0
        changes = {"status": "busy", "current_task_id": None, "workspace_path": "/srv/a", "metadata": {"shift": 2}}
        assert self.call("agent_update", id=ada, **changes)["success"]
        found = self.call("agent_get", id=ada)
        assert found.items() >= {"id": ada, "name": "ada", "runtime": "codex", "role": "worker", **changes}.items()
        assert self.call("agent_update", id=ada, status="online")["success"]
        listed = self.call("agent_list", status=["online", "busy"], role="worker", runtime="codex")["agents"]
        assert [agent["id"] for agent in listed] == [ada]

    def plan(self) -> None:
        source = {"source_type": "github_issue", "source_ref": "https://x/1", "source_content": "We need a shop."}
        where = {"repository_path": self.repository, "max_parallel_tasks": 1, "auto_create_workspaces": False}
        made = self.call("workflow_create", name="shop", **source, **where)
        assert made["name"] == "shop" and made["max_parallel_tasks"] == 1
        self.workflow = made["id"]
        assert self.call("workflow_set_parallelism", id=self.workflow, max_parallel_tasks=2)["success"]
        set_plan = self.call("workflow_set_plan", id=self.workflow, plan=PLAN)
        assert (set_plan["workflow_id"], set_plan["tasks_created"]) == (self.workflow, 7)
        assert set_plan["parallelizable_groups"] == 2
        found = self.call("workflow_get", id=self.workflow, include_tasks=True, include_task_summaries=False)
        assert found.items() >= (source | where | {"max_parallel_tasks": 2, "status": "ready"}).items()
        listed = self.call("workflow_list", repository_path=self.repository, status=["ready"], limit=5, offset=0)
        assert [one["id"] for one in listed["workflows"]] == [self.workflow] and listed["total"] == 1
        assert self.call("workflow_list", status=["planning"])["total"] == 0
        first = self.check_ready("design", recommended=1)
        self.tasks = {task["name"]: task["id"] for task in first}
        self.tasks |= _ids(self.call("workflow_progress", workflow_id=self.workflow))
        assert set(self.tasks) == set(WAITS)
        self.check_progress()

    def start_task(self, agent: str, name: str) -> None:
        """An agent takes a task, plans it and starts."""
        task, me = self.tasks[name], self.agents[agent]
        offered = self.call("task_get_available", agent_id=me, workflow_id=self.workflow, limit=5)["tasks"]
        assert task in [one["id"] for one in offered]
        claimed = self.call("task_claim", task_id=task, agent_id=me)
        assert claimed["success"] and claimed.get("already_claimed_by") is None
        assert self.call("task_update_status", id=task, status="planning")["success"]
        plan = {"approach": "Simply", "steps": ["one", "two"], "files_to_modify": ["a"], "files_to_create": ["b"]}
        plan["context_needed"] = ["the issue"]
        assert self.call("task_set_plan", id=task, plan=plan, context={"branch": name})["success"]
        assert self.call("task_update_status", id=task, status="in_progress")["success"]
        assert self.call("agent_heartbeat", agent_id=me, current_task_id=task, status="busy")["success"]
        found = self.call("task_get", id=task)
        assert found.items() >= {"status": "in_progress", "plan": plan, "context": {"branch": name}}.items()
        self.status[name] = "in_progress"

    def complete_task(self, name: str) -> None:
        """A task is noted and done, which the progress shows."""
        task = self.tasks[name]
        noted = {"type": "progress", "summary": "Half of it", "detail": {"n": 1}, "files_changed": ["src/x.py"]}
        added = self.call("checkpoint_add", task_id=task, **noted)
        listed = self.call("checkpoint_list", task_id=task, since_sequence=added["sequence"] - 1, limit=5)
        (found,) = listed["checkpoints"]
        assert found.items() >= (added | noted | {"task_id": task}).items()
        self.advance_clock()
        done = {"outcome": f"{name} works", "outcome_detail": {"tests": 3}}
        assert self.call("task_update_status", id=task, status="completed", **done)["success"]
        shown = self.call("task_get", id=task, include_checkpoints=True, checkpoint_limit=1)
        assert shown.items() >= (done | {"status": "completed"}).items() and len(shown["checkpoints"]) == 1
        self.check_progress(**{name: "completed"})

    def first_task(self) -> None:
        for agent in ("bob", "cyd"):
            offered = self.call("task_get_available", agent_id=self.agents[agent])["tasks"]
            assert [task["name"] for task in offered] == ["design"]
        self.start_task("ada", "design")
        refused = self.call("task_claim", task_id=self.tasks["design"], agent_id=self.agents["bob"])
        assert refused["success"] is False and refused["already_claimed_by"] == self.agents["ada"]
        assert self.call("task_get_available", agent_id=self.agents["bob"])["tasks"] == []
        assert self.call("workflow_get", id=self.workflow)["status"] == "in_progress"
        self.check_progress()
        self.check_dependencies("join", pending=["api", "ui"], completed=[])
        self.complete_task("design")

    def check_dependencies(self, name: str, pending: list[str], completed: list[str]) -> None:
        body = self.call("task_check_dependencies", task_id=self.tasks[name])
        assert body["satisfied"] == (not pending)
        assert sorted((one["id"], one["name"]) for one in body["pending"]) == sorted(
            (self.tasks[one], one) for one in pending
        )
        assert sorted((one["name"], one["outcome"]) for one in body["completed"]) == [
            (one, f"{one} works") for one in completed
        ]

    def parallel_tasks(self) -> None:
        api, ui = self.check_ready("ui", "api", recommended=2)[::-1]
        assert api["can_parallelize"] and ui["can_parallelize"]
        assert (api["parallel_with"], ui["parallel_with"]) == ([ui["id"]], [api["id"]])
        assert api["dependencies_completed"] == ui["dependencies_completed"] == ["design"]
        self.start_task("ada", "api")
        self.check_progress()
        self.start_task("bob", "ui")
        self.check_progress()
        self.check_ready(recommended=0)
        release = {"task_id": self.tasks["ui"], "agent_id": self.agents["bob"], "reason": "Called away"}
        assert self.call("task_release", **release)["success"]
        self.check_progress(ui="pending")
        self.start_task("cyd", "ui")
        self.check_progress()
        self.fail_and_replan("ui")
        self.check_dependencies("join", pending=["api", "ui"], completed=[])
        self.start_task("cyd", "ui")
        self.complete_task("ui")
        self.check_dependencies("join", pending=["api"], completed=["ui"])

    def fail_and_replan(self, name: str) -> None:
        task = self.tasks[name]
        self.call("checkpoint_add", task_id=task, type="error", summary="It broke")
        assert self.call("task_update_status", id=task, status="failed", error="No such colour")["success"]
        assert self.call("task_get", id=task).items() >= {"status": "failed", "error": "No such colour"}.items()
        self.check_progress(**{name: "failed"})
        self.check_ready(name, recommended=1)
        self.check_ready(name, recommended=1, include_failed=True)
        self.check_ready(recommended=0, include_failed=False)
        plan = {"approach": "Otherwise", "steps": ["three"], "files_to_modify": ["c"], "files_to_create": ["d"]}
        made = self.call("task_replan", id=task, reason="Another colour", new_plan=plan)
        assert made["success"]
        assert self.call("task_get", id=task).items() >= {"status": "pending", "plan": plan}.items()
        noted = self.call("checkpoint_list", task_id=task, type=["replan", "error"])["checkpoints"]
        assert [(one["type"], one["summary"]) for one in noted] == [("error", "It broke"), ("replan", "Another colour")]
        assert noted[1]["id"] == made["checkpoint_id"]
        self.check_progress(**{name: "pending"})

    def checkpoints(self) -> None:
        """Ada is at the api, and forgot all about it."""
        task = self.tasks["api"]
        noted = [self.call("checkpoint_add", task_id=task, type="progress", summary=f"Step {n}") for n in range(7)]
        body = self.call("task_load_context", task_id=task)
        workflow, current = body["workflow"], body["current_task"]
        assert workflow.items() >= {"id": self.workflow, "name": "shop", "source_summary": "We need a shop."}.items()
        assert workflow.items() >= {"source_type": "github_issue", "status": "in_progress"}.items()
        assert workflow["plan_summary"].startswith("A shop") and workflow["max_parallel_tasks"] == 2
        assert current.items() >= {"id": task, "name": "api", "description": "Do api."}.items()
        assert current["plan"]["steps"] == ["one", "two"] and current["context"] == {"branch": "api"}
        assert [one["id"] for one in current["checkpoints"]] == [one["id"] for one in noted[-5:]]
        assert [(one["name"], one["outcome"]) for one in body["prior_tasks"]] == [
            ("ui", "ui works"),
            ("design", "design works"),
        ]
        assert [(one["name"], one["status"]) for one in body["sibling_tasks"]] == [("ui", "completed")]
        assert [(one["task_name"], one["outcome"]) for one in body["dependency_outcomes"]] == [
            ("design", "design works")
        ]
        self.check_memory_parts(task, body)
        page = self.call("workflow_get_summary", id=self.workflow)
        assert isinstance(page["summary"], dict) and page == self.call(
            "workflow_get_summary", id=self.workflow, format="json"
        )
        text = self.call("workflow_get_summary", id=self.workflow, format="markdown")["summary"]
        assert text.startswith("# shop") and "design works" in text

    def check_memory_parts(self, task: str, body: Body) -> None:
        """Each flag, and the budget."""
        everything = {"all_checkpoints": True, "prior_task_full": True}
        whole = self.call("task_load_context", task_id=task, include=everything, max_tokens=6000)
        assert len(whole["current_task"]["checkpoints"]) == 7 > len(body["current_task"]["checkpoints"])
        assert whole["prior_tasks"][0]["outcome_detail"] == {"tests": 3}
        flags = ("workflow_plan", "workflow_summary", "prior_task_outcomes", "sibling_status", "dependency_outcomes")
        asked = dict.fromkeys(flags, False) | {"recent_checkpoints": 2}
        little = self._ask("task_load_context", task_id=task, include=asked, max_tokens=800)
        assert little["workflow"]["plan_summary"] is little["workflow"]["source_summary"] is None
        assert little["sibling_tasks"] is little["dependency_outcomes"] is None and little["prior_tasks"] == []
        assert len(little["current_task"]["checkpoints"]) == 2
        assert little["token_estimate"] < body["token_estimate"] < whole["token_estimate"] <= 6000
        assert self._ask("task_load_context", task_id=task, max_tokens=499)["code"] == "INVALID_INPUT"

    def workspaces(self) -> None:
        """A git worktree for the api, and one that nobody needs in the end."""
        where = {"workflow_id": self.workflow, "base_branch": "main"}
        path = f"{self.repository}-worktrees/api"
        task_ids = [self.tasks["api"]]
        made = self.call("workspace_create", **where, path=path, branch="shop-api", task_ids=task_ids)["id"]
        assert git(path, "branch", "--show-current") == "shop-api"
        other = self.call("workspace_create", **where, path=f"{path}-2", branch="shop-join")["id"]
        assert self.call("task_assign_workspace", task_id=self.tasks["join"], workspace_id=other)["success"]
        listed = {one["id"]: one for one in self.call("workspace_list", workflow_id=self.workflow)["workspaces"]}
        assert {one: listed[one]["task_ids"] for one in listed} == {made: task_ids, other: [self.tasks["join"]]}
        assert listed[made].items() >= {"path": path, "branch": "shop-api", "base_branch": "main"}.items()
        assert self._ask("workspace_update", id=made, status="merged")["code"] == "INVALID_INPUT"
        commit = git(self.repository, "rev-parse", "HEAD")
        assert self.call("workspace_update", id=made, status="merged", merge_commit=commit)["success"]
        assert self.call("workspace_update", id=other, status="abandoned")["success"]
        ended = self.call("workspace_list", workflow_id=self.workflow, status=["merged"])["workspaces"]
        assert [(one["id"], one["merge_commit"]) for one in ended] == [(made, commit)]
        assert self.call("workspace_list", workflow_id=self.workflow, status=["active"])["workspaces"] == []
        assert git(self.repository, "worktree", "list").count("\n") == 0, "the repository's own alone is left"

    def templates(self) -> None:
        """The shop again, and one with a name."""
        again = self.call("template_create", name="shop", description="As before", from_workflow_id=self.workflow)["id"]
        variables = [
            {"name": "what", "description": "To build", "required": True},
            {"name": "how", "description": "Its style", "required": False, "default": "plain"},
        ]
        tasks = [
            planned_task("build {{what}}", 1, parallel_group="g") | {"description": "A {{how}} {{what}}."},
            planned_task("test {{what}}", 2, "build {{what}}"),
        ]
        told = {"name": "thing", "template": {"tasks": tasks, "variables": variables}}
        thing = self.call("template_create", **told)["id"]
        listed = {one["id"]: one for one in self.call("template_list")["templates"]}
        assert listed[again]["description"] == "As before"
        assert [one["default"] for one in listed[thing]["variables"]] == [None, "plain"]
        made = self.call("template_apply", template_id=again, workflow_name="shop 2")["workflow_id"]
        (design,) = self.call("workflow_next_tasks", workflow_id=made)["tasks"]
        assert design["name"] == "design"
        where = {"repository_path": self.repository, "max_parallel_tasks": 4}
        given = {"template_id": thing, "workflow_name": "boat", "variables": {"what": "boat"}, **where}
        boat = self.call("template_apply", **given)["workflow_id"]
        assert self.call("workflow_get", id=boat).items() >= ({"name": "boat", "status": "ready"} | where).items()
        body = self.call("workflow_next_tasks", workflow_id=boat)
        assert [(one["name"], one["description"]) for one in body["tasks"]] == [("build boat", "A plain boat.")]
        assert self._ask("template_apply", template_id=thing, workflow_name="x")["code"] == "INVALID_INPUT"

    def messages(self) -> None:
        lead, ada, bob, cyd = (self.agents[name] for name in ("lead", "ada", "bob", "cyd"))
        about = {"workflow_id": self.workflow, "task_id": self.tasks["api"]}
        asked = self.call(
            "message_send",
            sender_id=ada,
            recipient_id=lead,
            message_type="query",
            subject="Paging",
            body={"which": ["offset", "cursor"]},
            priority="high",
            **about,
        )
        said = self.call(
            "message_send",
            sender_id=lead,
            recipient_id=ada,
            message_type="response",
            body="A cursor.",
            reply_to_id=asked["id"],
        )
        assert said["thread_id"] == asked["thread_id"]
        told = self.call(
            "message_broadcast",
            sender_id=lead,
            recipient_filter={"role": "worker", "status": "busy", "runtime": "codex"},
            message_type="notification",
            subject="Lunch",
            body="At noon",
            priority="low",
            workflow_id=self.workflow,
        )
        assert told["sent_count"] == 1 == len(told["message_ids"]), "ada alone is busy"
        everyone = self.call("message_broadcast", sender_id=lead, message_type="status_update", body={"done": 2})
        assert everyone["sent_count"] == 3, "the sender is not among them"
        self.read_messages(asked, told, everyone)
        assert self.call("message_count_unread", agent_id=bob)["count"] == 1
        assert self.call("message_count_unread", agent_id=cyd, priority=["urgent"])["count"] == 0

    def read_messages(self, asked: Body, told: Body, everyone: Body) -> None:
        """Ada and the lead read what they got."""
        lead, ada = self.agents["lead"], self.agents["ada"]
        chosen = {"message_type": ["query"], "priority": ["high"], "workflow_id": self.workflow, "since": 1}
        listed = self.call("message_list", agent_id=lead, status="unread", limit=5, **chosen)
        (question,) = listed["messages"]
        assert question.items() >= {"body": {"which": ["offset", "cursor"]}, "subject": "Paging", **asked}.items()
        assert question.items() >= {"sender_id": ada, "recipient_id": lead, "task_id": self.tasks["api"]}.items()
        thread = self.call("message_list", agent_id=ada, thread_id=asked["thread_id"])["messages"]
        assert [one["body"] for one in thread] == [question["body"], "A cursor."]
        assert thread[1]["reply_to_id"] == asked["id"]
        unread = self.call("message_count_unread", agent_id=ada)
        assert unread == {"count": 3, "by_priority": {"low": 1, "normal": 2, "high": 0, "urgent": 0}}
        assert self.call("message_get", id=thread[1]["id"], mark_read=False)["body"] == "A cursor."
        assert self.call("message_list", agent_id=ada)["unread_count"] == 3
        assert self.call("message_get", id=thread[1]["id"])["body"] == "A cursor."
        assert self.call("message_mark_read", message_ids=told["message_ids"])["success"]
        left = self.call("message_list", agent_id=ada)
        (news,) = left["messages"]
        assert left["unread_count"] == 1 and news["body"] == {"done": 2} and news["id"] in everyone["message_ids"]
        read = [one["id"] for one in self.call("message_list", agent_id=ada, status="read")["messages"]]
        assert sorted(read) == sorted([thread[1]["id"], *told["message_ids"]])
        assert self.call("message_archive", message_ids=read)["success"]
        assert self.call("message_list", agent_id=ada, status="read")["messages"] == []

    def remaining_tasks(self) -> None:
        self.complete_task("api")
        self.check_dependencies("join", pending=[], completed=["api", "ui"])
        assert self.call("workflow_update_status", id=self.workflow, status="paused", reason="Night")["success"]
        assert self.call("workflow_update_status", id=self.workflow, status="in_progress")["success"]
        assert self.call("workflow_set_parallelism", id=self.workflow, max_parallel_tasks=3)["success"]
        self.check_ready("join", recommended=1)
        self.start_task("ada", "join")
        plan = {"approach": "Again", "steps": []}
        assert self.call("task_replan", id=self.tasks["join"], reason="A better way", new_plan=plan)["success"]
        self.check_progress(join="pending")
        assert self.call("task_update_status", id=self.tasks["join"], status="in_progress")["success"]
        self.check_progress(join="in_progress")
        self.complete_task("join")
        self.check_ready("unit", "e2e", recommended=2)
        self.start_task("bob", "unit")
        self.start_task("cyd", "e2e")
        self.check_progress()
        self.complete_task("e2e")
        self.check_dependencies("release", pending=["unit"], completed=[])
        self.complete_task("unit")
        self.start_task("ada", "release")
        self.complete_task("release")

    def end(self) -> None:
        body = self.call("workflow_next_tasks", workflow_id=self.workflow)
        assert body["all_complete"] and body["tasks"] == [] and body["recommended_count"] == 0
        assert (body["max_parallel"], body["workflow_status"]) == (3, "in_progress")
        assert self.call("workflow_update_status", id=self.workflow, status="completed", reason="Done")["success"]
        assert self.call("workflow_get", id=self.workflow)["status"] == "completed"
        for agent in self.agents.values():
            assert self.call("agent_unregister", id=agent)["success"]
        gone = self.call("agent_list", status=["offline"])["agents"]
        assert {agent["id"] for agent in gone} == set(self.agents.values())


def _ids(progress: Body) -> dict[str, str]:
    return {one["name"]: one["id"] for one in progress["blocked_tasks"]}
