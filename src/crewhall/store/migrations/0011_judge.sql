-- What came of asking the judge: a ruling, or why there is none. `question` finds the answer when it is asked again.
CREATE TABLE judge_report (
  id            text PRIMARY KEY,
  kind          text NOT NULL CHECK (kind IN ('review', 'proposal', 'audit', 'conflict')),
  subject       text NOT NULL,
  workflow_id   text REFERENCES workflow (id) DEFERRABLE INITIALLY IMMEDIATE,
  verdict       text,
  error         text,
  detail        text,
  ruling        text,
  question      text,
  node          text NOT NULL,
  directory     text NOT NULL,
  commit_id     text,
  model         text,
  input_tokens  bigint NOT NULL,
  output_tokens bigint NOT NULL,
  cost_usd      double precision NOT NULL,
  duration_ms   bigint NOT NULL,
  actor         text NOT NULL,
  created_at    bigint NOT NULL,
  CHECK ((verdict IS NULL) = (ruling IS NULL) AND (verdict IS NULL) = (error IS NOT NULL))
);
CREATE INDEX judge_report_newest ON judge_report (created_at DESC, id);
CREATE INDEX judge_report_workflow ON judge_report (workflow_id, created_at DESC, id) WHERE workflow_id IS NOT NULL;
CREATE INDEX judge_report_subject ON judge_report (subject, created_at DESC, id);
CREATE INDEX judge_report_question ON judge_report (question, created_at DESC) WHERE question IS NOT NULL;

-- Who made a repository known: an agent's word opens it to nobody.
ALTER TABLE repository ADD COLUMN registered_by text NOT NULL DEFAULT 'operator';
