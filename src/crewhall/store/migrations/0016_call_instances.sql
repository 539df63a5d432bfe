-- The call log says which instance a call is about. Its columns git_commit, before_status and after_status are used now.
ALTER TABLE call_log ADD COLUMN instance_id text;

-- The call log under the name that clients of the review loop know.
CREATE VIEW mcp_events AS
SELECT id, at, tool AS tool_name, actor, instance_id, success, error, duration_ms, git_commit AS git_commit_hash,
       before_status AS status_before, after_status AS status_after
  FROM call_log;
