-- name: notice_put
-- An agent is to be told something in its next answer.
INSERT INTO notice (id, agent_id, kind, subject, text, created_at, expires_at)
VALUES (:id, :agent_id, :kind, :subject, :text, :now, :expires_at);

-- name: notices_withdraw
-- What is no longer so is not told any more. All that change notices lock them by id: no two wait for each other.
DELETE FROM notice
 WHERE id IN (SELECT id FROM notice WHERE subject IN {each:subjects} AND kind = :kind ORDER BY id {for_update});

-- name: notice_waiting
-- Whether anything waits for an agent: most of the time nothing does, and that is told soonest.
SELECT 1 AS waits FROM notice WHERE agent_id = :agent_id LIMIT 1;

-- name: notices_drop
-- An agent is told nothing any more.
DELETE FROM notice WHERE agent_id = :agent_id;

-- name: notices_open
-- What an agent is to be told, the oldest first; what others can make many of comes after all else.
SELECT id, teller, telling_until
  FROM notice
 WHERE agent_id = :agent_id AND (expires_at IS NULL OR expires_at > :now)
 ORDER BY CASE WHEN kind IN ('message', 'named') THEN 1 ELSE 0 END, created_at LIMIT :limit;

-- name: notices_take
-- This hub tells them, unless another has taken them just now.
UPDATE notice SET teller = :own, telling_until = :until
 WHERE id IN (SELECT id FROM notice WHERE id IN {each:ids} ORDER BY id {for_update})
   AND (teller IS NULL OR telling_until < :now OR teller IN {each:dead})
RETURNING id, text, created_at;

-- name: notices_told
-- The answers that told them are sent.
DELETE FROM notice
 WHERE id IN (SELECT id FROM notice WHERE id IN {each:ids} ORDER BY id {for_update}) AND teller = :own;
