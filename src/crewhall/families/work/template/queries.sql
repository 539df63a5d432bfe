-- name: template_insert
-- A new template.
INSERT INTO template (id, name, description, variables, definition, task_count, created_at, updated_at)
VALUES (:id, :name, :description, :variables, :definition, :task_count, :now, :now);

-- name: template_get
-- A template.
SELECT id, name, description, variables, definition, task_count, created_at, updated_at FROM template WHERE id = :id;

-- name: templates
-- A page of templates, the newest first, without their tasks.
SELECT id, name, description, variables, task_count, created_at
  FROM template ORDER BY created_at DESC, id DESC LIMIT :limit OFFSET :offset;

-- name: templates_count
-- How many templates there are.
SELECT count(*) AS total FROM template;

-- name: template_ids
-- Ids of the templates whose id or name begins so, the newest first, and how many there are in all.
SELECT id AS value, count(*) OVER () AS total
  FROM template
 WHERE substr(id, 1, length(CAST(:prefix AS text))) = :prefix OR substr(name, 1, length(:prefix)) = :prefix
 ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: workflow_letters
-- How many characters the tasks of a workflow have in all.
SELECT COALESCE(sum(length(name) + length(description) + length(files_likely_affected)), 0) AS letters
  FROM task WHERE workflow_id = :workflow_id;

-- name: workflow_planned
-- The tasks of a workflow as they were planned, in the order in which they were put in.
SELECT id, name, description, sequence, parallel_group, estimated_complexity, files_likely_affected
  FROM task WHERE workflow_id = :workflow_id ORDER BY place;

-- name: workflow_dependencies
-- Names of what each task of a workflow depends on, in the order in which they were put in.
SELECT task_dependency.task_id, wanted.name
  FROM task JOIN task_dependency ON task_dependency.task_id = task.id
       JOIN task AS wanted ON wanted.id = task_dependency.depends_on_id
 WHERE task.workflow_id = :workflow_id ORDER BY wanted.place;

-- name: workflow_capabilities
-- What each task of a workflow needs an agent to be good at.
SELECT task_id, capability
  FROM task JOIN task_capability ON task_capability.task_id = task.id
 WHERE task.workflow_id = :workflow_id ORDER BY capability;
