-- name: judge_roots
-- Repositories, those that agents made known only if asked for, and worktrees of this node's workspaces, that hold a path.
SELECT path FROM repository
 WHERE (registered_by = 'operator' OR :is_here = 1) AND substr(CAST(:path AS text) || '/', 1, length(path) + 1) = path || '/'
UNION ALL
SELECT path FROM workspace
 WHERE node = :node AND status = 'active' AND substr(CAST(:path AS text) || '/', 1, length(path) + 1) = path || '/';

-- name: judge_report_put
-- Keep what came of asking.
INSERT INTO judge_report (id, kind, subject, workflow_id, verdict, error, detail, ruling, question, node,
                          directory, commit_id, model, input_tokens, output_tokens, cost_usd, duration_ms, actor, created_at)
VALUES (:id, :kind, :subject, :workflow_id, :verdict, :error, :detail, :ruling, :question, :node,
        :directory, :commit_id, :model, :input_tokens, :output_tokens, :cost_usd, :duration_ms, :actor, :now);

-- name: judge_report_kept
-- The newest answer to a question.
SELECT * FROM judge_report WHERE question = :question ORDER BY created_at DESC, id LIMIT 1;

-- name: judge_report_get
-- One report.
SELECT * FROM judge_report WHERE id = :id;

-- name: judge_reports
-- A page of reports, the newest first, perhaps of one workflow, subject, kind or verdict.
SELECT id, kind, subject, workflow_id, verdict, error, model, input_tokens, output_tokens, cost_usd,
       duration_ms, actor, created_at
  FROM judge_report
 WHERE (CAST(:workflow_id AS text) IS NULL OR workflow_id = :workflow_id)
   AND (CAST(:subject AS text) IS NULL OR subject = :subject)
   AND (CAST(:kind AS text) IS NULL OR kind = :kind)
   AND (CAST(:verdict AS text) IS NULL OR verdict = :verdict)
 ORDER BY created_at DESC, id LIMIT :limit OFFSET :offset;

-- name: judge_spent
-- What those reports took together.
SELECT count(*) AS reports, COALESCE(sum(input_tokens), 0) AS input_tokens,
       COALESCE(sum(output_tokens), 0) AS output_tokens, COALESCE(sum(cost_usd), 0.0) AS cost_usd
  FROM judge_report
 WHERE (CAST(:workflow_id AS text) IS NULL OR workflow_id = :workflow_id)
   AND (CAST(:subject AS text) IS NULL OR subject = :subject)
   AND (CAST(:kind AS text) IS NULL OR kind = :kind)
   AND (CAST(:verdict AS text) IS NULL OR verdict = :verdict);
