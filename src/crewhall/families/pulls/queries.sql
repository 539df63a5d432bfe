-- name: pull_begin
-- Note that a pull is being opened; no row when another call is at the same change.
INSERT INTO pull (id, provider, host, owner, name, branch, base_branch, title, change_type, digest, paths, state,
                  actor, holder, lease_until, created_at, updated_at)
VALUES (:id, :provider, :host, :owner, :name, :branch, :base_branch, :title, :change_type, :digest, :paths,
        'opening', :actor, :holder, :lease_until, :now, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: pull_in_the_way
-- The pull that is being opened for the same change.
SELECT * FROM pull
 WHERE host = :host AND owner = :owner AND name = :name AND state = 'opening'
   AND (branch = :branch OR digest = :digest)
 ORDER BY created_at LIMIT 1;

-- name: pull_keep
-- Prolong one's lease.
UPDATE pull SET lease_until = :lease_until, updated_at = :now
 WHERE id = :id AND holder = :holder AND state IN ('opening', 'left');

-- name: pull_opened
-- The host has it; that is so whoever holds the row.
UPDATE pull SET state = 'open', number = :number, url = :url, commit_id = :commit_id, updated_at = :now
 WHERE id = :id AND state IN ('opening', 'left')
RETURNING id;

-- name: pull_given_up
-- Nothing came of it.
DELETE FROM pull WHERE id = :id AND holder = :holder AND state IN ('opening', 'left') RETURNING id;

-- name: pull_leave
-- Let go of it: it blocks nobody, and is looked at again when its lease is over.
UPDATE pull SET state = 'left', lease_until = :lease_until, updated_at = :now
 WHERE id = :id AND holder = :holder AND state IN ('opening', 'left');

-- name: pulls_beside
-- The latest pulls of a repository into a branch that are being opened, or were open when the hall last looked.
SELECT * FROM pull
 WHERE host = :host AND owner = :owner AND name = :name AND base_branch = :base_branch AND state IN ('opening', 'open')
 ORDER BY created_at DESC, id LIMIT 200;

-- name: pull_ended
-- The host has it no longer open.
UPDATE pull SET state = 'ended', updated_at = :now WHERE id = :id AND state = 'open';

-- name: pulls_left
-- How many pulls on a host somebody began to open and left; of one repository, or of all.
SELECT count(*) AS total FROM pull
 WHERE host = :host AND state IN ('opening', 'left') AND lease_until <= :now
   AND (CAST(:owner AS text) IS NULL OR (owner = :owner AND name = :name));

-- name: pulls_take
-- Take the oldest of them for oneself: nobody else settles them at the same time.
UPDATE pull SET holder = :holder, lease_until = :lease_until, updated_at = :now
 WHERE id IN (SELECT id FROM pull
               WHERE host = :host AND state IN ('opening', 'left') AND lease_until <= :now
                 AND (CAST(:owner AS text) IS NULL OR (owner = :owner AND name = :name))
               ORDER BY lease_until, id LIMIT :limit)
   AND state IN ('opening', 'left') AND lease_until <= :now
RETURNING *;
