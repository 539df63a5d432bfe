-- name: hall_runs
-- The workflows that may be begun or worked on, held until commit.
SELECT id, name, status FROM workflow WHERE status IN ('ready', 'in_progress') ORDER BY id {for_update};

-- name: hall_hold
-- Workflows are held by a pause of the hall.
UPDATE workflow
   SET status = 'paused', status_reason = :reason, halted_by = 'operator', hall_pause = :pause, paused_from = status,
       updated_at = :now
 WHERE id IN {each:ids};

-- name: hall_held
-- The workflows that a pause of the hall holds, and what each was before, held until commit.
SELECT id, name, paused_from AS status FROM workflow WHERE hall_pause = :pause ORDER BY id {for_update};

-- name: hall_held_count
-- How many workflows a pause of the hall holds.
SELECT count(*) AS total FROM workflow WHERE hall_pause = :pause;

-- name: hall_let_go
-- They are what they were.
UPDATE workflow
   SET status = paused_from, status_reason = NULL, halted_by = NULL, hall_pause = NULL, paused_from = NULL,
       updated_at = :now
 WHERE id IN {each:ids};
