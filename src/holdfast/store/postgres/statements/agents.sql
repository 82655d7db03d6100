-- What agents and pools of agents read.

-- name: lanes
SELECT id, name, needs, nullif(undo, ''), depends FROM holdfast.lanes ORDER BY id

-- name: lost_steps
SELECT u.run_id, u.n FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, fence)
WHERE (SELECT s.fence = u.fence FROM holdfast.steps s WHERE s.run_id = u.run_id AND s.n = u.n) IS NOT TRUE

-- This looks into the index once per lane and priority, and once per lane for what has a queue.
-- name: next_ready
WITH RECURSIVE places(lane, priority) AS (
    SELECT u.lane, {top_priority(u.lane)} FROM unnest($1::int[]) u(lane)
    UNION ALL
    SELECT p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL)
SELECT min(due.ready_at), clock_timestamp() FROM (
    SELECT s.ready_at FROM places p CROSS JOIN LATERAL (
        SELECT ready_at FROM holdfast.steps
        WHERE state = 'ready' AND lane = p.lane AND priority = p.priority AND queue = 0 AND ready_at > (SELECT clock_timestamp())
        ORDER BY ready_at LIMIT 1) s WHERE p.priority IS NOT NULL
    UNION ALL
    SELECT s.ready_at FROM unnest($1::int[]) l(lane) CROSS JOIN LATERAL (
        SELECT ready_at FROM holdfast.steps
        WHERE state = 'ready' AND queue > 0 AND lane = l.lane AND ready_at > (SELECT clock_timestamp())
        ORDER BY ready_at LIMIT 1) s) due

-- name: next_ready_of
SELECT min(ready_at), clock_timestamp() FROM holdfast.steps
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
SELECT coalesce(sum(due.ready), 0)::int, min(due.since) FROM (
    SELECT d.ready, d.since FROM places p CROSS JOIN LATERAL (
        SELECT count(*) AS ready, min(s.ready_at) AS since FROM (
            SELECT run_id, ready_at FROM holdfast.steps
            WHERE state = 'ready' AND lane = p.lane AND priority = p.priority AND queue = 0
              AND ready_at <= (SELECT clock_timestamp())
            ORDER BY ready_at LIMIT $2) s
        JOIN holdfast.runs r ON r.id = s.run_id AND {goes_on(r)}) d
    WHERE p.priority IS NOT NULL
    UNION ALL
    SELECT d.ready, d.since
    FROM (SELECT u.lane FROM unnest($1::int[]) u(lane) JOIN holdfast.lanes l ON l.id = u.lane WHERE {passable(l)}) p
    CROSS JOIN LATERAL (
        SELECT count(*) AS ready, min(s.ready_at) AS since FROM (
            SELECT run_id, ready_at FROM holdfast.steps
            WHERE state = 'ready' AND queue > 0 AND lane = p.lane AND ready_at <= (SELECT clock_timestamp())
            ORDER BY ready_at LIMIT $2) s
        JOIN holdfast.runs r ON r.id = s.run_id AND {goes_on(r)}) d) due
