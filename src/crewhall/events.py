"""
Every kind of event, each declared once: its name, what its subject is, and what has happened.

    tx.event("task.claimed", task_id)  ──▶  event_list, `crewhall watch`, the WebSocket: `what` and `subject`

A name is `noun.verb`, so that followers can ask for one noun. docs/events.md is made from this list.
"""

from typing import NamedTuple


class EventKind(NamedTuple):
    """What the id in `subject` names, and what has happened to it."""

    subject: str
    about: str


EVENTS = {
    "agent.registered": EventKind("agent", "An agent joined the hall, or introduced itself again."),
    "agent.spoken_for": EventKind("agent", "Another client wrote as this agent; `data` says who, and with which tool."),
    "agent.updated": EventKind("agent", "Its status changed, or the fields that agent_update writes."),
    "agent.disconnected": EventKind("agent", "Its last bridge ended; it keeps what it holds for `agent.grace`."),
    "agent.renamed": EventKind("agent", "It has another name, since another agent has the one it had."),
    "agent.archived": EventKind("agent", "It was archived: lists leave it out."),
    "agent.restored": EventKind("agent", "It is in the lists again."),
    "agent.expired": EventKind("agent", "Its lease ended without a sign of life, so it is offline."),
    "agent.unregistered": EventKind("agent", "It left the hall."),
    "agent.token_made": EventKind("agent", "The operator made a token for it."),
    "agent.token_revoked": EventKind("agent", "The operator revoked its tokens."),
    "checkpoint.added": EventKind("task", "An agent added a checkpoint to the task."),
    "file.reserved": EventKind("agent", "The agent reserved paths of a repository."),
    "file.released": EventKind("agent", "The agent released paths that it had reserved."),
    "hall.paused": EventKind("hall", "The operator paused the hall; an event of each workflow that it holds has more."),
    "hall.resumed": EventKind("hall", "The operator resumed the hall."),
    "hall.changed": EventKind(
        "any", "Rows changed, as `changes` says: without another event, or too many for the next event of the subject."
    ),
    "instance.started": EventKind("instance", "The hall started it: worktree and session exist."),
    "instance.restarted": EventKind("instance", "The hall started its session again."),
    "instance.failed": EventKind("instance", "It could not be started, and nothing of it is left."),
    "instance.ended": EventKind("instance", "Its process ended; `data` says how."),
    "instance.stopped": EventKind("instance", "Its session was ended; worktree and branch stay."),
    "instance.abandoned": EventKind("instance", "It was given up: session and worktree are gone, its work is saved."),
    "instance.finished": EventKind("instance", "Its work is done: session and worktree are gone, work is saved."),
    "instance.pull_opened": EventKind("instance", "Its branch is pushed, and the host has its pull request."),
    "instance.pull_closed": EventKind("instance", "Its pull request was closed without a merge."),
    "instance.messaged": EventKind("instance", "A message for its conversation was queued."),
    "instance.told": EventKind("instance", "Its conversation, or its inbox, has the message; `data` says how."),
    "issue.created": EventKind("instance", "It made an issue on a host."),
    "message.sent": EventKind("message", "A message was sent."),
    "message.broadcast": EventKind("thread", "A message was sent to every agent that is in the hall."),
    "message.read": EventKind("message", "`count` messages of `recipients` were marked as read, this one first."),
    "message.archived": EventKind("message", "`count` messages of `recipients` were archived, this one first."),
    "message.expired": EventKind("message", "Unread messages of `recipients` expired, this one first."),
    "message.returned": EventKind("message", "Its recipient is offline, so the sender was told that it is unread."),
    "pull.opened": EventKind("pull request", "The host has the pull request."),
    "pull.failed": EventKind("pull request", "It could not be opened, and nothing of it is on the host."),
    "report.made": EventKind("report", "The judge answered in the shape that was asked for."),
    "report.failed": EventKind("report", "The judge gave no answer that can be used."),
    "repository.registered": EventKind("repository", "The hall knows a repository."),
    "repository.renamed": EventKind("repository", "It has another name."),
    "review.approved": EventKind("instance", "The judge approved its work."),
    "review.requested": EventKind("instance", "A reviewer was started for it, and it waits; `data` has the round."),
    "review.feedback": EventKind("instance", "Its reviewer sent feedback, and it goes on."),
    "review.item_waived": EventKind("instance", "The operator decided that an item of its review need not be fixed."),
    "review.merged": EventKind("instance", "Feedback that had to wait is merged into its branch."),
    "review.lost": EventKind("instance", "Its review ended without feedback; the round does not count."),
    "setting.changed": EventKind("setting", "The operator changed a setting while hubs run."),
    "task.claimed": EventKind("task", "An agent claimed it."),
    "task.renewed": EventKind("task", "The agent whose claim had lapsed came back and holds it again."),
    "task.released": EventKind("task", "Its claim was given up; if it was started, it is pending again."),
    "task.handed_over": EventKind("task", "Its claim went to another agent; its status and plan stay."),
    "task.expired": EventKind("task", "Its agent's lease ended; if it was started, it is pending again."),
    "task.planned": EventKind("task", "Its agent wrote a plan for it."),
    "task.updated": EventKind("task", "Its status changed."),
    "task.replanned": EventKind("task", "It has a new plan and is pending again."),
    "task.placed": EventKind("task", "It is done in a workspace from now on."),
    "template.created": EventKind("template", "A template was made."),
    "workflow.created": EventKind("workflow", "A workflow was made."),
    "workflow.planned": EventKind("workflow", "It has a plan, and is ready."),
    "workflow.updated": EventKind("workflow", "Its status changed."),
    "workflow.archived": EventKind("workflow", "It was archived: lists leave it out."),
    "workflow.restored": EventKind("workflow", "It is in the lists again."),
    "workflow.tasks_added": EventKind("workflow", "Tasks were added to its plan."),
    "workflow.task_removed": EventKind("workflow", "A task was removed from its plan."),
    "workflow.parallelism_set": EventKind("workflow", "The number of its tasks that may run at once was set."),
    "workspace.created": EventKind("workspace", "A workspace was made, with a branch of its own."),
    "workspace.updated": EventKind("workspace", "Its status changed."),
    "workspace.removed": EventKind("workspace", "Its worktree was removed."),
    "worktree.opened": EventKind("worktree", "A hub is to serve it to MCP clients."),
    "worktree.closed": EventKind("worktree", "It is not served any more."),
    "worktree.served": EventKind("worktree", "Its server listens."),
    "worktree.moved": EventKind("worktree", "Its server listens on another port than before."),
    "worktree.stopped": EventKind("worktree", "Its server stopped."),
    "worktree.failed": EventKind("worktree", "Its server could not start."),
}
