-- What a pool of agents asks: how much work waits for it. It changes nothing.

-- One index range per lane and priority, in which what is due stands apart from what backs off; at most $2 rows of each
-- are looked at. The time is asked once: so it bounds the range, and is no filter. What is held or behind an open breaker
-- does not wait for an agent.
-- name: backlog
WITH RECURSIVE places(lane, priority) AS (
    SELECT l.lane, (SELECT s.priority FROM holdfast.steps s WHERE s.state = 'ready' AND s.lane = l.lane
                    ORDER BY s.priority DESC LIMIT 1)
    FROM (
        SELECT u.lane FROM unnest($1::int[]) u(lane) LEFT JOIN holdfast.lanes l ON l.id = u.lane
        WHERE NOT EXISTS (SELECT FROM holdfast.breakers b WHERE b.name = l.depends AND b.state <> 'closed')
          AND NOT EXISTS (SELECT FROM holdfast.holds h WHERE h.scope = 'all'
                          OR (h.scope = 'dependency' AND h.value = l.depends)
                          OR (h.scope = 'step' AND h.value = l.name))) l
    UNION ALL
    SELECT p.lane, (SELECT s.priority FROM holdfast.steps s WHERE s.state = 'ready' AND s.lane = p.lane
                    AND s.priority < p.priority ORDER BY s.priority DESC LIMIT 1)
    FROM places p WHERE p.priority IS NOT NULL)
SELECT coalesce(sum(due.ready), 0)::int, min(due.since) FROM places p
CROSS JOIN LATERAL (
    SELECT count(*) AS ready, min(s.ready_at) AS since FROM (
        SELECT run_id, ready_at FROM holdfast.steps
        WHERE state = 'ready' AND lane = p.lane AND priority = p.priority
          AND ready_at <= (SELECT clock_timestamp())
        ORDER BY ready_at LIMIT $2) s
    JOIN holdfast.runs r ON r.id = s.run_id AND r.state IN ('running', 'undoing')
    WHERE NOT EXISTS (SELECT FROM holdfast.holds h WHERE (h.scope = 'workflow' AND h.value = r.workflow)
                                                    OR (h.scope = 'namespace' AND h.value = r.namespace))) due
WHERE p.priority IS NOT NULL
