-- Pulls that the hall opened, or is opening. Who is at work on one holds it until its lease is over.
CREATE TABLE pull (
  id          text PRIMARY KEY,
  provider    text NOT NULL,
  host        text NOT NULL,
  owner       text NOT NULL,
  name        text NOT NULL,
  branch      text NOT NULL,
  base_branch text NOT NULL,
  title       text NOT NULL,
  change_type text NOT NULL,
  digest      text NOT NULL,
  paths       text NOT NULL,
  state       text NOT NULL CHECK (state IN ('opening', 'left', 'open', 'ended')),
  number      bigint,
  url         text,
  commit_id   text,
  actor       text NOT NULL,
  holder      text NOT NULL,
  lease_until bigint NOT NULL,
  created_at  bigint NOT NULL,
  updated_at  bigint NOT NULL
);
CREATE UNIQUE INDEX pull_opening_branch ON pull (host, owner, name, branch) WHERE state = 'opening';
CREATE UNIQUE INDEX pull_opening_digest ON pull (host, owner, name, digest) WHERE state = 'opening';
CREATE INDEX pull_of_repository ON pull (host, owner, name, created_at) WHERE state IN ('opening', 'open');
CREATE INDEX pull_lease ON pull (host, lease_until) WHERE state IN ('opening', 'left');
