-- name: begin_write
-- Each statement sees what is committed when it begins.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: begin_read
-- All statements see the same snapshot.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: rollback
-- Take back what the transaction did.
ROLLBACK;

-- name: wait_for_locks
-- What comes after a transaction's first statements waits longer for a lock than those, which can be sent again.
SELECT set_config('lock_timeout', '8s', true);

-- name: think
-- This transaction may stand still for longer: its hub has much to compute.
SELECT set_config('idle_in_transaction_session_timeout', '30s', true);

-- name: take_time
-- This transaction may take its time: a change of the schema, a copy, a background job.
SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '8s', true);

-- name: events_hold
-- Hold, to the commit, a lock that everyone shares, whose key is the next event's number: the transaction draws no smaller one.
SELECT pg_advisory_xact_lock_shared(CAST(7264002 AS bigint) * 1099511627776 + last_value + CASE WHEN is_called THEN 1 ELSE 0 END)
  FROM event_seq_seq;

-- name: events_next
-- The number that the next event gets.
SELECT last_value + CASE WHEN is_called THEN 1 ELSE 0 END AS next FROM event_seq_seq;

-- name: events_floor
-- The least number that a transaction which is not over may still draw; a very large one if there is none. Ask for
-- events_next before it: who is not among these will draw a larger number than that.
SELECT COALESCE(min(CAST(classid AS bigint) % 256 * 4294967296 + CAST(objid AS bigint)), 4611686018427387904) AS floor
  FROM pg_locks
 WHERE locktype = 'advisory' AND objsubid = 1 AND CAST(classid AS bigint) / 256 = 7264002
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: events_insert
-- Append facts to the log, a JSON list of objects, in its order.
INSERT INTO event (at, actor, what, subject, before_status, after_status, tool, git_commit, data, changes)
SELECT at, actor, what, subject, before_status, after_status, tool, git_commit, data, changes
  FROM json_to_recordset(CAST(:events AS json))
    AS row (at bigint, actor text, what text, subject text, before_status text, after_status text, tool text,
            git_commit text, data text, changes text);

-- name: commit
-- The transaction is visible to others.
COMMIT;

-- name: events_announce
-- A hint to the readers on other hubs; they poll as well. It follows the commit: its lock is one for the whole server.
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
