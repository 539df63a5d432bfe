-- name: message_answered
-- The thread of a message that is answered, and the turn that comes next in it.
SELECT thread_id, (SELECT max(turn) FROM message AS other WHERE other.thread_id = message.thread_id) + 1 AS turn
  FROM message WHERE id = :id;

-- name: broadcast_agents
-- The agents that a broadcast reaches.
SELECT id
  FROM agent
 WHERE status IN {each:statuses}
   AND (CAST(:role AS text) IS NULL OR role = :role)
   AND (CAST(:runtime AS text) IS NULL OR runtime = :runtime)
   AND id <> :sender
 ORDER BY id;

-- name: inboxes_take
-- Hold inboxes until commit, always in the order of their names, and give each so many new places.
INSERT INTO inbox (agent_id, last_place, is_waiting)
SELECT value, CAST(:places AS bigint), 1 FROM {each:agents} AS taken WHERE true ORDER BY value
    ON CONFLICT (agent_id) DO UPDATE SET last_place = inbox.last_place + excluded.last_place, is_waiting = 1;

-- name: inbox_tally_add
-- Count messages of one status and priority, or count them off.
INSERT INTO inbox_tally (agent_id, status, priority, messages) VALUES (:agent, :status, :priority, :messages)
    ON CONFLICT (agent_id, status, priority) DO UPDATE SET messages = inbox_tally.messages + excluded.messages;

-- name: inbox_tallies
-- How many messages an inbox holds, by status and priority.
SELECT status, priority, messages FROM inbox_tally WHERE agent_id = :agent;

-- name: inbox_overdue
-- How many of an inbox's unread messages have expired, and no chore has seen to it yet, by priority.
SELECT priority, count(*) AS messages
  FROM message
 WHERE recipient_id = :agent AND status = 'unread' AND expires_at IS NOT NULL AND expires_at <= :now
 GROUP BY priority;

-- name: message_text_put
-- What one or more messages say.
INSERT INTO message_text (id, form, body) VALUES (:text, :form, :body);

-- name: message_insert
-- A message at its turn in the thread, and in the recipient's inbox so many places behind the last one taken.
INSERT INTO message (id, sender_id, recipient_id, place, thread_id, turn, reply_to_id, message_type, priority, urgency,
                     subject, text_id, workflow_id, task_id, status, expires_at, created_at)
VALUES (:id, :sender, :recipient, (SELECT last_place FROM inbox WHERE agent_id = :recipient) - :behind, :thread, :turn, :reply_to, :type, :priority, :urgency,
        :subject, :text, :workflow, :task, 'unread', :expires_at, :now);

-- name: message_get
-- A message with all that it says.
SELECT m.id, m.sender_id, m.recipient_id, m.message_type, m.subject, m.priority, m.workflow_id, m.task_id,
       m.thread_id, m.reply_to_id, m.status, m.created_at, m.read_at, m.archived_at, m.expires_at,
       t.form, t.body, length(t.body) AS letters
  FROM message AS m JOIN message_text AS t ON t.id = m.text_id
 WHERE m.id = :id;

-- name: inbox_messages
-- A page of an inbox's unread or read messages with the beginning of what they say, the most urgent and newest first.
SELECT m.id, m.sender_id, m.recipient_id, m.message_type, m.subject, m.priority, m.workflow_id, m.task_id,
       m.thread_id, m.reply_to_id, m.status, m.created_at, m.read_at, m.archived_at, m.expires_at,
       t.form, substr(t.body, 1, :letters) AS body, length(t.body) AS letters, m.urgency, m.place
  FROM message AS m JOIN message_text AS t ON t.id = m.text_id
 WHERE m.recipient_id = :agent AND m.status = :status
   AND (m.urgency, m.place) < (:urgency, :place) AND m.urgency >= :lowest
   AND (m.status <> 'unread' OR m.expires_at IS NULL OR m.expires_at > :now)
   AND (CAST(:types AS text) IS NULL OR m.message_type IN {each:types})
   AND (CAST(:priorities AS text) IS NULL OR m.priority IN {each:priorities})
   AND (CAST(:workflow AS text) IS NULL OR m.workflow_id = :workflow)
   AND m.created_at >= :since
 ORDER BY m.urgency DESC, m.place DESC LIMIT :limit;

-- name: inbox_messages_all
-- A page of an inbox's messages of every status, in the same order.
SELECT m.id, m.sender_id, m.recipient_id, m.message_type, m.subject, m.priority, m.workflow_id, m.task_id,
       m.thread_id, m.reply_to_id, m.status, m.created_at, m.read_at, m.archived_at, m.expires_at,
       t.form, substr(t.body, 1, :letters) AS body, length(t.body) AS letters, m.urgency, m.place
  FROM message AS m JOIN message_text AS t ON t.id = m.text_id
 WHERE m.recipient_id = :agent
   AND (m.urgency, m.place) < (:urgency, :place) AND m.urgency >= :lowest
   AND (CAST(:types AS text) IS NULL OR m.message_type IN {each:types})
   AND (CAST(:priorities AS text) IS NULL OR m.priority IN {each:priorities})
   AND (CAST(:workflow AS text) IS NULL OR m.workflow_id = :workflow)
   AND m.created_at >= :since
 ORDER BY m.urgency DESC, m.place DESC LIMIT :limit;

