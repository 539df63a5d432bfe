-- name: task_insert
-- A task of a plan.
INSERT INTO task (id, workflow_id, name, description, status, sequence, place, parallel_group, estimated_complexity,
                  files_likely_affected, dependency_count, waits_for, tail, tail_next, created_at, updated_at)
VALUES (:id, :workflow_id, :name, :description, 'pending', :sequence, :place, :parallel_group, :estimated_complexity,
        :files_likely_affected, :dependency_count, :waits_for, :tail, :tail_next, :now, :now);

-- name: task_dependency_insert
-- One task waits for another.
INSERT INTO task_dependency (task_id, depends_on_id) VALUES (:task_id, :depends_on_id);

-- name: task_capability_insert
-- A task needs an agent that is good at something.
INSERT INTO task_capability (task_id, capability) VALUES (:task_id, :capability);

-- name: task_get
-- A task.
SELECT task.id, workflow_id, task.name, description, task.status, sequence, place, parallel_group,
       estimated_complexity, files_likely_affected, dependency_count, waits_for, plan, context, outcome,
       outcome_detail, error, claimed_by, claim_epoch, claimed_at, agent.lease_until AS lease_expires_at,
       checkpoint_count, workspace_id, started_at, finished_at, task.created_at, task.updated_at
  FROM task LEFT JOIN agent ON agent.id = task.claimed_by
 WHERE task.id = :id;

-- name: task_lock
-- A task, held until commit: for those who share its workflow.
SELECT task.id, workflow_id, task.name, description, task.status, sequence, place, parallel_group,
       estimated_complexity, files_likely_affected, dependency_count, waits_for, plan, context, outcome,
       outcome_detail, error, claimed_by, claim_epoch, claimed_at, agent.lease_until AS lease_expires_at,
       checkpoint_count, workspace_id, started_at, finished_at, task.created_at, task.updated_at
  FROM task LEFT JOIN agent ON agent.id = task.claimed_by
 WHERE task.id = :id {for_update_of:task};

-- name: task_workflow
-- The workflow that a task belongs to.
SELECT workflow_id FROM task WHERE id = :id;

-- name: tasks
-- Tasks of a workflow in their order, after a place in it, perhaps of some statuses or one holder.
SELECT task.id, workflow_id, task.name, description, task.status, sequence, place, parallel_group,
       estimated_complexity, files_likely_affected, dependency_count, waits_for, plan, context, outcome,
       outcome_detail, error, claimed_by, claim_epoch, claimed_at, agent.lease_until AS lease_expires_at,
       checkpoint_count, workspace_id, started_at, finished_at, task.created_at, task.updated_at
  FROM task LEFT JOIN agent ON agent.id = task.claimed_by
 WHERE workflow_id = :workflow_id
   AND (sequence > :sequence OR (sequence = :sequence AND place > :place))
   AND (CAST(:statuses AS text) IS NULL
        OR CASE WHEN task.status = 'pending' AND waits_for > 0 THEN 'blocked' ELSE task.status END IN {each:statuses})
   AND (CAST(:claimed_by AS text) IS NULL OR claimed_by = :claimed_by)
 ORDER BY sequence, place LIMIT :limit;

-- name: tasks_count
-- How many tasks of a workflow there are, perhaps of some statuses or one holder.
SELECT count(*) AS total
  FROM task
 WHERE workflow_id = :workflow_id
   AND (CAST(:statuses AS text) IS NULL
        OR CASE WHEN status = 'pending' AND waits_for > 0 THEN 'blocked' ELSE status END IN {each:statuses})
   AND (CAST(:claimed_by AS text) IS NULL OR claimed_by = :claimed_by);

-- name: workflows_available
-- Workflows that go on, the oldest first, with a task that is ready and held by no one, and room for it unless all
-- count; perhaps one of them, or those of one repository.
SELECT id, created_at
  FROM workflow
 WHERE status IN ('ready', 'in_progress') AND (CAST(:workflow_id AS text) IS NULL OR id = :workflow_id)
   AND (CAST(:repository_path AS text) IS NULL OR repository_path = :repository_path)
   AND (created_at > :created_at OR (created_at = :created_at AND id > :id))
   AND EXISTS (SELECT 1 FROM task
                WHERE workflow_id = workflow.id AND waits_for = 0 AND claimed_by IS NULL
                  AND status IN ('pending', 'failed'))
   AND (:full_too = 1 OR max_parallel_tasks >
        (SELECT count(*) FROM task
          WHERE workflow_id = workflow.id AND (claimed_by IS NOT NULL OR status IN ('planning', 'in_progress'))))
 ORDER BY created_at, id LIMIT :limit;

