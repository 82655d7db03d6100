-- How long steps take. Nodes add counts, and the leader makes old counts fade.

-- name: add_durations
INSERT INTO durations (name, bucket, count, last_at) VALUES (?1, ?2, ?3, store_now())
ON CONFLICT (name, bucket) DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at

-- name: durations
SELECT name, bucket, count FROM durations WHERE name IN (SELECT value FROM json_each(?1))

-- name: step_durations
SELECT name, bucket, count FROM durations WHERE name >= 'step:' AND name < 'step;'

-- name: halve_durations
UPDATE durations SET count = count / 2 WHERE name IN (SELECT name FROM durations GROUP BY name HAVING sum(count) > ?1)

-- name: forget_durations
DELETE FROM durations WHERE last_at < (SELECT store_now() - ?1) OR count < 0.05

-- name: forget_oldest_durations
DELETE FROM durations WHERE (name, bucket) IN (
    SELECT name, bucket FROM durations ORDER BY last_at LIMIT max(0, (SELECT count(*) FROM durations) - ?1))

-- name: landmarks
SELECT s.run_id, s.n, s.name, s.issued_at FROM json_each(?1) u
CROSS JOIN steps s ON s.run_id = u.value
    AND s.n = (SELECT n FROM steps WHERE run_id = u.value AND +kind <> 'marker' ORDER BY n DESC LIMIT 1)

-- Steps that run for longer than their bound, those without a twin first. This reads all running steps once.
-- name: overlong_steps
SELECT s.run_id, s.n, s.fence, s.key, s.name, s.lane, s.agent, s.started_at,
       EXISTS (SELECT 1 FROM twins t WHERE t.run_id = s.run_id AND t.n = s.n)
FROM steps s INDEXED BY steps_held
CROSS JOIN (SELECT n.value AS name, store_now() - b.value AS before FROM json_each(?1) n JOIN json_each(?2) b ON b.key = n.key) bound
    ON bound.name = s.name
WHERE s.state = 'running' AND s.started_at < bound.before
ORDER BY 9, s.started_at LIMIT ?3
