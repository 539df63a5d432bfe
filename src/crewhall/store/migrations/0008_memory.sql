-- Family work: workspaces, and finished tasks in the order in which they ended.
CREATE TABLE workspace (
  id              text PRIMARY KEY,
  workflow_id     text NOT NULL REFERENCES workflow (id) DEFERRABLE INITIALLY IMMEDIATE,
  node            text NOT NULL,
  repository_path text NOT NULL,
  path            text NOT NULL,
  branch          text NOT NULL,
  base_branch     text NOT NULL,
  status          text NOT NULL CHECK (status IN ('active', 'merged', 'abandoned')),
  worktree        text NOT NULL CHECK (worktree IN ('wanted', 'made', 'found', 'removed')),
  has_made_branch integer NOT NULL DEFAULT 0,
  merge_commit    text,
  saved_refs      text NOT NULL DEFAULT '[]',
  problem         text,
  created_at      bigint NOT NULL,
  updated_at      bigint NOT NULL
);
CREATE INDEX workspace_workflow ON workspace (workflow_id, created_at, id);
CREATE UNIQUE INDEX workspace_path ON workspace (node, path) WHERE status = 'active';
CREATE INDEX workspace_live ON workspace (repository_path, node) WHERE status = 'active';
CREATE INDEX workspace_over ON workspace (node, updated_at) WHERE status <> 'active' AND worktree IN ('wanted', 'made');

ALTER TABLE task ADD COLUMN workspace_id text REFERENCES workspace (id) DEFERRABLE INITIALLY IMMEDIATE;
CREATE INDEX task_workspace ON task (workspace_id) WHERE workspace_id IS NOT NULL;
CREATE INDEX task_finished ON task (workflow_id, finished_at DESC, id DESC) WHERE status IN ('completed', 'skipped');
