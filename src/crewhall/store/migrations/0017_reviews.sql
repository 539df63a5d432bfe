-- Settings that a person changes while hubs run. A value that is the setting's default counts as not set.
CREATE TABLE user_config (
  key       text PRIMARY KEY,
  value     text NOT NULL,
  encrypted integer NOT NULL DEFAULT 0
);
INSERT INTO user_config (key, value, encrypted) VALUES ('review.max_iterations', '3', 0);
INSERT INTO user_config (key, value, encrypted) VALUES ('review.auto_abandon_after', '5', 0);
INSERT INTO user_config (key, value, encrypted) VALUES ('review.timeout_hours', '24', 0);

-- Who reviews whom, and in which round. A round that was given back is a review_lost, and counts no more.
CREATE TABLE instance_relationships (
  parent_instance   text NOT NULL,
  child_instance    text NOT NULL,
  relationship_type text NOT NULL CHECK (relationship_type IN ('spawned_review', 'review_lost')),
  review_iteration  integer NOT NULL,
  forked_from       text NOT NULL,
  outcome           text CHECK (outcome IN ('feedback', 'approved', 'withdrawn', 'ended', 'timed_out')),
  created_at        bigint NOT NULL,
  ended_at          bigint,
  PRIMARY KEY (parent_instance, child_instance)
);
CREATE INDEX relationship_child ON instance_relationships (child_instance);
CREATE INDEX relationship_open ON instance_relationships (created_at) WHERE ended_at IS NULL;

-- What a reviewer sent back. git_commit is the commit of the file, merge_commit its merge into the coder's branch.
CREATE TABLE review_feedback (
  id               text PRIMARY KEY,
  reviewer         text NOT NULL,
  coder            text NOT NULL,
  review_iteration integer NOT NULL,
  feedback_type    text NOT NULL CHECK (feedback_type IN ('needs_work', 'suggestions', 'clarification')),
  priority         text NOT NULL CHECK (priority IN ('low', 'normal', 'high', 'urgent')),
  feedback         text NOT NULL,
  git_commit       text,
  merge_commit     text,
  created_at       bigint NOT NULL
);
CREATE INDEX review_feedback_coder ON review_feedback (coder, review_iteration);
CREATE INDEX review_feedback_pending ON review_feedback (created_at) WHERE merge_commit IS NULL;

-- What a reviewer wants done, one thing each.
CREATE TABLE review_item (
  id             text PRIMARY KEY,
  coder          text NOT NULL,
  feedback_id    text NOT NULL,
  position       integer NOT NULL,
  item           text NOT NULL,
  file           text,
  line           integer,
  rule           text,
  is_blocking    integer NOT NULL,
  state          text NOT NULL CHECK (state IN ('open', 'fixed', 'disputed', 'waived', 'repeated')),
  created_at     bigint NOT NULL,
  updated_at     bigint NOT NULL
);
CREATE INDEX review_item_coder ON review_item (coder, created_at);
CREATE INDEX review_item_feedback ON review_item (feedback_id, position);

-- How often a coding instance was refused a review at its limit.
ALTER TABLE instance ADD COLUMN review_refusals integer NOT NULL DEFAULT 0;
