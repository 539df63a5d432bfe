-- name: operation_insert
-- Note what is about to be done; no row when the same is under way.
INSERT INTO operation (id, kind, subject, place, step, data, actor, holder, lease_until, created_at, updated_at)
VALUES (:id, :kind, :subject, :place, NULL, :data, :actor, :holder, :lease_until, :now, :now)
ON CONFLICT (kind, subject) DO NOTHING
RETURNING *;

-- name: operation_beat
-- Prolong one's lease, or let go of it until a time.
UPDATE operation SET lease_until = :lease_until, updated_at = :now WHERE id = :id AND holder = :holder;

-- name: operation_step
-- A step is done.
UPDATE operation SET step = :step, data = :data, lease_until = :lease_until, updated_at = :now
 WHERE id = :id AND holder = :holder;

-- name: operation_end
-- It is finished.
DELETE FROM operation WHERE id = :id;

-- name: operation_drop
-- It is undone, if it is still ours.
DELETE FROM operation WHERE id = :id AND holder = :holder;

-- name: operations_left
-- How many operations of a kind at or below a place were left by whoever worked on them.
SELECT count(*) AS total FROM operation
 WHERE kind = :kind AND lease_until <= :now
   AND (place = :place OR substr(place, 1, length(CAST(:place AS text)) + 1) = :place || '/');

-- name: operations_held
-- The operations of a kind at a place that somebody works on, or worked on when it died.
SELECT id, holder FROM operation WHERE kind = :kind AND place = :place AND lease_until > :now;

-- name: operations_take
-- Take the oldest of them: nobody else settles them at the same time.
UPDATE operation SET holder = :holder, lease_until = :lease_until, updated_at = :now
 WHERE id IN (SELECT id FROM operation
               WHERE kind = :kind AND lease_until <= :now
                 AND (place = :place OR substr(place, 1, length(CAST(:place AS text)) + 1) = :place || '/')
               ORDER BY lease_until, id LIMIT :limit)
   AND lease_until <= :now
RETURNING *;

-- name: operation_oldest
-- When the oldest open operation began.
SELECT min(created_at) AS at FROM operation;
