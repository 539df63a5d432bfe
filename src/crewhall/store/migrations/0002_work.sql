-- Family work, the first nouns: repositories and agents.
CREATE TABLE repository (
  id         text PRIMARY KEY,
  path       text NOT NULL UNIQUE,
  name       text NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL
);
CREATE INDEX repository_created ON repository (created_at, id);

CREATE TABLE agent (
  id                text PRIMARY KEY,
  name              text NOT NULL,
  runtime           text NOT NULL CHECK (runtime IN ('claude_code', 'codex', 'gemini', 'opencode', 'custom')),
  role              text NOT NULL CHECK (role IN ('coordinator', 'worker')),
  type              text CHECK (type IN ('planning', 'coding', 'review')),
  status            text NOT NULL CHECK (status IN ('online', 'offline', 'busy')),
  capabilities      text NOT NULL,
  workspace_path    text,
  current_task_id   text,
  metadata          text NOT NULL,
  last_heartbeat_at bigint,
  created_at        bigint NOT NULL,
  updated_at        bigint NOT NULL
);
CREATE INDEX agent_created ON agent (created_at, id);
CREATE INDEX agent_status ON agent (status);
CREATE INDEX agent_name ON agent (name);
