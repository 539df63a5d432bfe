-- name: token_put
-- Keep a token's hash.
INSERT INTO token (id, hash, kind, agent_id, label, created_at, expires_at)
VALUES (:id, :hash, :kind, :agent_id, :label, :now, :expires_at);

-- name: token_find
-- The token with this hash that is good now, with its agent's role and type, and the instance that it is, if any.
SELECT token.id, token.kind, token.agent_id, agent.role, agent.type, instance.id AS instance_id, instance.tier
  FROM token LEFT JOIN agent ON agent.id = token.agent_id LEFT JOIN instance ON instance.agent_id = agent.id
 WHERE token.hash = :hash AND token.revoked_at IS NULL
   AND (token.expires_at IS NULL OR token.expires_at > :now);

-- name: tokens_gone
-- Those of these hashes that are of no token that is good now.
SELECT given.value AS hash
  FROM {each:hashes} AS given
 WHERE NOT EXISTS (
       SELECT 1 FROM token
        WHERE token.hash = given.value AND token.revoked_at IS NULL
          AND (token.expires_at IS NULL OR token.expires_at > :now));

-- name: instances_alive
-- The processes that lead the sessions of a node's instances.
SELECT id, pid, process_started FROM instance WHERE node = :node AND ended_how IS NULL AND pid IS NOT NULL;

-- name: instance_alive
-- An instance that has not ended, with its agent's role and type.
SELECT instance.id AS instance_id, instance.tier, agent.id AS agent_id, agent.role, agent.type
  FROM instance JOIN agent ON agent.id = instance.agent_id
 WHERE instance.id = :id AND instance.ended_how IS NULL;

-- name: instance_token
-- A token that still opens the hall as this agent.
SELECT id FROM token WHERE agent_id = :agent_id AND kind = 'agent' AND revoked_at IS NULL LIMIT 1;

-- name: link_use
-- Use up a one-time link.
DELETE FROM token WHERE hash = :hash AND kind = 'link' AND expires_at > :now RETURNING id;

-- name: tokens_revoke
-- Make an agent's tokens worthless.
UPDATE token SET revoked_at = :now WHERE agent_id = :agent_id AND kind = 'agent' AND revoked_at IS NULL;

-- name: tokens_expired_prune
-- Forget cookies and links that are over.
DELETE FROM token WHERE kind IN ('browser', 'link') AND expires_at <= :now;

-- name: instances_by_status
-- How many instances have which status.
SELECT status, count(*) AS total FROM instance GROUP BY status;

-- name: instances_by_end
-- How the processes of instances ended, in a few words that are always the same.
SELECT CASE WHEN ended_how IN ('exit 0', 'stopped', 'abandoned', 'done') THEN ended_how
            WHEN substr(ended_how, 1, 5) = 'exit ' THEN 'exit other'
            WHEN substr(ended_how, 1, 6) = 'killed' THEN 'killed'
            WHEN substr(ended_how, 1, 5) = 'setup' THEN 'setup failed'
            WHEN substr(ended_how, 1, 5) = 'could' THEN 'not started'
            ELSE 'unknown' END AS how, count(*) AS total
  FROM instance WHERE ended_how IS NOT NULL GROUP BY 1;

-- name: reviews_by_outcome
-- How many reviews came out how, and how long they took together; those that go on are `open`.
SELECT COALESCE(outcome, 'open') AS outcome, count(*) AS total, COALESCE(sum(ended_at - created_at), 0) AS took_ms
  FROM instance_relationships GROUP BY 1;

-- name: review_refusals_total
-- How many requests for a review were refused at the limit.
SELECT COALESCE(sum(review_refusals), 0) AS total FROM instance;
