-- Who reviews the work of a workflow's instances, if they ask for it.
ALTER TABLE workflow ADD COLUMN reviewer text NOT NULL DEFAULT 'instance' CHECK (reviewer IN ('instance', 'judge'));

-- The judge's report of a round; the rounds that it reviews have no review instance.
ALTER TABLE instance_relationships ADD COLUMN report_id text;

-- The last claim of an instance's agent says which task a review is about.
CREATE INDEX claim_latest ON claim (agent_id, claimed_at);
