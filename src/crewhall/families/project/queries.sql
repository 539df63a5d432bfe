-- name: worktree_insert
-- A worktree is open, unless it was before.
INSERT INTO worktree (id, node, path, workspace_id, opened_at, updated_at)
VALUES (:id, :node, :path, :workspace_id, :now, :now)
ON CONFLICT (node, path) DO NOTHING;

-- name: worktree_get
-- An open worktree.
SELECT id, node, path, workspace_id, port, is_served, last_error, opened_at, updated_at
  FROM worktree WHERE id = :id;

-- name: worktree_at
-- The open worktree whose top is at a path of a node.
SELECT id, node, path, workspace_id, port, is_served, last_error, opened_at, updated_at
  FROM worktree WHERE node = :node AND path = :path;

-- name: worktree_above
-- The innermost open worktree of a node that a directory is in.
SELECT id, node, path, workspace_id, port, is_served, last_error, opened_at, updated_at
  FROM worktree
 WHERE node = :node
   AND (path = :directory OR substr(CAST(:directory AS text), 1, length(path) + 1) = path || '/')
 ORDER BY length(path) DESC LIMIT 1;

-- name: worktrees_open
-- The open worktrees of a node, in the order in which they were opened.
SELECT id, node, path, workspace_id, port, is_served, last_error, opened_at, updated_at
  FROM worktree WHERE node = :node ORDER BY opened_at, id;

-- name: worktrees
-- A page of all open worktrees, in the order in which they were opened.
SELECT id, node, path, workspace_id, port, is_served, last_error, opened_at, updated_at
  FROM worktree ORDER BY opened_at, id LIMIT :limit OFFSET :offset;

-- name: worktrees_count
-- How many worktrees are open.
SELECT count(*) AS total FROM worktree;

-- name: worktree_served
-- A worktree is served on a port, or why it is not.
UPDATE worktree SET port = :port, is_served = :is_served, last_error = :last_error, updated_at = :now WHERE id = :id;

-- name: worktree_delete
-- A worktree is closed.
DELETE FROM worktree WHERE id = :id;

-- name: worktrees_of_workspace
-- The open worktree of a workspace.
SELECT id, port FROM worktree WHERE workspace_id = :workspace_id;
