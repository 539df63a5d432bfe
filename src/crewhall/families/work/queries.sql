-- name: repository_get
-- The repository at a path.
SELECT id, path, name, created_at, updated_at FROM repository WHERE path = :path;

-- name: repository_put
-- Keep a repository; one that is there already keeps its id, and its name unless a new one is given.
INSERT INTO repository (id, path, name, created_at, updated_at)
VALUES (:id, :path, COALESCE(CAST(:name AS text), CAST(:default_name AS text)), :now, :now)
ON CONFLICT (path) DO UPDATE SET name = COALESCE(CAST(:name AS text), repository.name), updated_at = :now
RETURNING id, name;

-- name: repositories
-- A page of repositories, the longest known first.
SELECT id, path, name, created_at, updated_at FROM repository ORDER BY created_at, id LIMIT :limit OFFSET :offset;

-- name: repositories_count
-- How many repositories there are.
SELECT count(*) AS total FROM repository;

-- name: agent_get
-- An agent.
SELECT id, name, runtime, role, type, status, capabilities, workspace_path, current_task_id, metadata,
       last_heartbeat_at, created_at, updated_at
  FROM agent WHERE id = :id;

-- name: agent_lock
-- An agent's changing parts, held until commit.
SELECT id, status, current_task_id FROM agent WHERE id = :id {for_update};

-- name: agent_insert
-- A new agent.
INSERT INTO agent (id, name, runtime, role, type, status, capabilities, workspace_path, metadata, created_at, updated_at)
VALUES (:id, :name, :runtime, :role, :type, :status, :capabilities, :workspace_path, :metadata, :now, :now);

-- name: agent_introduce
-- An agent that was known by its token says who it is.
UPDATE agent
   SET name = :name, runtime = :runtime, status = 'online', updated_at = :now,
       capabilities = COALESCE(CAST(:capabilities AS text), capabilities),
       workspace_path = COALESCE(CAST(:workspace_path AS text), workspace_path),
       metadata = COALESCE(CAST(:metadata AS text), metadata)
 WHERE id = :id
RETURNING id, name, status, role;

-- name: agent_beat
-- An agent is alive.
UPDATE agent
   SET last_heartbeat_at = :now, status = :status, current_task_id = COALESCE(CAST(:task AS text), current_task_id),
       updated_at = :now
 WHERE id = :id;

-- name: agent_set
-- An agent's new status, task, place and cargo.
UPDATE agent
   SET status = :status, current_task_id = :task, updated_at = :now,
       workspace_path = COALESCE(CAST(:workspace_path AS text), workspace_path),
       metadata = COALESCE(CAST(:metadata AS text), metadata)
 WHERE id = :id;

-- name: agents
-- A page of agents, the longest known first.
SELECT id, name, runtime, role, type, status, capabilities, workspace_path, current_task_id, metadata,
       last_heartbeat_at, created_at, updated_at
  FROM agent
 WHERE (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
   AND (CAST(:role AS text) IS NULL OR role = :role)
   AND (CAST(:runtime AS text) IS NULL OR runtime = :runtime)
 ORDER BY created_at, id LIMIT :limit OFFSET :offset;

-- name: agents_count
-- How many agents there are.
SELECT count(*) AS total
  FROM agent
 WHERE (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
   AND (CAST(:role AS text) IS NULL OR role = :role)
   AND (CAST(:runtime AS text) IS NULL OR runtime = :runtime);

-- name: agent_named
-- The agent that has had this name the longest.
SELECT id FROM agent WHERE name = :name ORDER BY created_at, id LIMIT 1;

-- name: agent_ids
-- Ids of the agents whose id or name begins so, the newest first, and how many there are in all.
SELECT id AS value, count(*) OVER () AS total
  FROM agent
 WHERE substr(id, 1, length(CAST(:prefix AS text))) = :prefix OR substr(name, 1, length(:prefix)) = :prefix
 ORDER BY created_at DESC, id LIMIT :limit;

-- name: agents_live_count
-- How many agents are in the hall now.
SELECT count(*) AS total FROM agent WHERE status <> 'offline';

-- name: calls
-- The latest calls, newest first, perhaps of one tool or actor, or the failed ones alone.
SELECT id, at, tool, actor, edge, success, error, duration_ms
  FROM call_log
 WHERE (CAST(:tool AS text) IS NULL OR tool = :tool)
   AND (CAST(:actor AS text) IS NULL OR actor = :actor)
   AND (CAST(:success AS integer) IS NULL OR success = :success)
 ORDER BY at DESC, id DESC LIMIT :limit;
