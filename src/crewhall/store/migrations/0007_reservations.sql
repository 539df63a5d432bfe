-- Family work: paths that agents have reserved for a while, and of each repository the row that is locked for it.
CREATE TABLE file_area (
  id              text PRIMARY KEY,
  repository_path text NOT NULL UNIQUE
);

CREATE TABLE file_reservation (
  area_id     text NOT NULL REFERENCES file_area (id) DEFERRABLE INITIALLY IMMEDIATE,
  agent_id    text NOT NULL,
  path        text NOT NULL,
  exclusive   integer NOT NULL,
  reason      text,
  task_id     text,
  reserved_at bigint NOT NULL,
  expires_at  bigint NOT NULL,
  PRIMARY KEY (area_id, agent_id, path)
);
CREATE INDEX file_reservation_agent ON file_reservation (agent_id, expires_at);
CREATE INDEX file_reservation_until ON file_reservation (expires_at);
