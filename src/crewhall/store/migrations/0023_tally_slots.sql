-- Tasks are counted in slots, so that hubs which change different tasks of a workflow don't wait for one row.
CREATE TABLE task_tally_in_slots (
  workflow_id    text NOT NULL REFERENCES workflow (id) DEFERRABLE INITIALLY IMMEDIATE,
  parallel_group text NOT NULL,
  status         text NOT NULL,
  slot           integer NOT NULL,
  tasks          integer NOT NULL,
  PRIMARY KEY (workflow_id, parallel_group, status, slot)
);
INSERT INTO task_tally_in_slots (workflow_id, parallel_group, status, slot, tasks)
SELECT workflow_id, parallel_group, status, 0, tasks FROM task_tally;
DROP TABLE task_tally;
ALTER TABLE task_tally_in_slots RENAME TO task_tally;
