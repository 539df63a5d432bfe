-- The hall itself: facts about it, the event log, the call log, tokens, chores.
CREATE TABLE hall (
  key   text PRIMARY KEY,
  value text NOT NULL
);

CREATE TABLE event (
  seq           {serial},
  at            bigint NOT NULL,
  actor         text NOT NULL,
  what          text NOT NULL,
  subject       text NOT NULL,
  before_status text,
  after_status  text,
  tool          text,
  git_commit    text,
  data          text
);
CREATE INDEX event_subject ON event (subject, seq);
CREATE INDEX event_at ON event (at);

CREATE TABLE call_log (
  id            text PRIMARY KEY,
  at            bigint NOT NULL,
  tool          text NOT NULL,
  actor         text NOT NULL,
  edge          text NOT NULL,
  success       integer NOT NULL,
  error         text,
  duration_ms   bigint NOT NULL,
  git_commit    text,
  before_status text,
  after_status  text
);
CREATE INDEX call_log_at ON call_log (at);

CREATE TABLE token (
  id         text PRIMARY KEY,
  hash       text NOT NULL UNIQUE,
  kind       text NOT NULL CHECK (kind IN ('operator', 'agent', 'browser', 'link')),
  agent_id   text,
  label      text NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint,
  revoked_at bigint
);
CREATE INDEX token_agent ON token (agent_id);

CREATE TABLE chore (
  name       text PRIMARY KEY,
  holder     text NOT NULL,
  held_until bigint NOT NULL
);