-- name: tasks_available
-- Tasks of a workflow that are ready, held by no one, and need nothing that the agent is not good at.
SELECT task.id, workflow_id, name, description, status, sequence, place, parallel_group,
       estimated_complexity, files_likely_affected, dependency_count, waits_for, plan, context, outcome,
       outcome_detail, error, claimed_by, claim_epoch, claimed_at, NULL AS lease_expires_at,
       checkpoint_count, workspace_id, started_at, finished_at, created_at, updated_at
  FROM task
 WHERE workflow_id = :workflow_id AND waits_for = 0 AND claimed_by IS NULL AND status IN ('pending', 'failed')
   AND NOT EXISTS (SELECT 1 FROM task_capability
                    WHERE task_id = task.id AND capability NOT IN {each:capabilities})
 ORDER BY sequence, tail DESC, place LIMIT :limit;

-- name: tasks_available_count
-- How many tasks are ready and held by no one, in workflows with room for them unless all count, less those that need
-- something that the agent is not good at.
WITH open AS (
  SELECT id FROM workflow
   WHERE status IN ('ready', 'in_progress')
     AND (CAST(:workflow_id AS text) IS NULL OR id = :workflow_id)
     AND (CAST(:repository_path AS text) IS NULL OR repository_path = :repository_path)
     AND (:full_too = 1 OR max_parallel_tasks >
          (SELECT count(*) FROM task
            WHERE workflow_id = workflow.id AND (claimed_by IS NOT NULL OR status IN ('planning', 'in_progress'))))
)
SELECT (SELECT count(*)
          FROM open JOIN task ON task.workflow_id = open.id
         WHERE waits_for = 0 AND claimed_by IS NULL AND task.status IN ('pending', 'failed')) -
       (SELECT count(DISTINCT task.id)
          FROM task_capability JOIN task ON task.id = task_capability.task_id
          JOIN open ON open.id = task.workflow_id
         WHERE capability NOT IN {each:capabilities}
           AND waits_for = 0 AND claimed_by IS NULL AND task.status IN ('pending', 'failed')) AS total;

-- name: dependency_names
-- Names of what each of these tasks depends on, a few for each.
SELECT task_id, name, status FROM (
  SELECT task_dependency.task_id, task.name, task.status,
         row_number() OVER (PARTITION BY task_dependency.task_id ORDER BY task.place) AS number
    FROM task_dependency JOIN task ON task.id = task_dependency.depends_on_id
   WHERE task_dependency.task_id IN {each:ids}) AS named
 WHERE number <= :most ORDER BY task_id, number;

-- name: blocker_names
-- Names of the unfinished tasks that each of these waits for, a few for each.
SELECT task_id, name FROM (
  SELECT task_dependency.task_id, task.name,
         row_number() OVER (PARTITION BY task_dependency.task_id ORDER BY task.place) AS number
    FROM task_dependency JOIN task ON task.id = task_dependency.depends_on_id
   WHERE task_dependency.task_id IN {each:ids} AND task.status NOT IN ('completed', 'skipped')) AS named
 WHERE number <= :most ORDER BY task_id, number;

-- name: finished_names
-- Names of the finished tasks that each of these depended on, a few for each.
SELECT task_id, name FROM (
  SELECT task_dependency.task_id, task.name,
         row_number() OVER (PARTITION BY task_dependency.task_id ORDER BY task.place) AS number
    FROM task_dependency JOIN task ON task.id = task_dependency.depends_on_id
   WHERE task_dependency.task_id IN {each:ids} AND task.status IN ('completed', 'skipped')) AS named
 WHERE number <= :most ORDER BY task_id, number;

-- name: lower_open
-- Unfinished tasks of lower sequences, the lowest first.
SELECT id, name, status, waits_for
  FROM task
 WHERE workflow_id = :workflow_id AND sequence < :sequence AND status NOT IN ('completed', 'skipped')
 ORDER BY sequence, place LIMIT :limit OFFSET :offset;

-- name: lower_open_count
-- How many unfinished tasks of lower sequences there are.
SELECT count(*) AS total
  FROM task WHERE workflow_id = :workflow_id AND sequence < :sequence AND status NOT IN ('completed', 'skipped');

