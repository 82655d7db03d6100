-- How long steps take. Nodes add counts, and the leader makes old counts fade.

-- name: add_durations
INSERT INTO holdfast.durations (name, bucket, count, last_at)
SELECT u.name, u.bucket, u.count, clock_timestamp() FROM unnest($1::text[], $2::int[], $3::float8[]) u(name, bucket, count)
ON CONFLICT (name, bucket) DO UPDATE SET count = durations.count + excluded.count, last_at = excluded.last_at

-- name: durations
SELECT name, bucket, count FROM holdfast.durations WHERE name = ANY($1::text[])

-- name: step_durations
SELECT name, bucket, count FROM holdfast.durations WHERE name >= 'step:' AND name < 'step;'

-- name: halve_durations
UPDATE holdfast.durations SET count = count / 2
WHERE name IN (SELECT name FROM holdfast.durations GROUP BY name HAVING sum(count) > $1)

-- name: forget_durations
DELETE FROM holdfast.durations WHERE last_at < clock_timestamp() - make_interval(secs => $1) OR count < 0.05

-- name: forget_oldest_durations
DELETE FROM holdfast.durations WHERE (name, bucket) IN (
    SELECT name, bucket FROM holdfast.durations ORDER BY last_at
    LIMIT greatest(0, (SELECT count(*) FROM holdfast.durations) - $1::bigint))

-- name: landmarks
SELECT s.run_id, s.n, s.name, s.issued_at FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (
    SELECT run_id, n, name, issued_at FROM holdfast.steps WHERE run_id = u.id AND kind <> 'marker' ORDER BY n DESC LIMIT 1) s

-- Steps that run for longer than their bound, those without a twin first. This reads all running steps once. The LIMIT
-- makes the planner look up each twin by index. Otherwise it would read all twins that there ever were.
-- name: overlong_steps
SELECT s.run_id, s.n, s.fence, s.key, s.name, s.lane, s.agent, s.started_at, t.n IS NOT NULL
FROM holdfast.steps s JOIN unnest($1::text[], $2::float8[]) bound(name, bound_s) ON bound.name = s.name
LEFT JOIN LATERAL (SELECT n FROM holdfast.twins WHERE run_id = s.run_id AND n = s.n LIMIT 1) t ON true
WHERE s.state = 'running' AND s.started_at < clock_timestamp() - make_interval(secs => bound.bound_s)
ORDER BY 9, s.started_at LIMIT $3
