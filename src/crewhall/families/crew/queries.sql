-- name: instance_get
-- An instance.
SELECT * FROM instance WHERE id = :id;

-- name: instance_lock
-- An instance, held until commit.
SELECT * FROM instance WHERE id = :id {for_update};

-- name: instance_of_agent
-- The instance that an agent is.
SELECT id FROM instance WHERE agent_id = :agent_id;

-- name: instance_insert
-- A new instance, about to be started.
INSERT INTO instance (id, agent_id, type, status, runtime, node, repository_path, worktree, branch, base_branch, session,
                      conversation_id, prompt, tier, issue_number, parent, ports, created_at, updated_at)
VALUES (:id, :agent_id, :type, 'started', :runtime, :node, :repository_path, :worktree, :branch, :base_branch, :session,
        :conversation_id, :prompt, :tier, :issue_number, :parent, :ports, :now, :now);

-- name: instance_ports
-- The ports that are handed out on a node.
SELECT ports FROM instance WHERE node = :node AND ports <> '[]';

-- name: instance_ports_free
-- An instance gives its ports back.
UPDATE instance SET ports = '[]' WHERE id = :id;

-- name: instance_delete
-- Forget an instance that never came to be.
DELETE FROM instance WHERE id = :id;

-- name: instance_agent_delete
-- Forget the agent of an instance that never came to be.
DELETE FROM agent WHERE id = :agent_id AND NOT EXISTS (SELECT 1 FROM instance WHERE agent_id = :agent_id);

-- name: instance_ids_with
-- The ids that begin with a stem.
SELECT id FROM instance WHERE substr(id, 1, length(CAST(:stem AS text))) = :stem;

-- name: instance_ids
-- Ids that begin so, the newest first, and how many there are in all.
SELECT id AS value, count(*) OVER () AS total
  FROM instance WHERE substr(id, 1, length(CAST(:prefix AS text))) = :prefix ORDER BY created_at DESC, id LIMIT :limit;

-- name: instances
-- A page of instances, the newest first.
SELECT * FROM instance
 WHERE (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
   AND (CAST(:type AS text) IS NULL OR type = :type)
   AND (CAST(:repository AS text) IS NULL OR repository_path = :repository)
 ORDER BY created_at DESC, id LIMIT :limit OFFSET :offset;

-- name: instances_count
-- How many instances there are.
SELECT count(*) AS total FROM instance
 WHERE (CAST(:statuses AS text) IS NULL OR status IN {each:statuses})
   AND (CAST(:type AS text) IS NULL OR type = :type)
   AND (CAST(:repository AS text) IS NULL OR repository_path = :repository);

-- name: instances_on_node
-- The instances of a node that are not over, or not cleared away.
SELECT * FROM instance
 WHERE node = :node AND (status NOT IN ('abandoned', 'pr_merged') OR problem IS NOT NULL) ORDER BY created_at, id;

-- name: instance_process_set
-- An instance's session is led by this process.
UPDATE instance
   SET pid = :pid, process_started = :process_started, ended_how = NULL, ended_at = NULL, last_activity_at = :now,
       updated_at = :now
 WHERE id = :id;

-- name: instance_status_set
-- An instance has another status.
UPDATE instance SET status = :status, problem = :problem, updated_at = :now WHERE id = :id;

-- name: instance_ended
-- An instance's process is gone.
UPDATE instance SET ended_how = :how, ended_at = :at, updated_at = :now WHERE id = :id AND ended_how IS NULL;

-- name: instance_problem_set
-- What hinders the hall in ending an instance, if anything does.
UPDATE instance SET problem = :problem, updated_at = :now WHERE id = :id;

-- name: instance_saved_set
-- The refs that keep an instance's uncommitted work.
UPDATE instance SET saved_refs = :saved_refs, updated_at = :now WHERE id = :id;

-- name: instance_usage_set
-- How many tokens an instance has used, and when it was last active.
UPDATE instance SET input_tokens = :input_tokens, output_tokens = :output_tokens, last_activity_at = :active_at
 WHERE id = :id;

-- name: operations_on
-- The kinds of operations that are under way on an instance.
SELECT kind FROM operation WHERE subject = :subject ORDER BY kind;

-- name: instance_message_insert
-- A message for an instance's conversation.
INSERT INTO instance_message (id, instance_id, sender, body, created_at) VALUES (:id, :instance_id, :sender, :body, :now);

-- name: instance_messages_open
-- Messages that are not delivered yet, the oldest first.
SELECT * FROM instance_message WHERE instance_id = :instance_id AND delivered_at IS NULL ORDER BY created_at, id;

-- name: instance_message_get
-- A message for an instance.
SELECT * FROM instance_message WHERE id = :id;

-- name: instance_message_delivered
-- The instance's conversation has the message.
UPDATE instance_message SET delivered_at = :now, delivered_by = :how WHERE id = :id AND delivered_at IS NULL;

-- name: agent_back
-- An instance's agent is here again.
UPDATE agent
   SET status = CASE WHEN EXISTS (SELECT 1 FROM task WHERE claimed_by = agent.id) THEN 'busy' ELSE 'online' END,
       disconnected_since = NULL, lease_until = :until, has_left = 0, updated_at = :now
 WHERE id = :id;

-- name: operations_at
-- The operations on instances that are under way at a place, the oldest first.
SELECT kind, subject, step, created_at FROM operation WHERE place = :place ORDER BY created_at, id;

-- name: instances_with_tokens
-- The instances of a node that are over, and whose token still opens the hall.
SELECT id, agent_id, status FROM instance
 WHERE node = :node AND status IN ('terminated', 'abandoned')
   AND EXISTS (SELECT 1 FROM token
                WHERE token.agent_id = instance.agent_id AND token.kind = 'agent' AND token.revoked_at IS NULL)
 ORDER BY created_at, id;

-- name: user_config_set
-- Keep a setting in the hall.
INSERT INTO user_config (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;