-- name: dependencies
-- What a task depends on, finished ones or unfinished ones.
SELECT task.id, task.name, task.status, task.waits_for, task.outcome
  FROM task_dependency JOIN task ON task.id = task_dependency.depends_on_id
 WHERE task_dependency.task_id = :id
   AND CASE WHEN task.status IN ('completed', 'skipped') THEN 1 ELSE 0 END = :finished
 ORDER BY task.place LIMIT :limit OFFSET :offset;

-- name: dependencies_count
-- How many things a task depends on, finished ones or unfinished ones.
SELECT count(*) AS total
  FROM task_dependency JOIN task ON task.id = task_dependency.depends_on_id
 WHERE task_dependency.task_id = :id
   AND CASE WHEN task.status IN ('completed', 'skipped') THEN 1 ELSE 0 END = :finished;

-- name: capabilities
-- What each of these tasks needs an agent to be good at.
SELECT task_id, capability FROM task_capability WHERE task_id IN {each:ids} ORDER BY task_id, capability;

-- name: dependents
-- Names of some tasks that depend on a task.
SELECT task.name
  FROM task_dependency JOIN task ON task.id = task_dependency.task_id
 WHERE task_dependency.depends_on_id = :id ORDER BY task.place LIMIT 5;

-- name: task_standing_set
-- Where a task stands in its workflow's graph.
UPDATE task SET waits_for = :waits_for, tail = :tail, tail_next = :tail_next WHERE id = :id;

-- name: dependents_release
-- A task is finished: those that depend on it wait for one thing less.
UPDATE task SET waits_for = waits_for - 1
 WHERE waits_for > 0 AND id IN (SELECT task_id FROM task_dependency WHERE depends_on_id = :id);

-- name: gate_open
-- When a sequence and all below it is finished, tasks up to the next open one that depend on nothing wait no more.
UPDATE task SET waits_for = 0
 WHERE workflow_id = :workflow_id AND waits_for > 0 AND dependency_count = 0
   AND sequence <= (SELECT lowest.sequence
                      FROM (SELECT open.sequence FROM task AS open
                             WHERE open.workflow_id = :workflow_id AND open.status NOT IN ('completed', 'skipped')
                             ORDER BY open.sequence LIMIT 1) AS lowest
                     WHERE lowest.sequence > :sequence);

-- name: task_plan_set
-- A task's plan, and its context.
UPDATE task SET plan = :plan, context = :context, updated_at = :now WHERE id = :id;

-- name: task_replan_set
-- A task begins anew with another plan.
UPDATE task
   SET plan = :plan, status = 'pending', outcome = NULL, outcome_detail = NULL, error = NULL, updated_at = :now
 WHERE id = :id;

-- name: task_status_set
-- A task's new status, and how it ended if it did.
UPDATE task
   SET status = :status, updated_at = :now,
       outcome = COALESCE(CAST(:outcome AS text), outcome),
       outcome_detail = COALESCE(CAST(:outcome_detail AS text), outcome_detail),
       error = CASE WHEN :status = 'completed' THEN NULL ELSE COALESCE(CAST(:error AS text), error) END,
       waits_for = CASE WHEN :status IN ('completed', 'skipped') THEN 0 ELSE waits_for END,
       started_at = CASE WHEN :status IN ('planning', 'in_progress') THEN COALESCE(started_at, :now) ELSE started_at END,
       finished_at = CASE WHEN :status IN ('completed', 'skipped') THEN :now ELSE finished_at END
 WHERE id = :id;

-- name: task_remove
-- Forget a task.
DELETE FROM task WHERE id = :id;

-- name: task_remove_dependencies
-- Forget what a task depends on.
DELETE FROM task_dependency WHERE task_id = :id;

-- name: task_remove_capabilities
-- Forget what a task needs.
DELETE FROM task_capability WHERE task_id = :id;

-- name: task_remove_claims
-- Forget who held a task.
DELETE FROM claim WHERE task_id = :id;

-- name: task_ids
-- Ids of the tasks whose id or name begins so, the newest first, and how many there are in all.
SELECT id AS value, count(*) OVER () AS total
  FROM task
 WHERE substr(id, 1, length(CAST(:prefix AS text))) = :prefix OR substr(name, 1, length(:prefix)) = :prefix
 ORDER BY created_at DESC, id LIMIT :limit;
