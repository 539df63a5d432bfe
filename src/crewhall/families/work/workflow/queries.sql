-- name: workflow_insert
-- A new workflow, without a plan.
INSERT INTO workflow (id, name, status, source_type, source_ref, source_content, repository_path, max_parallel_tasks,
                      auto_create_workspaces, reviewer, created_at, updated_at)
VALUES (:id, :name, 'planning', :source_type, :source_ref, :source_content, :repository_path, :max_parallel_tasks,
        :auto_create_workspaces, :reviewer, :now, :now);

-- name: workflow_get
-- A workflow.
SELECT id, name, status, status_reason, halted_by, source_type, source_ref, source_content, repository_path, max_parallel_tasks,
       auto_create_workspaces, reviewer, plan, task_count, finished_count, completed_count, started_at, finished_at,
       archived_at, created_at, updated_at
  FROM workflow WHERE id = :id;

-- name: workflow_lock
-- A workflow's changing parts, held until commit: whoever changes one of its tasks holds it.
SELECT id, name, status, status_reason, halted_by, hall_pause, CASE WHEN plan IS NULL THEN 0 ELSE 1 END AS has_plan,
       max_parallel_tasks, task_count, finished_count, completed_count, started_at, repository_path,
       auto_create_workspaces, archived_at
  FROM workflow WHERE id = :id {for_update};

-- name: workflow_lock_of_task
-- The same of the workflow that a task belongs to.
SELECT id, name, status, status_reason, halted_by, hall_pause, CASE WHEN plan IS NULL THEN 0 ELSE 1 END AS has_plan,
       max_parallel_tasks, task_count, finished_count, completed_count, started_at, repository_path,
       auto_create_workspaces, archived_at
  FROM workflow WHERE id = (SELECT workflow_id FROM task WHERE task.id = :task_id) {for_update};

-- name: workflow_share_of_task
-- The same, held against changes of the workflow, and shared by those who change different tasks of it.
SELECT id, name, status, status_reason, halted_by, hall_pause, CASE WHEN plan IS NULL THEN 0 ELSE 1 END AS has_plan,
       max_parallel_tasks, task_count, finished_count, completed_count, started_at, repository_path,
       auto_create_workspaces, archived_at
  FROM workflow WHERE id = (SELECT workflow_id FROM task WHERE task.id = :task_id) {for_share};

-- name: workflows_share_of_agent
-- The same of the workflows in which an agent holds a task, and of that in which it held one last.
SELECT id, name, status, status_reason, halted_by, hall_pause, CASE WHEN plan IS NULL THEN 0 ELSE 1 END AS has_plan,
       max_parallel_tasks, task_count, finished_count, completed_count, started_at, repository_path,
       auto_create_workspaces
  FROM workflow
 WHERE id IN (SELECT workflow_id FROM task WHERE claimed_by = :agent_id)
    OR id = (SELECT task.workflow_id FROM claim JOIN task ON task.id = claim.task_id
              WHERE claim.agent_id = :agent_id ORDER BY claim.claimed_at DESC, claim.task_id LIMIT 1)
 ORDER BY id {for_share};

-- name: workflow_state
-- A workflow's changing parts, to read.
SELECT id, status, max_parallel_tasks, task_count, finished_count, completed_count, started_at, repository_path,
       auto_create_workspaces
  FROM workflow WHERE id = :id;

