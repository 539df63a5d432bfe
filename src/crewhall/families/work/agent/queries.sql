-- name: agent_get
-- An agent.
SELECT id, name, runtime, role, type, status, capabilities, workspace_path, current_task_id, metadata,
       last_heartbeat_at, lease_until AS lease_expires_at, disconnected_since, archived_at, created_at, updated_at
  FROM agent WHERE id = :id;

-- name: agent_lock
-- An agent's changing parts, held until commit.
SELECT id, name, status, capabilities, current_task_id, last_heartbeat_at, lease_until, has_left, archived_at
  FROM agent WHERE id = :id {for_update};

-- name: agent_insert
-- A new agent.
INSERT INTO agent (id, name, runtime, role, type, status, capabilities, workspace_path, metadata, lease_until,
                   created_at, updated_at)
VALUES (:id, :name, :runtime, :role, :type, :status, :capabilities, :workspace_path, :metadata, :until, :now, :now);

-- name: agent_introduce
-- An agent that was known by its token says who it is.
UPDATE agent
   SET runtime = :runtime,
       status = CASE WHEN EXISTS (SELECT 1 FROM task WHERE claimed_by = agent.id) THEN 'busy' ELSE 'online' END,
       last_heartbeat_at = NULL, lease_until = :until, disconnected_since = NULL,
       has_left = 0, updated_at = :now,
       capabilities = COALESCE(CAST(:capabilities AS text), capabilities),
       workspace_path = COALESCE(CAST(:workspace_path AS text), workspace_path),
       metadata = COALESCE(CAST(:metadata AS text), metadata)
 WHERE id = :id
RETURNING id, name, status, role;

-- name: agent_beat
-- An agent is alive.
UPDATE agent
   SET last_heartbeat_at = :now, lease_until = :until, disconnected_since = NULL, has_left = 0, status = :status,
       current_task_id = COALESCE(CAST(:task AS text), current_task_id), updated_at = :now
 WHERE id = :id;

-- name: agent_set
-- An agent's new status, task, place and cargo; it is here, or has left.
UPDATE agent
   SET status = :status, current_task_id = :task, lease_until = :until, has_left = :has_left, updated_at = :now,
       workspace_path = COALESCE(CAST(:workspace_path AS text), workspace_path),
       metadata = COALESCE(CAST(:metadata AS text), metadata)
 WHERE id = :id;

