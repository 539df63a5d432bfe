-- Family work: messages and what they say, and of each inbox how many it holds of every status and priority.
CREATE TABLE inbox (
  agent_id       text PRIMARY KEY,
  last_place     bigint NOT NULL,
  looked_through bigint NOT NULL DEFAULT 0,
  is_waiting     integer NOT NULL
);
CREATE INDEX inbox_waiting ON inbox (agent_id) WHERE is_waiting = 1;

CREATE TABLE inbox_tally (
  agent_id text NOT NULL,
  status   text NOT NULL CHECK (status IN ('unread', 'read', 'archived', 'expired')),
  priority text NOT NULL CHECK (priority IN ('low', 'normal', 'high', 'urgent')),
  messages bigint NOT NULL,
  PRIMARY KEY (agent_id, status, priority)
);

CREATE TABLE message_text (
  id   text PRIMARY KEY,
  form text NOT NULL CHECK (form IN ('text', 'object')),
  body text NOT NULL
);

CREATE TABLE message (
  id           text PRIMARY KEY,
  sender_id    text NOT NULL,
  recipient_id text NOT NULL,
  place        bigint NOT NULL,
  thread_id    text NOT NULL,
  turn         bigint NOT NULL,
  reply_to_id  text,
  message_type text NOT NULL CHECK (message_type IN ('task_assignment', 'status_update', 'query', 'response', 'notification')),
  priority     text NOT NULL CHECK (priority IN ('low', 'normal', 'high', 'urgent')),
  urgency      integer NOT NULL,
  subject      text,
  text_id      text NOT NULL,
  workflow_id  text,
  task_id      text,
  status       text NOT NULL CHECK (status IN ('unread', 'read', 'archived', 'expired')),
  expires_at   bigint,
  created_at   bigint NOT NULL,
  read_at      bigint,
  archived_at  bigint
);
CREATE INDEX message_inbox ON message (recipient_id, status, urgency, place);
CREATE INDEX message_inbox_all ON message (recipient_id, urgency, place);
CREATE INDEX message_thread ON message (thread_id, turn, id);
CREATE INDEX message_unread ON message (recipient_id, place) WHERE status = 'unread';
CREATE INDEX message_due ON message (expires_at) WHERE status = 'unread' AND expires_at IS NOT NULL;
CREATE INDEX message_overdue ON message (recipient_id, expires_at, priority)
 WHERE status = 'unread' AND expires_at IS NOT NULL;
