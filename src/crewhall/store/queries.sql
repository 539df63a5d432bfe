-- name: events_after
-- Events after a cursor, oldest first, perhaps of one topic, subject or actor.
SELECT seq, at, actor, what, subject, before_status, after_status, tool, git_commit, data, changes
  FROM event
 WHERE seq > :after
   AND (CAST(:topic AS text) IS NULL OR what = :topic OR substr(what, 1, length(:topic) + 1) = :topic || '.')
   AND (CAST(:subject AS text) IS NULL OR subject = :subject)
   AND (CAST(:actor AS text) IS NULL OR actor = :actor)
 ORDER BY seq
 LIMIT :limit;

-- name: events_count
-- How many events there are after a cursor, perhaps of one topic, subject or actor.
SELECT count(*) AS total
  FROM event
 WHERE seq > :after
   AND (CAST(:topic AS text) IS NULL OR what = :topic OR substr(what, 1, length(:topic) + 1) = :topic || '.')
   AND (CAST(:subject AS text) IS NULL OR subject = :subject)
   AND (CAST(:actor AS text) IS NULL OR actor = :actor);

-- name: event_newest
-- The newest event's number, 0 when there is none.
SELECT COALESCE(max(seq), 0) AS seq FROM event;

-- name: event_bounds
-- The newest event's number, and that of the last one that was pruned; 0 when there is none.
SELECT COALESCE((SELECT max(seq) FROM event), 0) AS newest,
       COALESCE((SELECT CAST(value AS bigint) FROM hall WHERE key = 'events_pruned_through'), 0) AS pruned;

-- name: events_prune
-- Forget the events up to a number.
DELETE FROM event WHERE seq <= :through;

-- name: events_prunable
-- The number of the newest event older than a time.
SELECT COALESCE(max(seq), 0) AS seq FROM event WHERE at < :before;

-- name: hall_get
-- One fact about the hall itself.
SELECT value FROM hall WHERE key = :key;

-- name: hall_set
-- Keep one fact about the hall itself.
INSERT INTO hall (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: hall_found
-- Give the hall its id, unless it has one.
INSERT INTO hall (key, value) VALUES ('id', :id) ON CONFLICT (key) DO NOTHING;

-- name: hall_lock
-- Hold the hall's own row: for rules about the hall as a whole.
SELECT key FROM hall WHERE key = 'id' {for_update};

-- name: hall_share
-- Share the hall's own row: what is decided for the hall as a whole stays so until commit.
SELECT key FROM hall WHERE key = 'id' {for_share};

-- name: hall_drop
-- Forget one fact about the hall itself.
DELETE FROM hall WHERE key = :key;

-- name: call_log_prune
-- Forget the calls older than a time.
DELETE FROM call_log WHERE at < :before;

-- name: chore_holder
-- Who has a chore, and until when.
SELECT holder, held_until FROM chore WHERE name = :name;

-- name: chore_take
-- Take a chore for a while, unless another hub has it now that is not known to be dead.
INSERT INTO chore (name, holder, held_until) VALUES (:name, :holder, :until)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
 WHERE chore.holder = excluded.holder OR chore.held_until <= :now OR chore.holder = CAST(:dead AS text);

-- name: chores_renew
-- Prolong a hub's leases of chores; the names of those that it still has.
UPDATE chore SET held_until = :until WHERE holder = :holder AND name IN {each:names} RETURNING name;

-- name: migrations_applied
-- The numbers of the schema steps this hall has taken.
SELECT number FROM migration ORDER BY number;

-- name: migration_note
-- Record a schema step.
INSERT INTO migration (number, name, applied_at) VALUES (:number, :name, :now);

-- name: event_owners
-- The workflows of the tasks and workspaces that events are about, and the recipients of their threads.
SELECT id AS subject, workflow_id AS owner FROM task WHERE id IN {each:ids}
 UNION ALL
SELECT id, workflow_id FROM workspace WHERE id IN {each:ids} AND workflow_id IS NOT NULL
 UNION ALL
SELECT DISTINCT thread_id, recipient_id FROM message WHERE thread_id IN {each:ids};