-- name: agents
-- A page of agents, the longest known first.
SELECT id, name, runtime, role, type, status, capabilities, workspace_path, current_task_id, metadata,
       last_heartbeat_at, lease_until AS lease_expires_at, disconnected_since, archived_at, created_at, updated_at
  FROM agent
 WHERE (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
   AND (CAST(:role AS text) IS NULL OR role = :role)
   AND (CAST(:runtime AS text) IS NULL OR runtime = :runtime)
   AND (:include_archived = 1 OR archived_at IS NULL)
 ORDER BY created_at, id LIMIT :limit OFFSET :offset;

-- name: agents_count
-- How many agents there are.
SELECT count(*) AS total
  FROM agent
 WHERE (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
   AND (CAST(:role AS text) IS NULL OR role = :role)
   AND (CAST(:runtime AS text) IS NULL OR runtime = :runtime)
   AND (:include_archived = 1 OR archived_at IS NULL);

-- name: agent_named
-- The agent that has had this name the longest, of those that are not put away.
SELECT id FROM agent WHERE name = :name AND archived_at IS NULL ORDER BY created_at, id LIMIT 1;

-- name: agents_named
-- Agents with one of these names that no other may take: they are here, or the name is reserved for them by a token or
-- an instance.
SELECT id, name, created_at, is_reserved
  FROM (SELECT id, name, created_at, status,
               CASE WHEN EXISTS (SELECT 1 FROM token
                                  WHERE token.agent_id = agent.id AND token.kind = 'agent' AND token.revoked_at IS NULL
                                    AND (token.expires_at IS NULL OR token.expires_at > :now))
                      OR EXISTS (SELECT 1 FROM instance
                                  WHERE instance.agent_id = agent.id
                                    AND instance.status NOT IN ('abandoned', 'pr_merged'))
                    THEN 1 ELSE 0 END AS is_reserved
          FROM agent WHERE name IN {each:names} AND archived_at IS NULL) AS named
 WHERE is_reserved = 1 OR status <> 'offline';

-- name: names_doubled
-- Agents that are here under a name that another has who is here or has a token, the newest first.
SELECT id, name, status, last_heartbeat_at, archived_at
  FROM agent
 WHERE status <> 'offline'
   AND EXISTS (SELECT 1 FROM agent AS other
                WHERE other.name = agent.name AND other.id <> agent.id AND other.archived_at IS NULL
                  AND (other.status <> 'offline'
                       OR EXISTS (SELECT 1 FROM token
                                   WHERE token.agent_id = other.id AND token.kind = 'agent'
                                     AND token.revoked_at IS NULL)))
 ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: agent_rename
-- An agent has another name.
UPDATE agent SET name = :name, updated_at = :now WHERE id = :id;

-- name: agent_archived_set
-- An agent is put away, or is back in the lists.
UPDATE agent SET archived_at = :at, updated_at = :now WHERE id = :id;

-- name: agent_holds
-- Something that an agent holds: a task, or paths that it has reserved.
SELECT 'task' AS kind, id AS what FROM task WHERE claimed_by = :agent_id
 UNION ALL
SELECT 'path' AS kind, path AS what FROM file_reservation WHERE agent_id = :agent_id AND expires_at > :now
 LIMIT 1;

-- name: instance_open_of
-- The instance that an agent is, while it is not over.
SELECT id, status FROM instance WHERE agent_id = :agent_id AND status NOT IN ('abandoned', 'pr_merged') LIMIT 1;

-- name: instance_of
-- The instance that an agent is.
SELECT id FROM instance WHERE agent_id = :agent_id LIMIT 1;

-- name: agent_ids
-- Ids of the agents whose id or name begins so, the newest first, and how many there are in all.
SELECT id AS value, count(*) OVER () AS total
  FROM agent
 WHERE (substr(id, 1, length(CAST(:prefix AS text))) = :prefix OR substr(name, 1, length(:prefix)) = :prefix)
   AND archived_at IS NULL
 ORDER BY created_at DESC, id LIMIT :limit;

-- name: agents_live_count
-- How many agents are in the hall now.
SELECT count(*) AS total FROM agent WHERE status IN ('online', 'busy');

-- name: agent_busy
-- An agent is at a task.
UPDATE agent
   SET status = 'busy', current_task_id = :task, lease_until = :until, disconnected_since = NULL, has_left = 0,
       updated_at = :now
 WHERE id = :id;

-- name: agent_turn
-- An agent turns to another task, or to none.
UPDATE agent SET status = :status, current_task_id = :task, updated_at = :now WHERE id = :id;

-- name: agents_at_bridges
-- Agents whose bridge is connected, and who are here.
SELECT DISTINCT agent.id
  FROM bridge_agent JOIN agent ON agent.id = bridge_agent.agent_id
 WHERE bridge_agent.bridge IN {each:bridges} AND agent.status <> 'offline' AND agent.has_left = 0;

-- name: agents_without_bridge
-- Agents for whom a bridge spoke that has ended, and no other does; those of instances are known by their own process.
SELECT id, status
  FROM agent
 WHERE id IN {each:ids} AND has_left = 0
   AND NOT EXISTS (SELECT 1 FROM bridge_agent WHERE bridge_agent.agent_id = agent.id)
   AND NOT EXISTS (SELECT 1 FROM instance WHERE instance.agent_id = agent.id AND instance.ended_how IS NULL)
 ORDER BY id {for_update};

-- name: agent_disconnected
-- An agent's last process is gone: it is offline, and what it holds is free when the grace is over.
UPDATE agent
   SET status = 'offline', disconnected_since = :now, lease_until = :until, updated_at = :now
 WHERE id = :id AND has_left = 0;

-- name: agents_lock
-- Agents that have not left and whose instance, if they are one, has not ended; locked in the order of their ids.
SELECT id, name, status, last_heartbeat_at, disconnected_since, archived_at,
       CASE WHEN EXISTS (SELECT 1 FROM task WHERE task.claimed_by = agent.id) THEN 1 ELSE 0 END AS holds_tasks
  FROM agent
 WHERE id IN {each:ids} AND has_left = 0
   AND NOT EXISTS (SELECT 1 FROM instance WHERE instance.agent_id = agent.id AND instance.ended_how IS NOT NULL)
 ORDER BY id {for_update};

-- name: agent_here
-- An agent is here until a time at least.
UPDATE agent
   SET lease_until = CASE WHEN lease_until > :until THEN lease_until ELSE :until END, disconnected_since = NULL,
       status = :status
 WHERE id = :id;

-- name: agents_lapsed
-- Agents whose lease is over, and over for a whole lease since the asking hub is awake, or who are gone and hold a task:
-- of those whose process has ended for the whole grace.
SELECT id, name, lease_until, disconnected_since
  FROM agent
 WHERE status <> 'offline' AND lease_until < :now
   AND CAST(:awake AS bigint) + CASE WHEN last_heartbeat_at IS NULL THEN CAST(:lease AS bigint) ELSE :beats END < :now
 UNION
SELECT agent.id, agent.name, agent.lease_until, agent.disconnected_since
  FROM task JOIN agent ON agent.id = task.claimed_by
 WHERE task.claimed_by IS NOT NULL AND agent.status = 'offline' AND agent.lease_until < :now
   AND (agent.disconnected_since IS NULL OR CAST(:awake AS bigint) + CAST(:grace AS bigint) < :now)
 ORDER BY lease_until LIMIT :limit;
