"""
What seed 003 prints of its results, written down from its text and from nothing else.

    str, int, …       a value of that type          {"a": …, "b?": …}   an object with these fields; b may be missing
    ("x", "y")        one of these words            [shape]             a list of such things
    dict              any object                    NUMBER              TypeScript's number
"""

from typing import Any

NUMBER = (int, float)
TASK_STATUSES = ("pending", "blocked", "planning", "in_progress", "paused", "completed", "failed", "skipped")
DONE = {"success": bool}

# The seed names these types without printing them: what its tools let one write is there to be read.
WORKFLOW = {
    "id": str,
    "name": str,
    "status": str,
    "source_type": ("prompt", "github_issue", "linear", "jira", "custom"),
    "source_ref?": str,
    "source_content": str,
    "repository_path?": str,
    "max_parallel_tasks": NUMBER,
    "auto_create_workspaces": bool,
}
WORKFLOW_SUMMARY = {"id": str, "name": str, "status": str}
TASK = {
    "id": str,
    "workflow_id": str,
    "name": str,
    "description": str,
    "status": TASK_STATUSES,
    "sequence": NUMBER,
    "parallel_group?": str,
    "depends_on": [str],
    "estimated_complexity?": ("low", "medium", "high"),
    "files_likely_affected": [str],
    "plan?": dict,
    "context?": dict,
    "outcome?": str,
    "outcome_detail?": dict,
    "error?": str,
}
CHECKPOINT = {
    "id": str,
    "task_id": str,
    "sequence": NUMBER,
    "type": ("plan", "progress", "decision", "error", "recovery", "complete", "replan"),
    "summary": str,
    "detail?": dict,
    "files_changed": [str],
}
WORKSPACE = {
    "id": str,
    "workflow_id": str,
    "path": str,
    "branch": str,
    "base_branch?": str,
    "task_ids": [str],
    "status": ("active", "merged", "abandoned"),
    "merge_commit?": str,
}
TEMPLATE = {
    "id": str,
    "name": str,
    "description?": str,
    "variables": [{"name": str, "description": str, "required": bool, "default?": str}],
}
REPOSITORY = {"id": str, "path": str, "name": str}
AGENT = {
    "id": str,
    "name": str,
    "runtime": str,
    "role": ("coordinator", "worker"),
    "status": ("online", "offline", "busy"),
    "capabilities": [str],
    "workspace_path?": str,
    "current_task_id?": str,
    "metadata": dict,
}
MESSAGE = {
    "id": str,
    "sender_id": str,
    "recipient_id": str,
    "message_type": ("task_assignment", "status_update", "query", "response", "notification"),
    "subject?": str,
    "body": (str, dict),
    "priority": ("low", "normal", "high", "urgent"),
    "workflow_id?": str,
    "task_id?": str,
    "reply_to_id?": str,
    "thread_id": str,
}

