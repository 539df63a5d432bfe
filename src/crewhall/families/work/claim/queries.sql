-- name: task_held
-- A task that an agent holds: the one it is at, if it still holds it.
SELECT id FROM task WHERE claimed_by = :agent_id
 ORDER BY CASE WHEN id = CAST(:current AS text) THEN 0 ELSE 1 END, claimed_at, id LIMIT 1;

-- name: task_held_beside
-- A task that an agent holds beside another one: the one it is at, if it holds that.
SELECT id FROM task WHERE claimed_by = :agent_id AND id <> :task_id
 ORDER BY CASE WHEN id = (SELECT current_task_id FROM agent WHERE agent.id = :agent_id) THEN 0 ELSE 1 END,
          claimed_at, id LIMIT 1;

-- name: tasks_running_beside
-- How many tasks of a task's workflow are held or under way.
SELECT count(*) AS total
  FROM task
 WHERE workflow_id = (SELECT own.workflow_id FROM task AS own WHERE own.id = :id)
   AND (claimed_by IS NOT NULL OR status IN ('planning', 'in_progress'));

-- name: task_held_in
-- A task of a workflow that an agent holds, the one that it has held the longest.
SELECT id FROM task WHERE workflow_id = :workflow_id AND claimed_by = :agent_id ORDER BY claimed_at, id LIMIT 1;

-- name: task_back
-- A task goes back to pending.
UPDATE task SET status = 'pending', updated_at = :now WHERE id = :id;

-- name: task_hold
-- An agent holds a task that no one holds.
UPDATE task SET claimed_by = :agent_id, claim_epoch = :epoch, claimed_at = :now, status = :status, updated_at = :now
 WHERE id = :id AND claimed_by IS NULL;

-- name: task_free
-- No one holds the task any more.
UPDATE task SET claimed_by = NULL, claimed_at = NULL, updated_at = :now WHERE id = :id;

-- name: claim_insert
-- A claim begins.
INSERT INTO claim (task_id, epoch, agent_id, claimed_at) VALUES (:task_id, :epoch, :agent_id, :now);

-- name: claim_end
-- A claim is over.
UPDATE claim SET ended_at = :now, ended_how = :how, status_then = :status WHERE task_id = :task_id AND epoch = :epoch;

-- name: claim_renew
-- A lapsed claim goes on.
UPDATE claim SET ended_at = NULL, ended_how = NULL, status_then = NULL WHERE task_id = :task_id AND epoch = :epoch;

-- name: claim_supersede
-- A lapsed claim cannot go on: the task was changed meanwhile.
UPDATE claim SET ended_how = 'superseded' WHERE task_id = :task_id AND epoch = :epoch AND ended_how = 'expired';

-- name: claim_of
-- An agent's latest claim on a task.
SELECT epoch, agent_id, ended_how, status_then
  FROM claim WHERE task_id = :task_id AND agent_id = :agent_id ORDER BY epoch DESC LIMIT 1;

-- name: claim_at
-- The claim of a task with this epoch.
SELECT epoch, agent_id, ended_how, status_then FROM claim WHERE task_id = :task_id AND epoch = :epoch;

-- name: tasks_of_agent
-- The tasks that an agent holds, with their workflows, in the order to lock them.
SELECT id, workflow_id FROM task WHERE claimed_by = :agent_id ORDER BY workflow_id, id;
