-- Agents that the hall itself started: each has a worktree, a terminal session and a process on one node.
-- pid and process_started together name the process that leads the session. ended_how is NULL while it lives.
CREATE TABLE instance (
  id               text PRIMARY KEY,
  agent_id         text NOT NULL UNIQUE,
  type             text NOT NULL CHECK (type IN ('planning', 'coding', 'review')),
  status           text NOT NULL CHECK (status IN ('started', 'waiting_review', 'pr_created', 'pr_merged', 'pr_closed',
                                                   'abandoned', 'terminated')),
  runtime          text NOT NULL,
  node             text NOT NULL,
  repository_path  text NOT NULL,
  worktree         text NOT NULL,
  branch           text NOT NULL,
  base_branch      text NOT NULL,
  session          text NOT NULL,
  pid              bigint,
  process_started  text,
  conversation_id  text NOT NULL,
  prompt           text NOT NULL,
  tier             integer NOT NULL,
  issue_number     bigint,
  pull_number      bigint,
  pull_url         text,
  parent           text,
  input_tokens     bigint NOT NULL DEFAULT 0,
  output_tokens    bigint NOT NULL DEFAULT 0,
  ended_how        text,
  ended_at         bigint,
  last_activity_at bigint,
  problem          text,
  saved_refs       text NOT NULL DEFAULT '[]',
  ports            text NOT NULL DEFAULT '[]',
  created_at       bigint NOT NULL,
  updated_at       bigint NOT NULL
);
CREATE INDEX instance_node ON instance (node, status);
CREATE INDEX instance_created ON instance (created_at, id);

-- What people and the hall tell an instance in its conversation. delivered_by says how it got there.
CREATE TABLE instance_message (
  id           text PRIMARY KEY,
  instance_id  text NOT NULL,
  sender       text NOT NULL,
  body         text NOT NULL,
  created_at   bigint NOT NULL,
  delivered_at bigint,
  delivered_by text CHECK (delivered_by IN ('hook', 'paste', 'inbox'))
);
CREATE INDEX instance_message_open ON instance_message (instance_id, delivered_at);

-- Since when an agent's last process or bridge is gone; NULL while it is here, and where nobody knows.
ALTER TABLE agent ADD COLUMN disconnected_since bigint;
