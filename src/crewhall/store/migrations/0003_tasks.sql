-- Family work: workflows, tasks, claims, checkpoints; and until when an agent counts as here.
CREATE TABLE workflow (
  id                     text PRIMARY KEY,
  name                   text NOT NULL,
  status                 text NOT NULL CHECK (status IN ('planning', 'ready', 'in_progress', 'paused', 'completed', 'failed', 'abandoned')),
  status_reason          text,
  source_type            text NOT NULL CHECK (source_type IN ('prompt', 'github_issue', 'linear', 'jira', 'custom')),
  source_ref             text,
  source_content         text NOT NULL,
  repository_path        text,
  max_parallel_tasks     integer NOT NULL,
  auto_create_workspaces integer NOT NULL,
  plan                   text,
  task_count             integer NOT NULL DEFAULT 0,
  finished_count         integer NOT NULL DEFAULT 0,
  completed_count        integer NOT NULL DEFAULT 0,
  started_at             bigint,
  finished_at            bigint,
  created_at             bigint NOT NULL,
  updated_at             bigint NOT NULL
);
CREATE INDEX workflow_created ON workflow (created_at, id);
CREATE INDEX workflow_status ON workflow (status, created_at, id);
CREATE INDEX workflow_repository ON workflow (repository_path, created_at, id);

CREATE TABLE task (
  id                    text PRIMARY KEY,
  workflow_id           text NOT NULL REFERENCES workflow (id) DEFERRABLE INITIALLY IMMEDIATE,
  name                  text NOT NULL,
  description           text NOT NULL,
  status                text NOT NULL CHECK (status IN ('pending', 'planning', 'in_progress', 'paused', 'completed', 'failed', 'skipped')),
  sequence              bigint NOT NULL,
  place                 bigint NOT NULL,
  parallel_group        text,
  estimated_complexity  text CHECK (estimated_complexity IN ('low', 'medium', 'high')),
  files_likely_affected text NOT NULL,
  dependency_count      integer NOT NULL,
  waits_for             integer NOT NULL,
  tail                  bigint NOT NULL,
  tail_next             text,
  plan                  text,
  context               text,
  outcome               text,
  outcome_detail        text,
  error                 text,
  claimed_by            text,
  claim_epoch           integer NOT NULL DEFAULT 0,
  claimed_at            bigint,
  checkpoint_count      integer NOT NULL DEFAULT 0,
  started_at            bigint,
  finished_at           bigint,
  created_at            bigint NOT NULL,
  updated_at            bigint NOT NULL,
  UNIQUE (workflow_id, name)
);
CREATE INDEX task_order ON task (workflow_id, sequence, place);
CREATE INDEX task_group ON task (workflow_id, parallel_group, id) WHERE parallel_group IS NOT NULL;
CREATE INDEX task_open ON task (workflow_id, sequence, place) WHERE status NOT IN ('completed', 'skipped');
CREATE INDEX task_longest ON task (workflow_id, tail) WHERE status NOT IN ('completed', 'skipped');
CREATE INDEX task_free ON task (workflow_id, waits_for, sequence, tail DESC, place)
 WHERE waits_for = 0 AND claimed_by IS NULL AND status IN ('pending', 'failed');
CREATE INDEX task_blocked ON task (workflow_id, sequence, place, status) WHERE waits_for > 0;
CREATE INDEX task_running ON task (workflow_id) WHERE claimed_by IS NOT NULL OR status IN ('planning', 'in_progress');
CREATE INDEX task_claimed ON task (claimed_by) WHERE claimed_by IS NOT NULL;

CREATE TABLE task_tally (
  workflow_id    text NOT NULL REFERENCES workflow (id) DEFERRABLE INITIALLY IMMEDIATE,
  parallel_group text NOT NULL,
  status         text NOT NULL,
  tasks          integer NOT NULL,
  PRIMARY KEY (workflow_id, parallel_group, status)
);

CREATE TABLE task_dependency (
  task_id       text NOT NULL REFERENCES task (id) DEFERRABLE INITIALLY IMMEDIATE,
  depends_on_id text NOT NULL REFERENCES task (id) DEFERRABLE INITIALLY IMMEDIATE,
  PRIMARY KEY (task_id, depends_on_id)
);
CREATE INDEX task_dependent ON task_dependency (depends_on_id, task_id);

CREATE TABLE task_capability (
  task_id    text NOT NULL REFERENCES task (id) DEFERRABLE INITIALLY IMMEDIATE,
  capability text NOT NULL,
  PRIMARY KEY (task_id, capability)
);

CREATE TABLE claim (
  task_id     text NOT NULL REFERENCES task (id) DEFERRABLE INITIALLY IMMEDIATE,
  epoch       integer NOT NULL,
  agent_id    text NOT NULL,
  claimed_at  bigint NOT NULL,
  ended_at    bigint,
  ended_how   text,
  status_then text,
  PRIMARY KEY (task_id, epoch)
);
CREATE INDEX claim_agent ON claim (task_id, agent_id, epoch);

CREATE TABLE checkpoint (
  id            text PRIMARY KEY,
  task_id       text NOT NULL REFERENCES task (id) DEFERRABLE INITIALLY IMMEDIATE,
  sequence      integer NOT NULL,
  type          text NOT NULL CHECK (type IN ('plan', 'progress', 'decision', 'error', 'recovery', 'complete', 'replan')),
  summary       text NOT NULL,
  detail        text,
  files_changed text NOT NULL,
  agent_id      text,
  created_at    bigint NOT NULL,
  UNIQUE (task_id, sequence)
);

ALTER TABLE agent ADD COLUMN lease_until bigint;
ALTER TABLE agent ADD COLUMN has_left integer NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN bridge text;
UPDATE agent SET lease_until = CASE WHEN status = 'offline' THEN updated_at ELSE updated_at + 1800000 END;
CREATE INDEX agent_lease ON agent (lease_until) WHERE status <> 'offline';
CREATE INDEX agent_bridge ON agent (bridge) WHERE bridge IS NOT NULL;
