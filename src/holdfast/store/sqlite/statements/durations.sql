-- What is learned from durations: counts that nodes add, and that the leader lets fade.

-- name: add_durations
INSERT INTO durations (name, bucket, count, last_at) VALUES (?, ?, ?, ?)
ON CONFLICT (name, bucket) DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at

-- name: durations
SELECT name, bucket, count FROM durations WHERE name = ?

-- name: step_durations
SELECT name, bucket, count FROM durations WHERE name >= 'step:' AND name < 'step;'

-- name: well_known
SELECT 1 FROM durations GROUP BY name HAVING sum(count) > ? LIMIT 1

-- name: halve_durations
UPDATE durations SET count = count / 2 WHERE name IN (SELECT name FROM durations GROUP BY name HAVING sum(count) > ?)

-- name: faded_durations
SELECT 1 FROM durations WHERE last_at < ? OR count < 0.05 LIMIT 1

-- name: count_durations
SELECT count(*) FROM durations

-- name: forget_durations
DELETE FROM durations WHERE last_at < ? OR count < 0.05

-- name: forget_oldest_durations
DELETE FROM durations WHERE (name, bucket) IN (SELECT name, bucket FROM durations ORDER BY last_at LIMIT ?)

-- name: landmark
SELECT run_id, n, name, issued_at FROM steps WHERE run_id = ? ORDER BY n DESC LIMIT 1

-- Steps that run for longer than their bound, those without a twin first. It walks what is running, once.
-- name: overlong_steps
SELECT s.run_id, s.n, s.fence, s.key, s.name, s.lane, s.agent, s.started_at,
       EXISTS (SELECT 1 FROM twins t WHERE t.run_id = s.run_id AND t.n = s.n)
FROM steps s INDEXED BY steps_held
CROSS JOIN (SELECT value ->> 0 AS name, value ->> 1 AS before FROM json_each(?)) bound ON bound.name = s.name
WHERE s.state = 'running' AND s.started_at < bound.before
ORDER BY 9, s.started_at LIMIT ?
