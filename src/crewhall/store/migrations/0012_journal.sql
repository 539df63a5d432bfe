-- What the hall does outside its database, from before the first act until it is finished or undone.
-- Whoever works on an operation holds it until its lease is over. A place is where it can be settled: a node, or a
-- repository on a host.
CREATE TABLE operation (
  id          text PRIMARY KEY,
  kind        text NOT NULL,
  subject     text NOT NULL,
  place       text NOT NULL,
  step        text,
  data        text NOT NULL,
  actor       text NOT NULL,
  holder      text NOT NULL,
  lease_until bigint NOT NULL,
  created_at  bigint NOT NULL,
  updated_at  bigint NOT NULL
);
CREATE UNIQUE INDEX operation_subject ON operation (kind, subject);
CREATE INDEX operation_lease ON operation (kind, lease_until);

-- Pulls that an older hub began to open. Their data is in their own row.
INSERT INTO operation (id, kind, subject, place, step, data, actor, holder, lease_until, created_at, updated_at)
SELECT 'op_' || substr(id, 4), 'pull_open', id, host || '/' || owner || '/' || name, 'branch', '{}', actor, holder,
       lease_until, created_at, updated_at
  FROM pull WHERE state IN ('opening', 'left');
