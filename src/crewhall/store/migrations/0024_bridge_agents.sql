-- The agents for which a bridge speaks, and the process that it is: it outlives hubs, and any hub may ask for it.
CREATE TABLE bridge_agent (
  bridge   text NOT NULL,
  agent_id text NOT NULL,
  machine  text NOT NULL,
  process  text NOT NULL,
  since    bigint NOT NULL,
  PRIMARY KEY (bridge, agent_id)
);
CREATE INDEX bridge_agent_by_agent ON bridge_agent (agent_id);
