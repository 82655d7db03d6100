-- What agents and pools of agents read.

-- name: lanes
SELECT id, name, needs, nullif(undo, ''), depends FROM holdfast.lanes ORDER BY id

-- name: lost_steps
SELECT u.run_id, u.n FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, fence)
WHERE (SELECT s.fence = u.fence FROM holdfast.steps s WHERE s.run_id = u.run_id AND s.n = u.n) IS NOT TRUE

-- name: next_ready
SELECT min(due.ready_at) FROM unnest($1::int[]) l(lane)
CROSS JOIN LATERAL (SELECT ready_at FROM holdfast.steps WHERE lane = l.lane AND state = 'ready'
                    AND ready_at > (SELECT clock_timestamp()) ORDER BY ready_at LIMIT 1) due

-- name: next_ready_of
SELECT min(ready_at) FROM holdfast.steps
WHERE run_id = ANY($2::text[]) AND lane = ANY($1::int[]) AND state = 'ready' AND ready_at > clock_timestamp()

-- How much work waits for a pool. This reads one index range per lane and priority, in which the index separates the
-- steps that are due from those that back off. At most $2 rows of each are read. The time is asked once, in a subquery,
-- so that it bounds the range and is not a filter. Steps behind a gate do not wait for an agent.
-- name: backlog
WITH RECURSIVE places(lane, priority) AS (
    SELECT l.lane, {top_priority(l.lane)}
    FROM (SELECT u.lane FROM unnest($1::int[]) u(lane) LEFT JOIN holdfast.lanes l ON l.id = u.lane WHERE {passable(l)}) l
    UNION ALL
    SELECT p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL)
SELECT coalesce(sum(due.ready), 0)::int, min(due.since) FROM places p
CROSS JOIN LATERAL (
    SELECT count(*) AS ready, min(s.ready_at) AS since FROM (
        SELECT run_id, ready_at FROM holdfast.steps
        WHERE state = 'ready' AND lane = p.lane AND priority = p.priority
          AND ready_at <= (SELECT clock_timestamp())
        ORDER BY ready_at LIMIT $2) s
    JOIN holdfast.runs r ON r.id = s.run_id AND {goes_on(r)}) due
WHERE p.priority IS NOT NULL
