-- name: area_insert
-- A repository gets a row to lock, if it has none.
INSERT INTO file_area (id, repository_path) VALUES (:id, :repository_path) ON CONFLICT (repository_path) DO NOTHING;

-- name: area_lock
-- The row of a repository, held until commit: whoever reserves a path in it holds it, before any agent's.
SELECT id FROM file_area WHERE repository_path = :repository_path {for_update};

-- name: task_repository
-- The repository of the workflow that a task belongs to.
SELECT workflow.repository_path
  FROM task JOIN workflow ON workflow.id = task.workflow_id
 WHERE task.id = :id;

-- name: reservations_of_others
-- What other agents have reserved in a repository, or of that only what they share with no one.
SELECT file_reservation.path, file_reservation.agent_id, agent.name AS agent_name, file_reservation.exclusive,
       file_reservation.reason, file_reservation.expires_at
  FROM file_reservation JOIN agent ON agent.id = file_reservation.agent_id
 WHERE area_id = :area_id AND agent_id <> :agent_id AND expires_at > :now AND (:exclusive = 1 OR exclusive = 1)
 ORDER BY file_reservation.path, file_reservation.agent_id;

-- name: reservations_elsewhere_count
-- How many paths an agent has reserved, but for some in a repository.
SELECT count(*) AS total
  FROM file_reservation
 WHERE agent_id = :agent_id AND expires_at > :now AND NOT (area_id = :area_id AND path IN {each:paths});

-- name: reservation_put
-- Reserve a path; one that the agent has reserved already gets a new end, and a new reason and task if they are given.
INSERT INTO file_reservation (area_id, agent_id, path, exclusive, reason, task_id, reserved_at, expires_at)
VALUES (:area_id, :agent_id, :path, :exclusive, :reason, :task_id, :now, :until)
ON CONFLICT (area_id, agent_id, path) DO UPDATE
   SET exclusive = excluded.exclusive, expires_at = excluded.expires_at,
       reason = COALESCE(excluded.reason, file_reservation.reason),
       task_id = COALESCE(excluded.task_id, file_reservation.task_id);

-- name: reservations_release
-- Forget what an agent has reserved, perhaps some paths or in one repository only.
DELETE FROM file_reservation
 WHERE agent_id = :agent_id
   AND (CAST(:repository_path AS text) IS NULL
        OR area_id IN (SELECT id FROM file_area WHERE repository_path = :repository_path))
   AND (CAST(:paths AS text) IS NULL OR path IN {each:paths})
RETURNING path, expires_at;

-- name: reservations_drop
-- Forget all that an agent has reserved: it is gone.
DELETE FROM file_reservation WHERE agent_id = :agent_id;

-- name: agents_with_dead_reservations
-- Agents of whom reservations are over.
SELECT DISTINCT agent_id FROM file_reservation WHERE expires_at <= :now ORDER BY agent_id LIMIT :limit;

-- name: reservations_dead_drop
-- Forget reservations of an agent that are over.
DELETE FROM file_reservation WHERE agent_id = :agent_id AND expires_at <= :now;

-- name: reservations
-- A page of what is reserved, perhaps in one repository or by one agent.
SELECT file_reservation.path, agent_id, agent.name AS agent_name, exclusive, reason, task_id,
       file_area.repository_path, expires_at
  FROM file_reservation
  JOIN file_area ON file_area.id = file_reservation.area_id
  JOIN agent ON agent.id = file_reservation.agent_id
 WHERE expires_at > :now
   AND (CAST(:repository_path AS text) IS NULL OR file_area.repository_path = :repository_path)
   AND (CAST(:agent_id AS text) IS NULL OR agent_id = :agent_id)
 ORDER BY file_area.repository_path, file_reservation.path, agent_id LIMIT :limit OFFSET :offset;

-- name: reservations_count
-- How much is reserved, perhaps in one repository or by one agent.
SELECT count(*) AS total
  FROM file_reservation JOIN file_area ON file_area.id = file_reservation.area_id
 WHERE expires_at > :now
   AND (CAST(:repository_path AS text) IS NULL OR file_area.repository_path = :repository_path)
   AND (CAST(:agent_id AS text) IS NULL OR agent_id = :agent_id);
