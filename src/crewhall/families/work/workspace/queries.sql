-- name: workspace_insert
-- A workspace whose worktree is about to be made, or was found, unless there is a live one at its path.
INSERT INTO workspace (id, workflow_id, node, repository_path, path, branch, base_branch, status, worktree,
                       has_made_branch, created_at, updated_at)
VALUES (:id, :workflow_id, :node, :repository_path, :path, :branch, :base_branch, 'active', :worktree,
        :has_made_branch, :now, :now)
ON CONFLICT (node, path) WHERE status = 'active' DO NOTHING;

-- name: workspace_get
-- A workspace.
SELECT id, workflow_id, node, repository_path, path, branch, base_branch, status, worktree, has_made_branch,
       merge_commit, saved_refs, problem, created_at, updated_at
  FROM workspace WHERE id = :id;

-- name: workspace_at
-- The live workspace at a path of a node.
SELECT id, workflow_id, node, repository_path, path, branch, base_branch, status, worktree, has_made_branch,
       merge_commit, saved_refs, problem, created_at, updated_at
  FROM workspace WHERE node = :node AND path = :path AND status = 'active';

-- name: workspace_leaving
-- The workspace at a path of a node that has ended, and whose worktree is to be removed.
SELECT id FROM workspace
 WHERE node = :node AND path = :path AND status <> 'active' AND worktree IN ('wanted', 'made') LIMIT 1;

-- name: workspace_beside
-- Another workspace that is live at a workspace's path, whatever its node is called.
SELECT id FROM workspace WHERE path = :path AND status = 'active' AND id <> :id LIMIT 1;

