-- name: event_insert
-- Append one fact to the log.
INSERT INTO event (at, actor, what, subject, before_status, after_status, tool, git_commit, data, changes)
VALUES (:at, :actor, :what, :subject, :before_status, :after_status, :tool, :git_commit, :data, :changes);

-- name: think
-- Nothing: nobody ends a transaction that stands still.
SELECT 1;

-- name: tables
-- The hall's tables.
SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name;

-- name: event_number_set
-- Go on numbering after the newest event, the forgotten ones and a least number too.
INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq)
SELECT (SELECT rowid FROM sqlite_sequence WHERE name = 'event'), 'event',
       max(:least, COALESCE((SELECT max(seq) FROM event), 0),
           COALESCE((SELECT CAST(value AS integer) FROM hall WHERE key = 'events_pruned_through'), 0));

-- name: foreign_keys_defer
-- Look only at the commit whether every row that is referred to is there.
PRAGMA defer_foreign_keys = ON;

-- name: foreign_key_check
-- The tables with rows that refer to what is not there.
PRAGMA foreign_key_check;

-- name: quick_check
-- The word ok, or what is damaged.
PRAGMA quick_check(1);

-- name: call_log_put
-- Note calls, a JSON list of objects, in one statement; a second time for the same call says how it really ended.
INSERT INTO call_log (id, at, tool, actor, edge, success, error, duration_ms, instance_id, git_commit, before_status,
                      after_status)
SELECT value ->> 'id', value ->> 'at', value ->> 'tool', value ->> 'actor', value ->> 'edge', value ->> 'success',
       value ->> 'error', value ->> 'duration_ms', value ->> 'instance_id', value ->> 'git_commit',
       value ->> 'before_status', value ->> 'after_status'
  FROM json_each(:rows) WHERE true
    ON CONFLICT (id) DO UPDATE SET success = excluded.success, error = excluded.error, duration_ms = excluded.duration_ms;
