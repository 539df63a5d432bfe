-- name: events_lock
-- SQLite has one writer: whoever writes holds the lock already.
SELECT 1;

-- name: events_announce
-- Other processes look at the newest number; see events.py.
SELECT 1;

-- name: tables
-- The hall's tables.
SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name;

-- name: event_number_set
-- Go on numbering after the newest event.
UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM event) WHERE name = 'event';

-- name: quick_check
-- The word ok, or what is damaged.
PRAGMA quick_check(1);
