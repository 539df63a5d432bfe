-- name: begin_write
-- Each statement sees what is committed when it begins.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: begin_read
-- All statements see the same snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: rollback
-- Take back what the transaction did.
ROLLBACK;

-- name: events_lock
-- Held to the commit, so that numbers are in commit order.
SELECT pg_advisory_xact_lock(7264002);

-- name: events_insert
-- Append facts to the log, a JSON list of objects, in its order.
INSERT INTO event (at, actor, what, subject, before_status, after_status, tool, git_commit, data, changes)
SELECT at, actor, what, subject, before_status, after_status, tool, git_commit, data, changes
  FROM json_to_recordset(CAST(:events AS json))
    AS row (at bigint, actor text, what text, subject text, before_status text, after_status text, tool text,
            git_commit text, data text, changes text);

-- name: flush_later
-- This commit doesn't wait for the disk, so its locks are short.
SET LOCAL synchronous_commit = off;

-- name: commit
-- The transaction is visible to others.
COMMIT;

-- name: flush
-- A commit of its own that waits for the disk: with it, all earlier ones are there.
SELECT pg_logical_emit_message(true, 'crewhall', '');

-- name: flush_what_was_read
-- The same, unless the disk has everything already.
SELECT CASE WHEN pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()
            THEN pg_logical_emit_message(true, 'crewhall', '') END;

-- name: events_announce
-- A hint to the readers on other nodes; they poll as well. Outside the transaction: its lock waits for the disk.
SELECT pg_notify('crewhall_events', '');

-- name: tables
-- The hall's tables.
SELECT table_name AS name FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'
 ORDER BY 1;

-- name: event_number_set
-- Go on numbering after the newest event, the forgotten ones and a least number too.
SELECT setval(pg_get_serial_sequence('event', 'seq'), 1 + GREATEST(CAST(:least AS bigint),
         COALESCE((SELECT max(seq) FROM event), 0),
         COALESCE((SELECT CAST(value AS bigint) FROM hall WHERE key = 'events_pruned_through'), 0)), false);

-- name: foreign_keys_defer
-- Look only at the commit whether every row that is referred to is there.
SET CONSTRAINTS ALL DEFERRED;

-- name: schema_lock
-- One process at a time changes the schema.
SELECT pg_advisory_xact_lock(7264001);

-- name: clock
-- The server's clock, UTC milliseconds.
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS now;

-- name: call_log_put
-- Note calls, a JSON list of objects, in one statement; a second time for the same call says how it really ended.
INSERT INTO call_log (id, at, tool, actor, edge, success, error, duration_ms, instance_id, git_commit, before_status,
                      after_status)
SELECT id, at, tool, actor, edge, success, error, duration_ms, instance_id, git_commit, before_status, after_status
  FROM json_to_recordset(CAST(:rows AS json))
    AS row (id text, at bigint, tool text, actor text, edge text, success integer, error text, duration_ms bigint,
            instance_id text, git_commit text, before_status text, after_status text)
    ON CONFLICT (id) DO UPDATE SET success = excluded.success, error = excluded.error, duration_ms = excluded.duration_ms;
