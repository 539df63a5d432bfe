-- The life of a review's item: how often it was raised, at which commit last, and what its coder or a person says of it.
ALTER TABLE review_item ADD COLUMN fingerprint text NOT NULL DEFAULT '';
ALTER TABLE review_item ADD COLUMN times integer NOT NULL DEFAULT 1;
ALTER TABLE review_item ADD COLUMN seen_at text;
ALTER TABLE review_item ADD COLUMN claim text CHECK (claim IN ('fixed', 'disputed'));
ALTER TABLE review_item ADD COLUMN note text;
ALTER TABLE review_item ADD COLUMN reason text;

-- Each time that a feedback raised an item, in the words of then. found_by says how it was known to be that item.
CREATE TABLE review_mention (
  feedback_id text NOT NULL,
  position    integer NOT NULL,
  item_id     text NOT NULL,
  found_by    text NOT NULL CHECK (found_by IN ('new', 'id', 'words')),
  item        text NOT NULL,
  file        text,
  line        integer,
  rule        text,
  is_blocking integer NOT NULL,
  PRIMARY KEY (feedback_id, position)
);
CREATE INDEX review_mention_item ON review_mention (item_id);
INSERT INTO review_mention (feedback_id, position, item_id, found_by, item, file, line, rule, is_blocking)
SELECT feedback_id, position, id, 'new', item, file, line, rule, is_blocking FROM review_item;

-- What the coder said of its work when it asked, and whether nothing was left that blocks when the feedback came.
ALTER TABLE instance_relationships ADD COLUMN completion_message text;
ALTER TABLE instance_relationships ADD COLUMN converged integer;
