"""
Workflows: what is to be done, the plan for it, and how it goes on (seed 003, workflow lifecycle).

    create ─▶ planning ── set_plan ─▶ ready ── first claim ─▶ in_progress ─▶ completed | failed | abandoned
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from crewhall.app import Call
from crewhall.bounded import AnyOf, Limit, Offset, page, rows_and_total
from crewhall.errors import InvalidState, NotFound
from crewhall.families.work.claim.leases import put_back, settle_agent
from crewhall.families.work.family import work
from crewhall.families.work.hall.pause import SharedPause, hold, refuse_set_going
from crewhall.families.work.lookup import get, get_locked, hint_get, hint_get_locked
from crewhall.families.work.model import Done, IncludeArchived, Name, Path, Short, TaskId, WorkflowId
from crewhall.families.work.repository.tools import Site, make_known, site_of
from crewhall.families.work.task.model import PlannedTask, Task, TaskRow, TaskSummary
from crewhall.families.work.task.pages import summaries, whole_tasks
from crewhall.families.work.workflow.archive import restore
from crewhall.families.work.workflow.halt import pauser, refuse_lifting
from crewhall.families.work.workflow.model import (
    AutoCreate,
    MaxParallel,
    Pauser,
    PlanSet,
    Reviewer,
    ReviewerChoice,
    Source,
    SourceType,
    TasksAdded,
    Workflow,
    WorkflowCreated,
    WorkflowLocked,
    WorkflowPlan,
    Workflows,
    WorkflowStatus,
    WorkflowSummary,
)
from crewhall.families.work.workflow.plans import hint_graph, insert_tasks, plan_text, recompute_standings
from crewhall.families.work.workflow.rules import RUNS, refuse_not_running, refuse_workflow_step
from crewhall.families.work.workflow.tellings import tell_paused, tell_resumed
from crewhall.families.work.workspace.rules import refuse_others_place
from crewhall.identity import new_id
from crewhall.store.transaction import Row, Tx


@work.tool("workflow_create", changes=True, creates=True, profiles=("coordinator", "standard", "planning"))
def workflow_create(
    call: Call,
    name: Name,
    source_type: SourceType,
    source_content: Source,
    source_ref: Annotated[Short, Field(description="A URL or identifier of the source.")] | None = None,
    repository_path: Path | None = None,
    max_parallel_tasks: MaxParallel = 1,
    auto_create_workspaces: AutoCreate = False,
    reviewer: ReviewerChoice = "instance",
) -> WorkflowCreated:
    """Begin a workflow from a prompt or an issue. It needs a plan next: workflow_set_plan.

    repository_path is the repository of your client's directory when left out.
    """
    where = repository_of(call, repository_path)
    with call.begin() as tx:
        workflow_id = insert_workflow(
            tx,
            call.now,
            name=name,
            source_type=source_type,
            source_ref=source_ref,
            source_content=source_content,
            repository_path=where,
            max_parallel_tasks=max_parallel_tasks,
            auto_create_workspaces=int(auto_create_workspaces),
            reviewer=reviewer,
        )
    return WorkflowCreated(id=workflow_id, name=name, status="planning", max_parallel_tasks=max_parallel_tasks)


def repository_of(call: Call, repository_path: str | None) -> Site | None:
    """The repository of a new workflow: that of the path given, or of the client's directory, if it has one."""
    where = repository_path or call.origin.directory
    return None if where is None else site_of(where)


def insert_workflow(
    tx: Tx, now: int, *, repository_path: Site | None, reviewer: Reviewer = "instance", **fields: Any
) -> str:
    """Insert a workflow without a plan, and register its repository; the workflow's id."""
    workflow_id, path = new_id("wf"), None if repository_path is None else repository_path.path
    tx.run("workflow_insert", id=workflow_id, repository_path=path, reviewer=reviewer, now=now, **fields)
    if repository_path is not None and repository_path.is_repository and not tx.one("repository_get", path=path):
        make_known(tx, repository_path.path, None, now)
    tx.event("workflow.created", workflow_id, after="planning")
    return workflow_id


@work.tool(
    "workflow_get",
    profiles=("coordinator", "reviewer", "standard", "planning"),
    resources=("crewhall://workflows/{id}",),
)
def workflow_get(
    call: Call,
    id: WorkflowId,
    include_tasks: Annotated[bool, Field(description="Its tasks too, the first that fit.")] = False,
    include_task_summaries: Annotated[bool, Field(description="Tasks in short; false gives each in full.")] = True,
) -> Workflow:
    """A workflow with its source and its plan, and its tasks if asked for."""
    with call.begin() as tx:
        hint_get(tx, "workflow", id)
        tasks: list[TaskSummary] | list[Task] | None = None
        following = None
        if include_tasks:
            tasks, following = (summaries if include_task_summaries else whole_tasks)(tx, id)
        row = get(tx, "workflow", id)
    return Workflow.from_row(row, tasks, following)


