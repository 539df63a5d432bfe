-- name: repository_get
-- The repository at a path.
SELECT id, path, name, created_at, updated_at FROM repository WHERE path = :path;

-- name: repository_put
-- Keep a repository; one that is there already keeps its id, and its name unless a new one is given.
INSERT INTO repository (id, path, name, registered_by, created_at, updated_at)
VALUES (:id, :path, COALESCE(CAST(:name AS text), CAST(:default_name AS text)), :actor, :now, :now)
ON CONFLICT (path) DO UPDATE SET name = COALESCE(CAST(:name AS text), repository.name), updated_at = :now,
   registered_by = CASE WHEN excluded.registered_by = 'operator' THEN 'operator' ELSE repository.registered_by END
RETURNING id, name;

-- name: repositories
-- A page of repositories, the longest known first.
SELECT id, path, name, created_at, updated_at FROM repository ORDER BY created_at, id LIMIT :limit OFFSET :offset;

-- name: repositories_count
-- How many repositories there are.
SELECT count(*) AS total FROM repository;
