-- Issues that instances made on a host. number is NULL until the host has said it.
CREATE TABLE instance_issue (
  id          text PRIMARY KEY,
  instance_id text NOT NULL,
  repository  text NOT NULL,
  title       text NOT NULL,
  body        text NOT NULL,
  labels      text NOT NULL,
  number      bigint,
  url         text,
  created_at  bigint NOT NULL,
  UNIQUE (instance_id, repository, title)
);
