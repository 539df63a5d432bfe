-- Who paused a workflow; NULL while it is not paused, and for pauses of older hubs.
ALTER TABLE workflow ADD COLUMN halted_by text CHECK (halted_by IN ('judge', 'operator', 'coordinator', 'worker'));

-- An older hub marked the judge's halts by a prefix of the reason.
UPDATE workflow SET halted_by = 'judge' WHERE status = 'paused' AND substr(status_reason, 1, 15) = 'CRITICAL_HALT: ';
