-- What agents and pools of agents read.

-- name: lanes
SELECT id, name, needs, nullif(undo, ''), depends FROM lanes ORDER BY id

-- name: lost_steps
SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM steps WHERE run_id = ?1 AND n = ?2 AND fence = ?3)

-- This looks into the index once per lane and priority, and once per lane for what has a queue.
-- name: next_ready
WITH RECURSIVE places (lane, priority) AS (
    SELECT u.value, {top_priority(u.value)} FROM json_each(?1) u
    UNION ALL
    SELECT p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL)
SELECT min(at), (SELECT store_now()) FROM (
    SELECT (SELECT s.ready_at FROM steps s INDEXED BY steps_ready
            WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.queue = 0 AND s.ready_at > (SELECT store_now())
            ORDER BY s.ready_at LIMIT 1) AS at
    FROM places p WHERE p.priority IS NOT NULL
    UNION ALL
    SELECT (SELECT s.ready_at FROM steps s INDEXED BY steps_queued
            WHERE s.state = 'ready' AND s.queue > 0 AND s.lane = u.value AND s.ready_at > (SELECT store_now())
            ORDER BY s.ready_at LIMIT 1)
    FROM json_each(?1) u)

-- name: next_ready_of
SELECT min(s.ready_at), (SELECT store_now()) FROM json_each(?2) u CROSS JOIN steps s INDEXED BY sqlite_autoindex_steps_1 ON s.run_id = u.value
WHERE s.state = 'ready' AND s.ready_at > (SELECT store_now()) AND s.lane IN (SELECT value FROM json_each(?1))

-- How much work waits for a pool. This reads one index range per lane and priority, in which the index separates the
-- steps that are due from those that back off, and one per lane for what has a queue. At most ?2 rows of each are read.
-- Steps behind a gate do not wait for an agent.
-- name: backlog
WITH RECURSIVE places (lane, priority) AS (
    SELECT u.value, {top_priority(u.value)} FROM json_each(?1) u LEFT JOIN lanes l ON l.id = u.value WHERE {passable(l)}
    UNION ALL
    SELECT p.lane, {next_priority(p)} FROM places p WHERE p.priority IS NOT NULL),
due (ready, since) AS (
    SELECT (SELECT count(*) FROM (
                SELECT s.run_id FROM steps s INDEXED BY steps_ready
                WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.queue = 0 AND s.ready_at <= (SELECT store_now())
                ORDER BY s.ready_at LIMIT ?2) d CROSS JOIN runs r ON r.id = d.run_id WHERE {goes_on(r)}),
           (SELECT min(d.ready_at) FROM (
                SELECT s.run_id, s.ready_at FROM steps s INDEXED BY steps_ready
                WHERE s.state = 'ready' AND s.lane = p.lane AND s.priority = p.priority AND s.queue = 0 AND s.ready_at <= (SELECT store_now())
                ORDER BY s.ready_at LIMIT ?2) d CROSS JOIN runs r ON r.id = d.run_id WHERE {goes_on(r)})
    FROM places p WHERE p.priority IS NOT NULL
    UNION ALL
    SELECT (SELECT count(*) FROM (
                SELECT s.run_id FROM steps s INDEXED BY steps_queued
                WHERE s.state = 'ready' AND s.queue > 0 AND s.lane = l.id AND s.ready_at <= (SELECT store_now())
                ORDER BY s.ready_at LIMIT ?2) d CROSS JOIN runs r ON r.id = d.run_id WHERE {goes_on(r)}),
           (SELECT min(d.ready_at) FROM (
                SELECT s.run_id, s.ready_at FROM steps s INDEXED BY steps_queued
                WHERE s.state = 'ready' AND s.queue > 0 AND s.lane = l.id AND s.ready_at <= (SELECT store_now())
                ORDER BY s.ready_at LIMIT ?2) d CROSS JOIN runs r ON r.id = d.run_id WHERE {goes_on(r)})
    FROM json_each(?1) u CROSS JOIN lanes l ON l.id = u.value WHERE {passable(l)})
SELECT coalesce(sum(ready), 0), min(since) FROM due