-- name: workflows
-- A page of workflows, the newest first.
SELECT id, name, status, status_reason, halted_by, repository_path, max_parallel_tasks, task_count, finished_count,
       archived_at, created_at, updated_at
  FROM workflow
 WHERE (CAST(:repository_path AS text) IS NULL OR repository_path = :repository_path)
   AND (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
   AND (CAST(:halted_by AS text) IS NULL OR (status = 'paused' AND halted_by = :halted_by))
   AND (:include_archived = 1 OR archived_at IS NULL)
 ORDER BY created_at DESC, id DESC LIMIT :limit OFFSET :offset;

-- name: workflows_count
-- How many workflows there are.
SELECT count(*) AS total
  FROM workflow
 WHERE (CAST(:repository_path AS text) IS NULL OR repository_path = :repository_path)
   AND (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
   AND (CAST(:halted_by AS text) IS NULL OR (status = 'paused' AND halted_by = :halted_by))
   AND (:include_archived = 1 OR archived_at IS NULL);

-- name: workflow_plan_set
-- A workflow gets its plan and is ready.
UPDATE workflow SET plan = :plan, status = 'ready', updated_at = :now WHERE id = :id;

-- name: workflow_status_set
-- A workflow's new status, why, and who paused it.
UPDATE workflow
   SET status = :status, status_reason = :reason, halted_by = :halted_by, hall_pause = NULL, paused_from = NULL,
       updated_at = :now,
       started_at = CASE WHEN :status = 'in_progress' THEN COALESCE(started_at, :now) ELSE started_at END,
       finished_at = CASE WHEN :status IN ('completed', 'abandoned') THEN :now ELSE finished_at END
 WHERE id = :id;

-- name: workflow_archived_set
-- A workflow is put away, or is back in the lists.
UPDATE workflow SET archived_at = :at, updated_at = :now WHERE id = :id;

-- name: holders_notify
-- Agents that hold tasks of a workflow, all except one, are told what has become of it.
INSERT INTO notice (id, agent_id, kind, subject, text, created_at)
SELECT CAST(:prefix AS text) || '.' || held.agent_id, held.agent_id, CAST(:kind AS text), CAST(:workflow AS text),
       CAST(:text AS text), CAST(:now AS bigint)
  FROM (SELECT DISTINCT claimed_by AS agent_id FROM task WHERE claimed_by IS NOT NULL AND workflow_id = :workflow) AS held
 WHERE held.agent_id <> CAST(:but AS text);

-- name: workflow_parallelism_set
-- How a workflow runs side by side.
UPDATE workflow
   SET max_parallel_tasks = :max_parallel_tasks, updated_at = :now,
       auto_create_workspaces = COALESCE(CAST(:auto_create_workspaces AS integer), auto_create_workspaces)
 WHERE id = :id;

-- name: workflow_count
-- So many more tasks, finished ones and completed ones.
UPDATE workflow
   SET task_count = task_count + :tasks, finished_count = finished_count + :finished,
       completed_count = completed_count + :completed, updated_at = :now
 WHERE id = :id;

-- name: workflow_steps
-- The tasks of a workflow as its graph needs them.
SELECT id, name, sequence, place, status, estimated_complexity, dependency_count, waits_for, tail, tail_next
  FROM task WHERE workflow_id = :workflow_id ORDER BY place;

-- name: workflow_edges
-- What depends on what in a workflow.
SELECT task_dependency.task_id, task_dependency.depends_on_id
  FROM task_dependency JOIN task ON task.id = task_dependency.task_id
 WHERE task.workflow_id = :workflow_id;

-- name: workflow_claimed
-- The tasks of a workflow that agents hold.
SELECT id FROM task WHERE workflow_id = :workflow_id AND claimed_by IS NOT NULL ORDER BY id;

-- name: workflow_held
-- A task of a workflow that another agent holds.
SELECT id, claimed_by FROM task
 WHERE workflow_id = :id AND claimed_by IS NOT NULL AND claimed_by <> :agent_id ORDER BY id LIMIT 1;

-- name: tasks_free
-- Tasks of a workflow that are ready and held by no one, in the order to begin them, after a place in that order.
SELECT id, name, description, status, waits_for, sequence, tail, place, parallel_group, files_likely_affected
  FROM task
 WHERE workflow_id = :workflow_id AND waits_for = 0 AND claimed_by IS NULL AND status IN ('pending', 'failed')
   AND (:include_failed = 1 OR status = 'pending')
   AND (sequence > :sequence OR (sequence = :sequence AND (tail < :tail OR (tail = :tail AND place > :place))))
 ORDER BY sequence, tail DESC, place LIMIT :limit;

-- name: tasks_considered
-- The first tasks of a workflow that are ready and held by no one, and the files they are likely to touch.
SELECT id, files_likely_affected, workspace_id
  FROM task
 WHERE workflow_id = :workflow_id AND waits_for = 0 AND claimed_by IS NULL AND status IN ('pending', 'failed')
   AND (:include_failed = 1 OR status = 'pending')
 ORDER BY sequence, tail DESC, place LIMIT :limit;

-- name: tasks_free_count
-- How many tasks of a workflow are ready and held by no one.
SELECT count(*) AS total
  FROM task
 WHERE workflow_id = :workflow_id AND waits_for = 0 AND claimed_by IS NULL AND status IN ('pending', 'failed')
   AND (:include_failed = 1 OR status = 'pending');

-- name: tasks_running
-- Tasks of a workflow that are held or under way, and the files they are likely to touch.
SELECT id, files_likely_affected, workspace_id
  FROM task
 WHERE workflow_id = :workflow_id AND (claimed_by IS NOT NULL OR status IN ('planning', 'in_progress'))
 ORDER BY id LIMIT 1000;

-- name: group_members
-- Some tasks of a parallel group.
SELECT id FROM task WHERE workflow_id = :workflow_id AND parallel_group = :parallel_group
 ORDER BY id LIMIT 11;

-- name: tally_add
-- So many more tasks of a parallel group (empty: of none) and status; fewer when it is below nought. The sum of all slots
-- counts, so that two who change it at once don't wait for each other.
INSERT INTO task_tally (workflow_id, parallel_group, status, slot, tasks)
VALUES (:workflow_id, :parallel_group, :status, {slot}, :tasks)
ON CONFLICT (workflow_id, parallel_group, status, slot) DO UPDATE SET tasks = task_tally.tasks + excluded.tasks;

-- name: tally
-- The tasks of a workflow counted by parallel group and stored status.
SELECT parallel_group, status, sum(tasks) AS tasks
  FROM task_tally WHERE workflow_id = :workflow_id GROUP BY parallel_group, status HAVING sum(tasks) > 0;

-- name: tasks_blocked_count
-- How many tasks wait for others.
SELECT count(*) AS total FROM task WHERE workflow_id = :workflow_id AND waits_for > 0 AND status = 'pending';

-- name: sequences
-- The lowest sequence of a workflow with an unfinished task, and the highest one below that, or of all.
SELECT lowest.sequence AS current,
       (SELECT max(sequence) FROM task
         WHERE workflow_id = :workflow_id AND sequence < COALESCE(lowest.sequence, 1099511627776)) AS completed
  FROM (SELECT min(sequence) AS sequence FROM task
         WHERE workflow_id = :workflow_id AND status NOT IN ('completed', 'skipped')) AS lowest;

-- name: tasks_blocked
-- Tasks that wait for others, after a place in the workflow's order.
SELECT id, name, sequence, place, dependency_count
  FROM task
 WHERE workflow_id = :workflow_id AND waits_for > 0 AND status = 'pending'
   AND (sequence > :sequence OR (sequence = :sequence AND place > :place))
 ORDER BY sequence, place LIMIT :limit;

-- name: chain
-- The longest chain of unfinished tasks, its beginning.
WITH RECURSIVE path (id, name, status, waits_for, tail_next, step) AS (
  SELECT * FROM (
    SELECT id, name, status, waits_for, tail_next, 1 AS step
      FROM task WHERE workflow_id = :workflow_id AND status NOT IN ('completed', 'skipped')
     ORDER BY tail DESC, id LIMIT 1) AS longest
  UNION ALL
  SELECT task.id, task.name, task.status, task.waits_for, task.tail_next, path.step + 1
    FROM path JOIN task ON task.id = path.tail_next
   WHERE path.step < :limit
)
SELECT id, name, status, waits_for FROM path WHERE status NOT IN ('completed', 'skipped') ORDER BY step;

-- name: chain_minutes
-- How long the longest chain of unfinished tasks is taken to need.
SELECT COALESCE(max(tail), 0) AS minutes
  FROM task WHERE workflow_id = :workflow_id AND status NOT IN ('completed', 'skipped');

-- name: workflow_ids
-- Ids of the workflows whose id or name begins so, the newest first, and how many there are in all.
SELECT id AS value, count(*) OVER () AS total
  FROM workflow
 WHERE (substr(id, 1, length(CAST(:prefix AS text))) = :prefix OR substr(name, 1, length(:prefix)) = :prefix)
   AND archived_at IS NULL
 ORDER BY created_at DESC, id LIMIT :limit;