-- name: inbox_messages_count
-- How many messages of an inbox match.
SELECT count(*) AS total
  FROM message AS m
 WHERE m.recipient_id = :agent
   AND (CAST(:status AS text) IS NULL OR m.status = :status)
   AND (CAST(:status AS text) IS NULL OR m.status <> 'unread' OR m.expires_at IS NULL OR m.expires_at > :now)
   AND (CAST(:types AS text) IS NULL OR m.message_type IN {each:types})
   AND (CAST(:priorities AS text) IS NULL OR m.priority IN {each:priorities})
   AND (CAST(:workflow AS text) IS NULL OR m.workflow_id = :workflow)
   AND m.created_at >= :since;

-- name: thread_messages
-- A page of what an agent sent and received in a thread, in the order sent.
SELECT m.id, m.sender_id, m.recipient_id, m.message_type, m.subject, m.priority, m.workflow_id, m.task_id,
       m.thread_id, m.reply_to_id, m.status, m.created_at, m.read_at, m.archived_at, m.expires_at,
       t.form, substr(t.body, 1, :letters) AS body, length(t.body) AS letters, m.turn
  FROM message AS m JOIN message_text AS t ON t.id = m.text_id
 WHERE m.thread_id = :thread AND (m.recipient_id = :agent OR m.sender_id = :agent)
   AND (m.turn, m.id) > (:turn, :id)
   AND (CAST(:status AS text) IS NULL OR m.status = :status)
   AND (CAST(:status AS text) IS NULL OR m.status <> 'unread' OR m.expires_at IS NULL OR m.expires_at > :now)
   AND (CAST(:types AS text) IS NULL OR m.message_type IN {each:types})
   AND (CAST(:priorities AS text) IS NULL OR m.priority IN {each:priorities})
   AND (CAST(:workflow AS text) IS NULL OR m.workflow_id = :workflow)
   AND m.created_at >= :since
 ORDER BY m.turn, m.id LIMIT :limit;

-- name: thread_messages_count
-- How many messages that an agent sent and received in a thread match.
SELECT count(*) AS total
  FROM message AS m
 WHERE m.thread_id = :thread AND (m.recipient_id = :agent OR m.sender_id = :agent)
   AND (CAST(:status AS text) IS NULL OR m.status = :status)
   AND (CAST(:status AS text) IS NULL OR m.status <> 'unread' OR m.expires_at IS NULL OR m.expires_at > :now)
   AND (CAST(:types AS text) IS NULL OR m.message_type IN {each:types})
   AND (CAST(:priorities AS text) IS NULL OR m.priority IN {each:priorities})
   AND (CAST(:workflow AS text) IS NULL OR m.workflow_id = :workflow)
   AND m.created_at >= :since;

-- name: messages_named
-- Whose some messages are, and how they stand.
SELECT id, recipient_id, status, priority, expires_at FROM message WHERE id IN {each:ids};

-- name: messages_move
-- Give messages another status, and note when they were read or archived.
UPDATE message
   SET status = :status,
       read_at = CASE WHEN CAST(:status AS text) = 'read' THEN CAST(:now AS bigint) ELSE read_at END,
       archived_at = CASE WHEN CAST(:status AS text) = 'archived' THEN CAST(:now AS bigint) ELSE archived_at END
 WHERE id IN {each:ids};

-- name: messages_due
-- Unread messages that have expired, the longest expired first.
SELECT id
  FROM message
 WHERE status = 'unread' AND expires_at IS NOT NULL AND expires_at <= :now
 ORDER BY expires_at LIMIT :limit;

-- name: inboxes_of_the_lost
-- Inboxes with something new since they were last looked through, of agents that are offline past their lease.
-- A CROSS JOIN keeps SQLite from going through all agents that ever left.
SELECT inbox.agent_id
  FROM inbox CROSS JOIN agent
 WHERE inbox.is_waiting = 1 AND agent.id = inbox.agent_id AND agent.status = 'offline' AND agent.lease_until < :now
 ORDER BY inbox.agent_id LIMIT :limit;

-- name: inbox_undelivered
-- Unread messages of an inbox, past the place it was looked through to, whose sender can be told; oldest first.
SELECT m.id, m.place, m.sender_id, m.recipient_id, m.thread_id, m.message_type, m.subject, m.workflow_id, m.task_id,
       recipient.name AS recipient_name,
       (SELECT max(turn) FROM message AS other WHERE other.thread_id = m.thread_id) + 1 AS turn
  FROM inbox
  JOIN message AS m ON m.recipient_id = inbox.agent_id
  JOIN agent AS recipient ON recipient.id = m.recipient_id
  LEFT JOIN agent AS sender ON sender.id = m.sender_id
 WHERE inbox.agent_id = :agent AND m.recipient_id = :agent AND m.status = 'unread' AND m.place > inbox.looked_through
   AND (m.expires_at IS NULL OR m.expires_at > :now)
   AND m.sender_id <> m.recipient_id AND (m.sender_id = 'operator' OR sender.has_left = 0)
 ORDER BY m.place LIMIT :limit;

-- name: inbox_looked
-- Note up to which place an inbox was looked through, or that all of it was.
UPDATE inbox
   SET looked_through = COALESCE(CAST(:place AS bigint), last_place),
       is_waiting = CASE WHEN CAST(:place AS bigint) IS NULL THEN 0 ELSE 1 END
 WHERE agent_id = :agent;
