-- Every new connection asks which instances live on its node.
CREATE INDEX instance_alive ON instance (node) WHERE ended_how IS NULL;
