-- Answers to calls with an idempotency key, kept for a while in case the call comes again.
CREATE TABLE kept_answer (
  actor          text NOT NULL,
  tool           text NOT NULL,
  key            text NOT NULL,
  arguments_hash text NOT NULL,
  body           text,
  kept_until     bigint NOT NULL,
  PRIMARY KEY (actor, tool, key)
);
CREATE INDEX kept_answer_until ON kept_answer (kept_until);
