-- Which pause of the hall a workflow is held by, and the status that it had before and gets back.
ALTER TABLE workflow ADD COLUMN hall_pause text;
ALTER TABLE workflow ADD COLUMN paused_from text;
CREATE INDEX workflow_hall_pause ON workflow (hall_pause, id) WHERE hall_pause IS NOT NULL;
