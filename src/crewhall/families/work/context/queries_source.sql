-- name: repository_tasks
-- Open tasks of a repository's workflows: those of one workspace first, then held ones, then in the workflows' order.
SELECT task.id, task.name, task.status, task.waits_for, workflow.id AS workflow_id, workflow.name AS workflow_name,
       workflow.status AS workflow_status, agent.id AS agent_id, agent.name AS agent_name, workspace.path AS workspace_path,
       count(*) OVER () AS total
  FROM workflow
  JOIN task ON task.workflow_id = workflow.id
  LEFT JOIN agent ON agent.id = task.claimed_by
  LEFT JOIN workspace ON workspace.id = task.workspace_id
 WHERE workflow.repository_path = :repository_path
   AND workflow.status IN ('planning', 'ready', 'in_progress', 'paused', 'failed')
   AND workflow.archived_at IS NULL AND task.status NOT IN ('completed', 'skipped')
 ORDER BY CASE WHEN workspace.node = :node AND workspace.path = :path AND workspace.status = 'active' THEN 0 ELSE 1 END,
          CASE WHEN task.claimed_by IS NULL THEN 1 ELSE 0 END,
          workflow.created_at, workflow.id, task.sequence, task.place
 LIMIT :limit;
