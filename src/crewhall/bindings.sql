-- name: bridge_agents
-- The agents that a bridge has registered or claimed for.
SELECT agent.id, agent.name, agent.role
  FROM bridge_agent JOIN agent ON agent.id = bridge_agent.agent_id
 WHERE bridge_agent.bridge = :bridge ORDER BY agent.id LIMIT :limit;

-- name: bridge_agent_put
-- A bridge speaks for an agent.
INSERT INTO bridge_agent (bridge, agent_id, machine, process, since)
VALUES (:bridge, :agent_id, :machine, :process, :now)
    ON CONFLICT (bridge, agent_id) DO NOTHING;