RESULTS: dict[str, Any] = {
    # Workflow lifecycle
    "workflow_create": {"id": str, "name": str, "status": ("planning",), "max_parallel_tasks": NUMBER},
    "workflow_get": WORKFLOW,
    "workflow_list": {"workflows": [WORKFLOW_SUMMARY], "total": NUMBER},
    "workflow_set_plan": {
        "workflow_id": str,
        "tasks_created": NUMBER,
        "parallelizable_groups": NUMBER,
        "status": ("ready",),
    },
    "workflow_update_status": DONE,
    "workflow_set_parallelism": DONE,
    # Task management
    "task_get": TASK,
    "task_set_plan": DONE,
    "task_update_status": DONE,
    "task_replan": {"success": bool, "checkpoint_id": str},
    # Checkpoint recording
    "checkpoint_add": {"id": str, "sequence": NUMBER},
    "checkpoint_list": {"checkpoints": [CHECKPOINT]},
    # Context loading
    "task_load_context": {
        "workflow": {
            "id": str,
            "name": str,
            "source_type": str,
            "source_summary": str,
            "plan_summary": str,
            "status": str,
            "max_parallel_tasks": NUMBER,
        },
        "current_task": {
            "id": str,
            "name": str,
            "description": str,
            "plan": dict,
            "context": dict,
            "checkpoints": [CHECKPOINT],
            "status": str,
        },
        "prior_tasks": [{"id": str, "name": str, "outcome": str, "status": str}],
        "sibling_tasks?": [{"id": str, "name": str, "status": str, "brief_summary?": str}],
        "dependency_outcomes?": [{"task_id": str, "task_name": str, "outcome": str}],
        "token_estimate": NUMBER,
    },
    "workflow_get_summary": {"summary": (str, dict), "token_estimate": NUMBER},
    # Orchestration queries
    "workflow_next_tasks": {
        "tasks": [
            {
                "id": str,
                "name": str,
                "description": str,
                "can_parallelize": bool,
                "parallel_with?": [str],
                "dependencies_completed": [str],
            }
        ],
        "max_parallel": NUMBER,
        "recommended_count": NUMBER,
        "workflow_status": str,
        "all_complete": bool,
    },
    "workflow_progress": {
        "total_tasks": NUMBER,
        "by_status": dict.fromkeys(TASK_STATUSES, NUMBER),
        "completed_sequence": NUMBER,
        "current_sequence": NUMBER,
        "blocked_tasks": [{"id": str, "name": str, "blocked_by": [str]}],
        "parallel_groups": [{"group_id": str, "task_count": NUMBER, "completed": NUMBER}],
        "estimated_remaining": NUMBER,
    },
    "task_check_dependencies": {
        "satisfied": bool,
        "pending": [{"id": str, "name": str, "status": str}],
        "completed": [{"id": str, "name": str, "outcome": str}],
    },
    # Workspace management
    "workspace_create": {"id": str},
    "workspace_update": DONE,
    "workspace_list": {"workspaces": [WORKSPACE]},
    "task_assign_workspace": DONE,
    # Repository management
    "repository_register": {"id": str},
    "repository_list": {"repositories": [REPOSITORY]},
    "repository_get": REPOSITORY,
    # Template management
    "template_create": {"id": str},
    "template_list": {"templates": [TEMPLATE]},
    "template_apply": {"workflow_id": str},
    # Agent management
    "agent_register": {"id": str, "name": str, "status": ("online",)},
    "agent_heartbeat": {"success": bool, "next_heartbeat_ms": NUMBER},
    "agent_update": DONE,
    "agent_get": AGENT,
    "agent_list": {"agents": [AGENT]},
    "agent_unregister": DONE,
    "task_claim": {"success": bool, "already_claimed_by?": str},
    "task_release": DONE,
    "task_get_available": {"tasks": [TASK]},
    # Messaging
    "message_send": {"id": str, "thread_id": str},
    "message_broadcast": {"sent_count": NUMBER, "message_ids": [str]},
    "message_list": {"messages": [MESSAGE], "unread_count": NUMBER},
    "message_get": MESSAGE,
    "message_mark_read": DONE,
    "message_archive": DONE,
    "message_count_unread": {
        "count": NUMBER,
        "by_priority": {"low": NUMBER, "normal": NUMBER, "high": NUMBER, "urgent": NUMBER},
    },
}


def misfit(value: Any, shape: Any, place: str = "") -> str | None:
    """Where and how a value differs from a shape; None when it fits. More fields than the shape has are welcome."""
    if isinstance(shape, list):
        return _list_misfit(value, shape[0], place)
    if isinstance(shape, dict):
        return _object_misfit(value, shape, place)
    if isinstance(shape, tuple) and isinstance(shape[0], str):
        return None if value in shape else f"{place} is {value!r}, none of {shape}"
    if isinstance(value, shape) and (shape is bool or not isinstance(value, bool)):
        return None
    return f"{place} is {value!r}, no {shape}"


def _list_misfit(value: Any, shape: Any, place: str) -> str | None:
    if not isinstance(value, list):
        return f"{place} is {value!r}, no list"
    return next(filter(None, (misfit(item, shape, f"{place}[{n}]") for n, item in enumerate(value))), None)


def _object_misfit(value: Any, shape: dict[str, Any], place: str) -> str | None:
    if not isinstance(value, dict):
        return f"{place} is {value!r}, no object"
    for name, inner in shape.items():
        field = name.removesuffix("?")
        if field != name and value.get(field) is None:
            continue
        if field not in value:
            return f"{place} has no {field}"
        found = misfit(value[field], inner, f"{place}.{field}")
        if found:
            return found
    return None
