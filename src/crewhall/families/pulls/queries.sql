-- name: pull_begin
-- Note that a pull is being opened; no row when another call is at the same change.
INSERT INTO pull (id, provider, host, owner, name, branch, base_branch, title, change_type, digest, paths, state,
                  actor, holder, lease_until, created_at, updated_at)
VALUES (:id, :provider, :host, :owner, :name, :branch, :base_branch, :title, :change_type, :digest, :paths,
        'opening', :actor, :holder, :lease_until, :now, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: pull_in_the_way
-- The pull that is being opened for the same change, and how long whoever opens it is waited for.
SELECT pull.id, pull.provider, pull.host, pull.owner, pull.name, pull.branch, pull.base_branch, pull.title, pull.digest,
       pull.paths, pull.state, pull.number, pull.url, pull.actor, COALESCE(operation.lease_until, 0) AS lease_until
  FROM pull
  LEFT JOIN operation ON operation.kind = 'pull_open' AND operation.subject = pull.id
 WHERE pull.host = :host AND pull.owner = :owner AND pull.name = :name AND pull.state = 'opening'
   AND (pull.branch = :branch OR pull.digest = :digest)
 ORDER BY pull.created_at LIMIT 1;

-- name: pull_opened
-- The host has it; that is so whoever holds the row.
UPDATE pull SET state = 'open', number = :number, url = :url, commit_id = :commit_id, updated_at = :now
 WHERE id = :id AND state IN ('opening', 'left')
RETURNING *;

-- name: pull_given_up
-- Nothing came of it.
DELETE FROM pull WHERE id = :id AND state IN ('opening', 'left') RETURNING *;

-- name: pull_leave
-- It blocks nobody any more.
UPDATE pull SET state = 'left', updated_at = :now WHERE id = :id AND state IN ('opening', 'left');

-- name: pulls_beside
-- The latest pulls of a repository into a branch that are being opened, or were open when the hall last looked.
SELECT pull.id, pull.provider, pull.host, pull.owner, pull.name, pull.branch, pull.base_branch, pull.title, pull.digest,
       pull.paths, pull.state, pull.number, pull.url, pull.actor, COALESCE(operation.lease_until, 0) AS lease_until
  FROM pull
  LEFT JOIN operation ON operation.kind = 'pull_open' AND operation.subject = pull.id
 WHERE pull.host = :host AND pull.owner = :owner AND pull.name = :name AND pull.base_branch = :base_branch
   AND pull.state IN ('opening', 'open')
 ORDER BY pull.created_at DESC, pull.id LIMIT 200;

-- name: pull_ended
-- The host has it no longer open.
UPDATE pull SET state = 'ended', updated_at = :now WHERE id = :id AND state = 'open';

-- name: pull_get
-- A pull.
SELECT * FROM pull WHERE id = :id;