@work.tool("workflow_list", profiles=("coordinator", "standard", "planning"), resources=("crewhall://workflows",))
def workflow_list(
    call: Call,
    repository_path: Path | None = None,
    status: AnyOf[WorkflowStatus] | None = None,
    halted_by: Annotated[Pauser, Field(description="Only those that this one has paused.")] | None = None,
    include_archived: IncludeArchived = False,
    limit: Limit = 20,
    offset: Offset = 0,
) -> Workflows:
    """The workflows of the hall, the newest first; filter by repository, by status or by who paused them."""
    where = None if repository_path is None else site_of(repository_path).path
    statuses = json.dumps(status) if status else None
    chosen: Row = {"repository_path": where, "statuses": statuses, "halted_by": halted_by}
    chosen |= {"include_archived": int(include_archived)}
    with call.begin() as tx:
        rows, total = rows_and_total(tx, "workflows", chosen, limit=limit, offset=offset)
    items, following = page((WorkflowSummary.from_row(row) for row in rows), total, offset)
    return Workflows(workflows=items, total=total, next_offset=following)


@work.tool("workflow_set_plan", changes=True, creates=True, profiles=("coordinator", "standard", "planning"))
def workflow_set_plan(call: Call, id: WorkflowId, plan: WorkflowPlan) -> PlanSet:
    """Give a workflow its plan: all its tasks at once, each naming those it depends on. It is ready then, or paused
    while the whole hall is.

    A task waits for everything in its depends_on; one without any waits for all tasks of a lower sequence.
    Tasks that would wait for each other are refused.
    """
    text = plan_text(plan.summary, plan.approach, plan.risks, plan.assumptions)
    with call.begin() as tx:
        shared = SharedPause(tx)
        hint_get_locked(tx, "workflow", id)
        hint_graph(tx, id, len(plan.tasks))
        before = get_locked(tx, "workflow", id)
        if before["status"] == "paused" and not before["has_plan"]:
            refuse_not_running(before, "planned")
        if before["status"] != "planning":
            raise InvalidState(
                f"workflow {id} is {before['status']}, and a plan is set while it is planning",
                hint="workflow_add_tasks and workflow_remove_task change a plan that is there.",
            )
        status = give_plan(tx, id, text, plan.tasks, shared)
    groups = {task.parallel_group for task in plan.tasks if task.parallel_group}
    return PlanSet(workflow_id=id, tasks_created=len(plan.tasks), parallelizable_groups=len(groups), status=status)


def give_plan(tx: Tx, workflow_id: str, text: str, tasks: Sequence[PlannedTask], shared: SharedPause) -> WorkflowStatus:
    """A workflow that is planning gets its tasks and is ready, or held by the hall's pause at once; its status.

    Raises InvalidInput as `insert_tasks` does.
    """
    insert_tasks(tx, workflow_id, tasks, tx.now)
    tx.run("workflow_plan_set", id=workflow_id, plan=text, now=tx.now)
    fields = json.dumps({"tasks": len(tasks)})
    tx.event("workflow.planned", workflow_id, before="planning", after="ready", data=fields)
    pause = shared.read()
    if pause is None:
        return "ready"
    hold(tx, [{"id": workflow_id, "status": "ready"}], pause)
    return "paused"


@work.tool(
    "workflow_add_tasks", ours=True, changes=True, creates=True, profiles=("coordinator", "standard", "planning")
)
def workflow_add_tasks(
    call: Call, id: WorkflowId, tasks: Annotated[list[PlannedTask], Field(min_length=1, max_length=10_000)]
) -> TasksAdded:
    """Put more tasks into a workflow that has its plan. They may depend on tasks that are there, by name."""
    with call.begin() as tx:
        hint_get_locked(tx, "workflow", id)
        hint_graph(tx, id, len(tasks))
        _refuse_replanning(get_locked(tx, "workflow", id))
        made = insert_tasks(tx, id, tasks, call.now)
        tx.event("workflow.tasks_added", id, data=json.dumps({"tasks": len(made)}))
    return TasksAdded(workflow_id=id, tasks_created=len(made), task_ids=made[:500])


@work.tool("workflow_remove_task", ours=True, changes=True, destructive=True, profiles=("coordinator",))
def workflow_remove_task(call: Call, id: WorkflowId, task_id: TaskId) -> Done:
    """Take a task out of the plan, one that nobody has begun and nothing depends on. Another can be skipped."""
    with call.begin() as tx:
        hint_get_locked(tx, "workflow", id)
        hint_get(tx, "task", task_id)
        tx.ahead("dependents", id=task_id)
        _refuse_replanning(get_locked(tx, "workflow", id))
        task = get(tx, "task", task_id)
        if task["workflow_id"] != id:
            raise NotFound(f"workflow {id} has no task '{task_id}'", hint="task_list shows its tasks.")
        _refuse_removal(tx, task)
        for query in ("task_remove_dependencies", "task_remove_capabilities", "task_remove_claims", "task_remove"):
            tx.run(query, id=task_id)
        where = {"workflow_id": id, "parallel_group": task["parallel_group"] or ""}
        tx.run("tally_add", status="pending", tasks=-1, **where)
        tx.run("workflow_count", id=id, tasks=-1, finished=0, completed=0, now=call.now)
        recompute_standings(tx, id)
        tx.event("workflow.task_removed", id, data=json.dumps({"task_id": task_id, "name": task["name"]}))
    return Done(success=True)


