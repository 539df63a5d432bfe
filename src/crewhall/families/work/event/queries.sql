-- name: calls
-- The latest calls before a place, newest first, perhaps of one tool or actor, or the failed ones alone.
SELECT id, at, tool, actor, edge, success, error, duration_ms, instance_id, git_commit, before_status, after_status
  FROM call_log
 WHERE (CAST(:tool AS text) IS NULL OR tool = :tool)
   AND (CAST(:actor AS text) IS NULL OR actor = :actor)
   AND (CAST(:success AS integer) IS NULL OR success = :success)
   AND (at < :at OR (at = :at AND id < :id))
 ORDER BY at DESC, id DESC LIMIT :limit;

-- name: calls_count
-- How many calls are kept, perhaps of one tool or actor, or the failed ones alone.
SELECT count(*) AS total
  FROM call_log
 WHERE (CAST(:tool AS text) IS NULL OR tool = :tool)
   AND (CAST(:actor AS text) IS NULL OR actor = :actor)
   AND (CAST(:success AS integer) IS NULL OR success = :success);
