-- name: answer_reserve
-- Take the place of a call's answer, unless one is kept there; whoever does it at the same time waits for the other.
INSERT INTO kept_answer (actor, tool, key, arguments_hash, kept_until)
VALUES (:actor, :tool, :key, :arguments_hash, :kept_until)
ON CONFLICT (actor, tool, key) DO UPDATE SET arguments_hash = excluded.arguments_hash, kept_until = excluded.kept_until
 WHERE kept_answer.kept_until <= :now;

-- name: answer_keep
-- Put the answer into its place.
UPDATE kept_answer SET body = :body WHERE actor = :actor AND tool = :tool AND key = :key;

-- name: answer_get
-- The answer that is kept, and what the call was.
SELECT arguments_hash, body FROM kept_answer WHERE actor = :actor AND tool = :tool AND key = :key;

-- name: answers_prune
-- Forget the answers that are kept no longer.
DELETE FROM kept_answer WHERE kept_until <= :now;

-- name: part_begin
-- Mark a place in the transaction.
SAVEPOINT part;

-- name: part_undo
-- Take back what was done since that place.
ROLLBACK TO SAVEPOINT part;

-- name: part_end
-- Forget the place.
RELEASE SAVEPOINT part;
