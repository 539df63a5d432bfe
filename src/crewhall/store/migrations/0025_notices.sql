-- What an agent is to be told in its next answer. A row is deleted once the answer is sent; `teller` is the process of
-- the hub that is sending it.
CREATE TABLE notice (
  id            text PRIMARY KEY,
  agent_id      text NOT NULL,
  kind          text NOT NULL,
  subject       text NOT NULL,
  text          text NOT NULL,
  created_at    bigint NOT NULL,
  expires_at    bigint,
  teller        text,
  telling_until bigint
);
CREATE INDEX notice_by_agent ON notice (agent_id, created_at);
CREATE INDEX notice_by_subject ON notice (subject);
