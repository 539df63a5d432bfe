-- What is long over is put away: the lists leave it out. And the name that an agent asked for, which another may have had.
ALTER TABLE agent ADD COLUMN archived_at bigint;
ALTER TABLE agent ADD COLUMN asked_name text;
ALTER TABLE workflow ADD COLUMN archived_at bigint;
