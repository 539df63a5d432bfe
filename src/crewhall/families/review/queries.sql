-- name: review_insert
-- A review begins.
INSERT INTO instance_relationships (parent_instance, child_instance, relationship_type, review_iteration, forked_from,
                                    completion_message, created_at)
VALUES (:coder, :reviewer, 'spawned_review', :iteration, :forked_from, :completion_message, :now);

-- name: task_under_review
-- The task that an agent holds, or held last, and who reviews the work on its workflow.
SELECT task.id, task.workflow_id, task.name, task.description, task.plan, workflow.reviewer
  FROM claim JOIN task ON task.id = claim.task_id JOIN workflow ON workflow.id = task.workflow_id
 WHERE claim.agent_id = :agent_id
 ORDER BY CASE WHEN task.claimed_by = :agent_id THEN 0 ELSE 1 END, claim.claimed_at DESC, claim.task_id LIMIT 1;

-- name: review_reported
-- The judge's report of a round.
UPDATE instance_relationships SET report_id = :report_id WHERE child_instance = :reviewer;

-- name: review_delete
-- Forget a review that never came to be.
DELETE FROM instance_relationships WHERE child_instance = :reviewer;

-- name: review_iteration
-- The last round that a coding instance was granted, 0 before the first.
SELECT COALESCE(MAX(review_iteration), 0) AS current_iteration
  FROM instance_relationships
 WHERE parent_instance = :coder AND relationship_type = 'spawned_review';

-- name: review_open
-- The review of a coding instance that goes on.
SELECT * FROM instance_relationships WHERE parent_instance = :coder AND ended_at IS NULL;

-- name: review_by
-- The review that a review instance was started for.
SELECT * FROM instance_relationships WHERE child_instance = :reviewer;

-- name: reviews_open
-- Reviews that go on, the oldest first.
SELECT * FROM instance_relationships WHERE ended_at IS NULL ORDER BY created_at, child_instance;

-- name: reviews_last
-- The last reviews of a coding instance, the newest first.
SELECT * FROM instance_relationships
 WHERE parent_instance = :coder ORDER BY created_at DESC, child_instance DESC LIMIT :limit;

-- name: review_end
-- A review is over. One that is given back is lost, and does not count.
UPDATE instance_relationships
   SET ended_at = :now, outcome = :outcome, relationship_type = :type
 WHERE child_instance = :reviewer AND ended_at IS NULL;

-- name: review_converged
-- Whether anything was left that blocks when a review's feedback came.
UPDATE instance_relationships SET converged = :converged WHERE child_instance = :reviewer;

-- name: review_refused
-- A request was refused at the limit.
UPDATE instance SET review_refusals = review_refusals + 1, updated_at = :now WHERE id = :id;

-- name: feedback_insert
-- Feedback that is about to be committed.
INSERT INTO review_feedback (id, reviewer, coder, review_iteration, feedback_type, priority, feedback, created_at)
VALUES (:id, :reviewer, :coder, :iteration, :feedback_type, :priority, :feedback, :now);

-- name: feedback_delete
-- Forget feedback that never was sent.
DELETE FROM review_feedback WHERE id = :id;

-- name: feedback_get
-- A feedback.
SELECT * FROM review_feedback WHERE id = :id;

-- name: feedback_committed
-- The commit of the file, and its merge where there is one.
UPDATE review_feedback SET git_commit = :git_commit, merge_commit = :merge_commit WHERE id = :id;

-- name: feedback_pending
-- Feedback that waits to be merged into its coder's branch, the oldest first.
SELECT * FROM review_feedback WHERE merge_commit IS NULL AND git_commit IS NOT NULL ORDER BY created_at, id;

-- name: feedback_waiting
-- An earlier feedback of a coding instance that waits to be merged.
SELECT id FROM review_feedback
 WHERE coder = :coder AND id <> :id AND merge_commit IS NULL AND git_commit IS NOT NULL LIMIT 1;

-- name: item_insert
-- An item that a feedback raises for the first time.
INSERT INTO review_item (id, coder, feedback_id, position, item, file, line, rule, is_blocking, fingerprint, seen_at, state,
                         created_at, updated_at)
VALUES (:id, :coder, :feedback_id, :position, :item, :file, :line, :rule, :is_blocking, :fingerprint, :seen_at, 'open',
        :now, :now);

-- name: item_raised
-- An item is raised once more, at this commit.
UPDATE review_item SET times = times + 1, seen_at = :seen_at, updated_at = :now WHERE id = :id;

