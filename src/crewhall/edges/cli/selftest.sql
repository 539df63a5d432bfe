-- name: selftest_tasks
-- The tasks of a workflow in their order.
SELECT id FROM task WHERE workflow_id = :workflow_id ORDER BY place;

-- name: selftest_creates
-- The workflows that a run created: what was asked for, and what came of it.
SELECT name AS asked, id AS told FROM workflow WHERE source_ref = :run;

-- name: selftest_plans
-- The tasks that a run planned, one in each workflow.
SELECT task.name AS asked, workflow_id AS told
  FROM task JOIN workflow ON workflow.id = task.workflow_id
 WHERE workflow.source_ref = :run;

-- name: selftest_claims
-- The tasks of a run that are held, once for each claim that goes on.
SELECT task.id AS asked, task.claimed_by AS told
  FROM task JOIN workflow ON workflow.id = task.workflow_id
            JOIN claim ON claim.task_id = task.id AND claim.ended_at IS NULL
 WHERE workflow.source_ref = :run || '-shared';

-- name: selftest_messages
-- The messages that a run sent.
SELECT message.subject AS asked, message.id AS told
  FROM message JOIN workflow ON workflow.id = message.workflow_id
 WHERE workflow.source_ref = :run || '-shared';
