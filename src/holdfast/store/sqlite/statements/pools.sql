-- What a pool of agents asks: how much work waits for it. It changes nothing.

-- Of one lane and priority: in the index what is due stands apart from what backs off. What is held does not wait for an
-- agent.
-- name: backlog
SELECT count(*), min(ready_at) FROM (
    SELECT s.run_id, s.ready_at FROM steps s INDEXED BY steps_ready
    WHERE s.state = 'ready' AND s.lane = ? AND s.priority = ? AND s.ready_at <= ? ORDER BY s.ready_at LIMIT ?) due
CROSS JOIN runs r ON r.id = due.run_id WHERE +r.state IN ('running', 'undoing')
  AND NOT EXISTS (SELECT 1 FROM holds h WHERE (h.scope = 'workflow' AND h.value = r.workflow)
                                           OR (h.scope = 'namespace' AND h.value = r.namespace))