-- name: item_settled
-- An item has another state, unless a person waived it.
UPDATE review_item SET state = :state, is_blocking = :is_blocking, claim = :claim, updated_at = :now
 WHERE id = :id AND state <> 'waived';

-- name: item_answered
-- A coder says what it did about an item.
UPDATE review_item SET state = :state, claim = :claim, note = :note, updated_at = :now WHERE id = :id;

-- name: item_waived
-- A person decides that an item need not be fixed.
UPDATE review_item SET state = 'waived', reason = :reason, updated_at = :now WHERE id = :id;

-- name: item_lock
-- An item, held until commit.
SELECT * FROM review_item WHERE id = :id {for_update};

-- name: items_of_coder
-- The items of a coding instance, the oldest first.
SELECT * FROM review_item WHERE coder = :coder ORDER BY created_at, position, id;

-- name: items_open
-- The items of a coding instance that are not settled, the oldest first.
SELECT * FROM review_item
 WHERE coder = :coder AND state IN ('open', 'repeated', 'disputed') ORDER BY created_at, position, id;

-- name: mention_insert
-- What a feedback says of an item.
INSERT INTO review_mention (feedback_id, position, item_id, found_by, item, file, line, rule, is_blocking)
VALUES (:feedback_id, :position, :item_id, :found_by, :item, :file, :line, :rule, :is_blocking);

-- name: mentions_of_coder
-- All that was said of a coding instance's items, the oldest first.
SELECT review_mention.* FROM review_mention JOIN review_item ON review_item.id = review_mention.item_id
 WHERE review_item.coder = :coder ORDER BY review_item.created_at, review_item.id, review_mention.feedback_id, review_mention.position;

-- name: items_of
-- What a feedback says of items, with their states of today.
SELECT m.item_id AS id, m.found_by, m.item, m.file, m.line, m.rule, m.is_blocking, i.state, i.times, i.claim, i.note,
       i.reason
  FROM review_mention m JOIN review_item i ON i.id = m.item_id WHERE m.feedback_id = :feedback_id ORDER BY m.position;

-- name: reviews
-- A page of reviews, the newest first.
SELECT r.*, f.id AS feedback_id, f.feedback_type, f.priority, f.git_commit, f.merge_commit,
       (SELECT count(*) FROM review_mention m WHERE m.feedback_id = f.id) AS items
  FROM instance_relationships r LEFT JOIN review_feedback f ON f.reviewer = r.child_instance AND f.git_commit IS NOT NULL
 WHERE (CAST(:coder AS text) IS NULL OR r.parent_instance = :coder)
   AND (CAST(:is_open AS integer) IS NULL OR (CASE WHEN r.ended_at IS NULL THEN 1 ELSE 0 END) = :is_open)
 ORDER BY r.created_at DESC, r.child_instance DESC LIMIT :limit OFFSET :offset;

-- name: reviews_count
-- How many reviews there are.
SELECT count(*) AS total FROM instance_relationships
 WHERE (CAST(:coder AS text) IS NULL OR parent_instance = :coder)
   AND (CAST(:is_open AS integer) IS NULL OR (CASE WHEN ended_at IS NULL THEN 1 ELSE 0 END) = :is_open);

-- name: instance_pull_set
-- An instance's pull request is open.
UPDATE instance SET pull_number = :number, pull_url = :url, updated_at = :now WHERE id = :id;

-- name: instances_with_pulls
-- Instances whose pull request is open, as far as the hall knows; also those that work on it again.
SELECT * FROM instance
 WHERE status IN ('started', 'waiting_review', 'pr_created') AND pull_number IS NOT NULL AND type <> 'review'
 ORDER BY updated_at, id;

-- name: issue_find
-- The issue of that title that an instance made in a repository, or is making.
SELECT * FROM instance_issue WHERE instance_id = :instance_id AND repository = :repository AND title = :title;

-- name: issue_get
-- An issue of an instance.
SELECT * FROM instance_issue WHERE id = :id;

-- name: issue_insert
-- An issue that is about to be made.
INSERT INTO instance_issue (id, instance_id, repository, title, body, labels, created_at)
VALUES (:id, :instance_id, :repository, :title, :body, :labels, :now);

-- name: issue_made
-- The host has the issue.
UPDATE instance_issue SET number = :number, url = :url WHERE id = :id;

-- name: issue_delete
-- Forget an issue that the host does not have.
DELETE FROM instance_issue WHERE id = :id AND number IS NULL;
