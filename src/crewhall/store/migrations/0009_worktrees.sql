-- Worktrees that are open: each has a server of its own on a port of its node, while a hub runs there.
CREATE TABLE worktree (
  id           text PRIMARY KEY,
  node         text NOT NULL,
  path         text NOT NULL,
  workspace_id text,
  port         integer,
  is_served    integer NOT NULL DEFAULT 0,
  last_error   text,
  opened_at    bigint NOT NULL,
  updated_at   bigint NOT NULL
);
CREATE UNIQUE INDEX worktree_path ON worktree (node, path);
