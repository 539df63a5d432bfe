-- name: checkpoint_count
-- A task has so many checkpoints.
UPDATE task SET checkpoint_count = :sequence, updated_at = :now WHERE id = :id;

-- name: checkpoint_insert
-- A checkpoint.
INSERT INTO checkpoint (id, task_id, sequence, type, summary, detail, files_changed, agent_id, created_at)
VALUES (:id, :task_id, :sequence, :type, :summary, :detail, :files_changed, :agent_id, :now);

-- name: checkpoint_get
-- A checkpoint.
SELECT id, task_id, sequence, type, summary, detail, files_changed, agent_id, created_at
  FROM checkpoint WHERE id = :id;

-- name: checkpoints
-- Checkpoints of a task after a number, oldest first, perhaps of some types.
SELECT id, task_id, sequence, type, summary, detail, files_changed, agent_id, created_at
  FROM checkpoint
 WHERE task_id = :task_id AND sequence > :after
   AND (CAST(:types AS text) IS NULL OR type IN {each:types})
 ORDER BY sequence LIMIT :limit;

-- name: checkpoints_count
-- How many checkpoints of some types a task has after a number.
SELECT count(*) AS total
  FROM checkpoint
 WHERE task_id = :task_id AND sequence > :after
   AND (CAST(:types AS text) IS NULL OR type IN {each:types});

-- name: checkpoints_newest
-- The newest checkpoints of a task, the newest first.
SELECT id, task_id, sequence, type, summary, detail, files_changed, agent_id, created_at
  FROM checkpoint WHERE task_id = :task_id ORDER BY sequence DESC LIMIT :limit;