def _refuse_replanning(workflow: WorkflowLocked) -> None:
    """Raise InvalidState when the workflow has no plan that could be changed."""
    if workflow["status"] == "paused" and not workflow["has_plan"]:
        refuse_not_running(workflow, "planned")
    hints = {"planning": "workflow_set_plan gives it a plan first."}
    if workflow["status"] in ("planning", "completed", "abandoned"):
        raise InvalidState(
            f"workflow {workflow['id']} is {workflow['status']}, so its plan cannot be changed",
            hint=hints.get(workflow["status"], "It is over; a new workflow is for new work."),
        )


def _refuse_removal(tx: Tx, task: TaskRow) -> None:
    if task["status"] != "pending" or task["claimed_by"] or task["checkpoint_count"]:
        raise InvalidState(
            f"task {task['id']} was begun: it is {task['status']}, with {task['checkpoint_count']} checkpoints",
            hint="task_update_status sets a task skipped that is no longer wanted; what was noted stays.",
        )
    waiting = [row["name"] for row in tx.all("dependents", id=task["id"])]
    if waiting:
        raise InvalidState(
            f"{', '.join(waiting)} depends on task {task['id']}",
            hint="Remove those first, or set this one skipped: then they wait for it no longer.",
        )


@work.tool("workflow_update_status", changes=True, profiles=("coordinator", "standard"))
def workflow_update_status(
    call: Call,
    id: WorkflowId,
    status: WorkflowStatus,
    reason: Annotated[Short, Field(description="Why, for those who look later.")] | None = None,
) -> Done:
    """Move a workflow on: in_progress, paused, completed when all tasks are finished, failed or abandoned.

    While it is paused or failed no task of it can be claimed. Abandoning it frees every task that is held, and ends its
    workspaces.
    """
    by = pauser(call)
    with call.begin() as tx:
        shared = SharedPause(tx) if status in RUNS else None
        hint_get_locked(tx, "workflow", id)
        if status == "abandoned":
            tx.ahead("workflow_held", id=id, agent_id=call.actor.id)
        before = get_locked(tx, "workflow", id)
        refuse_lifting(call, before)  # first: its hint is true for an agent, whichever step it wants
        refuse_workflow_step(before, status, by)
        if shared is not None:
            refuse_set_going(shared.read(), id, status, by)
        if status == "abandoned":
            held = tx.one("workflow_held", id=id, agent_id=call.actor.id)
            refuse_others_place(f"workflow {id}", held, call.actor)
        halted_by = by if status == "paused" else None
        tx.run("workflow_status_set", id=id, status=status, reason=reason, halted_by=halted_by, now=call.now)
        if status == "in_progress":
            restore(tx, before, call.now)
        if status == "abandoned":
            _free_all(tx, id, call.now)
            for row in tx.all("workspaces_abandon", workflow_id=id, now=call.now):
                tx.event("workspace.updated", row["id"], before="active", after="abandoned")
        tx.event("workflow.updated", id, before=before["status"], after=status)
        if status == "paused":
            tell_paused(tx, {id: before["name"]}, by, reason, call.agent_id)
        elif before["status"] == "paused":
            tell_resumed(tx, {id: before["name"]}, by, call.agent_id)
    return Done(success=True)


def _free_all(tx: Tx, workflow_id: str, now: int) -> None:
    """Nobody holds a task of the workflow any more."""
    tasks = [get(tx, "task", row["id"]) for row in tx.all("workflow_claimed", workflow_id=workflow_id)]
    for task in tasks:
        put_back(tx, task, "released", now, reason=None)
    for agent_id in sorted({task["claimed_by"] for task in tasks if task["claimed_by"] is not None}):
        settle_agent(tx, agent_id, now)


@work.tool("workflow_set_parallelism", changes=True, idempotent=True, profiles=("coordinator",))
def workflow_set_parallelism(
    call: Call, id: WorkflowId, max_parallel_tasks: MaxParallel, auto_create_workspaces: AutoCreate | None = None
) -> Done:
    """How many tasks of a workflow may run at once. A lower number stops none that runs, only new claims."""
    auto = None if auto_create_workspaces is None else int(auto_create_workspaces)
    with call.begin() as tx:
        get_locked(tx, "workflow", id)
        fields = {"max_parallel_tasks": max_parallel_tasks, "auto_create_workspaces": auto}
        tx.run("workflow_parallelism_set", id=id, now=call.now, **fields)
        tx.event("workflow.parallelism_set", id, data=json.dumps({"max_parallel_tasks": max_parallel_tasks}))
    return Done(success=True)
