-- What is long over is put away: the lists leave it out.
ALTER TABLE agent ADD COLUMN archived_at bigint;
ALTER TABLE workflow ADD COLUMN archived_at bigint;