-- name: workspaces
-- A page of a workflow's workspaces, the oldest first, perhaps of some statuses.
SELECT id, workflow_id, node, repository_path, path, branch, base_branch, status, worktree, has_made_branch,
       merge_commit, saved_refs, problem, created_at, updated_at
  FROM workspace
 WHERE workflow_id = :workflow_id AND (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
 ORDER BY created_at, id LIMIT :limit OFFSET :offset;

-- name: workspaces_count
-- How many workspaces a workflow has, perhaps of some statuses.
SELECT count(*) AS total
  FROM workspace
 WHERE workflow_id = :workflow_id AND (CAST(:statuses AS text) IS NULL OR status IN {each:statuses});

-- name: workspace_ids
-- Ids of the workspaces whose id or branch begins so, the newest first, and how many there are in all.
SELECT id AS value, count(*) OVER () AS total
  FROM workspace
 WHERE substr(id, 1, length(CAST(:prefix AS text))) = :prefix OR substr(branch, 1, length(:prefix)) = :prefix
 ORDER BY created_at DESC, id LIMIT :limit;

-- name: workspace_tasks
-- Tasks that are done in these workspaces, those that are not finished first.
SELECT id, workspace_id, name, status, claimed_by
  FROM task WHERE workspace_id IN {each:ids}
 ORDER BY CASE WHEN status IN ('completed', 'skipped') THEN 1 ELSE 0 END, place LIMIT :limit;

-- name: workspace_held
-- A task in a workspace that another agent holds.
SELECT id, claimed_by FROM task
 WHERE workspace_id = :id AND claimed_by IS NOT NULL AND claimed_by <> :agent_id ORDER BY id LIMIT 1;

-- name: workspace_ready
-- A workspace's worktree is there; also one that ended meanwhile, and was looked for before it was there.
UPDATE workspace SET worktree = 'made', problem = NULL, updated_at = :now
 WHERE id = :id AND (worktree = 'wanted' OR (worktree = 'removed' AND status <> 'active'));

-- name: workspace_branch_set
-- Whether git made a new branch when it made a workspace's worktree.
UPDATE workspace SET has_made_branch = :has_made_branch WHERE id = :id;

-- name: workspace_forget
-- Forget a workspace whose worktree could not be made.
DELETE FROM workspace WHERE id = :id AND worktree = 'wanted';

-- name: workspace_leave
-- No task is done any more in this workspace, whose worktree could not be made.
UPDATE task SET workspace_id = NULL
 WHERE workspace_id = :id AND (SELECT worktree FROM workspace WHERE id = :id) = 'wanted';

-- name: task_place
-- A task is done in a workspace.
UPDATE task SET workspace_id = :workspace_id, updated_at = :now WHERE id = :id;

-- name: workspace_status_set
-- How a workspace ended.
UPDATE workspace SET status = :status, merge_commit = :merge_commit, problem = NULL, updated_at = :now WHERE id = :id;

-- name: workspace_removed
-- A workspace's worktree is gone, and these refs keep what nothing else kept.
UPDATE workspace SET worktree = 'removed', saved_refs = :saved_refs, problem = NULL, updated_at = :now
 WHERE id = :id AND worktree <> 'removed';

-- name: workspace_problem
-- Why a workspace's worktree could not be removed.
UPDATE workspace SET problem = :problem, updated_at = :now WHERE id = :id AND worktree <> 'removed';

-- name: workspaces_abandon
-- The live workspaces of a workflow are given up.
UPDATE workspace SET status = 'abandoned', problem = NULL, updated_at = :now
 WHERE workflow_id = :workflow_id AND status = 'active' RETURNING id;

-- name: workspace_give_up
-- A live workspace whose worktree nobody finished is given up.
UPDATE workspace SET status = 'abandoned', updated_at = :now
 WHERE id = :id AND status = 'active' AND worktree = 'wanted';

-- name: workspaces_half_made
-- Live workspaces of a node whose worktree nobody finished.
SELECT id, workflow_id
  FROM workspace WHERE node = :node AND status = 'active' AND worktree = 'wanted' AND updated_at < :before
 ORDER BY updated_at LIMIT :limit;

-- name: workspaces_over
-- Workspaces of a node that have ended and whose worktree is not removed, the longest untried first.
SELECT id, workflow_id, node, repository_path, path, branch, base_branch, status, worktree, has_made_branch,
       merge_commit, saved_refs, problem, created_at, updated_at
  FROM workspace
 WHERE node = :node AND status <> 'active' AND worktree IN ('wanted', 'made') AND updated_at <= :before
 ORDER BY updated_at LIMIT :limit;

-- name: workspaces_live
-- Live workspaces of a repository on a node, the newest first.
SELECT id, workflow_id, node, repository_path, path, branch, base_branch, status, worktree, has_made_branch,
       merge_commit, saved_refs, problem, created_at, updated_at
  FROM workspace
 WHERE node = :node AND repository_path = :repository_path AND status = 'active' AND worktree <> 'wanted'
 ORDER BY CASE WHEN workflow_id = :workflow_id THEN 0 ELSE 1 END, created_at DESC, id LIMIT :limit;

-- name: workspaces_live_count
-- How many live workspaces of a repository there are on a node.
SELECT count(*) AS total
  FROM workspace
 WHERE node = :node AND repository_path = :repository_path AND status = 'active' AND worktree <> 'wanted';

-- name: workspaces_named
-- These workspaces, if they are live and on this node.
SELECT id, workflow_id, node, repository_path, path, branch, base_branch, status, worktree, has_made_branch,
       merge_commit, saved_refs, problem, created_at, updated_at
  FROM workspace
 WHERE id IN {each:ids} AND node = :node AND status = 'active' AND worktree <> 'wanted' ORDER BY id;

-- name: branches_before
-- Branches of live workspaces in which tasks were finished that a task depends on.
SELECT DISTINCT workspace.branch
  FROM task_dependency JOIN task ON task.id = task_dependency.depends_on_id
  JOIN workspace ON workspace.id = task.workspace_id
 WHERE task_dependency.task_id = :id AND workspace.status = 'active'
 LIMIT 20;
