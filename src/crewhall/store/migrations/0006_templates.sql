-- Family work: templates, plans with variables in them.
CREATE TABLE template (
  id          text PRIMARY KEY,
  name        text NOT NULL,
  description text,
  variables   text NOT NULL,
  definition  text NOT NULL,
  task_count  integer NOT NULL,
  created_at  bigint NOT NULL,
  updated_at  bigint NOT NULL
);
CREATE INDEX template_created ON template (created_at, id);
