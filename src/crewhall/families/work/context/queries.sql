-- name: task_in_hand
-- A task that an agent holds: the one it is at, if it still holds it.
SELECT id FROM task WHERE claimed_by = :agent_id
 ORDER BY CASE WHEN id = (SELECT current_task_id FROM agent WHERE agent.id = :agent_id) THEN 0 ELSE 1 END,
          claimed_at, id LIMIT 1;

-- name: context_checkpoints
-- Checkpoints of a task before a number, the newest first.
SELECT id, task_id, sequence, type, summary, detail, files_changed, agent_id, created_at
  FROM checkpoint WHERE task_id = :task_id AND sequence < :before ORDER BY sequence DESC LIMIT :limit;

-- name: context_prior
-- Finished tasks of a workflow but one, the latest first, before a place in that order; of long texts the beginning.
SELECT id, name, status, waits_for, finished_at, substr(outcome, 1, :letters) AS outcome,
       length(outcome) AS outcome_letters, substr(description, 1, :letters) AS description,
       length(description) AS description_letters, outcome_detail
  FROM task
 WHERE workflow_id = :workflow_id AND status IN ('completed', 'skipped') AND id <> :id
   AND (finished_at < :before OR (finished_at = :before AND id < :before_id))
 ORDER BY finished_at DESC, id DESC LIMIT :limit;

-- name: context_dependencies
-- What a task depends on, unfinished ones first, then the latest finished; of long outcomes the beginning.
SELECT task.id, task.name, task.status, task.waits_for,
       substr(CASE WHEN task.status = 'failed' THEN task.error ELSE task.outcome END, 1, :letters) AS outcome,
       length(CASE WHEN task.status = 'failed' THEN task.error ELSE task.outcome END) AS outcome_letters
  FROM task_dependency JOIN task ON task.id = task_dependency.depends_on_id
 WHERE task_dependency.task_id = :id
 ORDER BY CASE WHEN task.status IN ('completed', 'skipped') THEN 1 ELSE 0 END, COALESCE(task.finished_at, 0) DESC,
          task.place LIMIT :limit;

-- name: context_siblings
-- Tasks that may run side by side with a task: under way, of its sequence, of its parallel group; some of each.
SELECT id, name, status, waits_for, claimed_by, place, substr(COALESCE(error, outcome), 1, :letters) AS told,
       (SELECT substr(summary, 1, :letters) FROM checkpoint
         WHERE task_id = beside.id AND checkpoint.sequence = beside.checkpoint_count) AS noted
  FROM task AS beside
 WHERE id IN (
    SELECT id FROM (SELECT id FROM task
                     WHERE workflow_id = :workflow_id AND (claimed_by IS NOT NULL OR status IN ('planning', 'in_progress'))
                       AND (sequence = :sequence OR parallel_group = :parallel_group)
                     ORDER BY place LIMIT :limit) AS running
     UNION
    SELECT id FROM (SELECT id FROM task WHERE workflow_id = :workflow_id AND sequence = :sequence
                     ORDER BY place LIMIT :limit) AS abreast
     UNION
    SELECT id FROM (SELECT id FROM task WHERE workflow_id = :workflow_id AND parallel_group = :parallel_group
                     ORDER BY id LIMIT :limit) AS grouped)
   AND id <> :id
 ORDER BY CASE WHEN claimed_by IS NOT NULL OR status IN ('planning', 'in_progress', 'paused') THEN 0
               WHEN status IN ('completed', 'skipped') THEN 2 ELSE 1 END, place LIMIT :limit;

-- name: context_siblings_count
-- How many tasks of the same sequence or the same parallel group there are beside a task.
SELECT (SELECT count(*) FROM task WHERE workflow_id = :workflow_id AND sequence = :sequence) +
       (SELECT count(*) FROM task WHERE workflow_id = :workflow_id AND parallel_group = :parallel_group
                                    AND sequence <> :sequence) - 1 AS total;

-- name: context_running
-- Tasks of a workflow that are held or under way, the latest changed first, with what was noted last.
SELECT id, name, status, waits_for, claimed_by,
       (SELECT substr(summary, 1, :letters) FROM checkpoint
         WHERE task_id = task.id AND checkpoint.sequence = task.checkpoint_count) AS noted
  FROM task
 WHERE workflow_id = :workflow_id AND (claimed_by IS NOT NULL OR status IN ('planning', 'in_progress'))
 ORDER BY updated_at DESC, id LIMIT :limit;

-- name: context_failed
-- Unfinished tasks of a workflow that failed, and why.
SELECT id, name, substr(error, 1, :letters) AS error
  FROM task
 WHERE workflow_id = :workflow_id AND status = 'failed' AND status NOT IN ('completed', 'skipped')
 ORDER BY sequence, place LIMIT :limit;

-- name: tasks_running_count
-- How many tasks of a workflow are held or under way.
SELECT count(*) AS total
  FROM task WHERE workflow_id = :workflow_id AND (claimed_by IS NOT NULL OR status IN ('planning', 'in_progress'));
