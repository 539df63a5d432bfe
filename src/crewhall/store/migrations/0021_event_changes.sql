-- What each event changed in rows that can be replayed: a JSON list; NULL for events of older releases.
ALTER TABLE event ADD COLUMN changes text;
