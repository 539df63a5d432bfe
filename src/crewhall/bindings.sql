-- name: bridge_agents
-- The agents that a bridge has registered or claimed for. Whoever takes its name in another process is another one.
SELECT agent.id, agent.name, agent.role
  FROM bridge_agent JOIN agent ON agent.id = bridge_agent.agent_id
 WHERE bridge_agent.bridge = :bridge AND (CAST(:process AS text) IS NULL OR bridge_agent.process = :process)
 ORDER BY agent.id LIMIT :limit;

-- name: agent_spoken_for
-- Whether somebody else than this bridge is known to be an agent: another bridge, or whoever has its token.
SELECT agent.name
  FROM agent
 WHERE agent.id = :agent_id
   AND NOT EXISTS (SELECT 1 FROM bridge_agent
                    WHERE bridge_agent.agent_id = agent.id AND bridge_agent.bridge = :bridge
                      AND bridge_agent.process = :process)
   AND (EXISTS (SELECT 1 FROM bridge_agent WHERE bridge_agent.agent_id = agent.id)
        OR EXISTS (SELECT 1 FROM token WHERE token.agent_id = agent.id AND token.kind = 'agent'
                                         AND token.revoked_at IS NULL));

-- name: bridges_of_node
-- The bridges of a node that speak for agents, and their processes.
SELECT DISTINCT bridge, machine, process
  FROM bridge_agent WHERE substr(machine, 1, length(CAST(:node AS text)) + 1) = CAST(:node AS text) || '/';

-- name: bridge_forget
-- A bridge has ended.
DELETE FROM bridge_agent WHERE bridge = :bridge;

-- name: bridges_forget_agent
-- No bridge speaks for an agent any more.
DELETE FROM bridge_agent WHERE agent_id = :agent_id;

-- name: bridge_agent_put
-- A bridge speaks for an agent.
INSERT INTO bridge_agent (bridge, agent_id, machine, process, since)
VALUES (:bridge, :agent_id, :machine, :process, :now)
    ON CONFLICT (bridge, agent_id) DO NOTHING;
