-- What schedulers read, fire, hold and number.

-- name: history_steps
SELECT {Step(s)} FROM json_each(?1) u CROSS JOIN steps s ON s.run_id = u.value ORDER BY u.key, s.n

-- name: history_signals
SELECT {Signal(s)} FROM json_each(?1) u CROSS JOIN signals s ON s.run_id = u.value ORDER BY u.key, s.id

-- name: undelivered_steps
SELECT s.run_id, s.n, s.state, s.output, s.error, s.finished_at
FROM steps s INDEXED BY steps_undelivered CROSS JOIN runs r ON r.id = s.run_id
WHERE s.delivered_seq IS NULL AND s.finished_at IS NOT NULL AND +r.owner = ?1
ORDER BY s.run_id LIMIT ?2

-- name: undelivered_signals
SELECT {Signal(s)} FROM signals s INDEXED BY signals_undelivered CROSS JOIN runs r ON r.id = s.run_id
WHERE s.delivered_seq IS NULL AND +r.owner = ?1
ORDER BY s.run_id, s.id LIMIT ?2

-- name: due_timers
SELECT s.run_id, s.n FROM steps s INDEXED BY steps_timers CROSS JOIN runs r ON r.id = s.run_id
WHERE s.state = 'waiting' AND s.kind = 'timer' AND s.ready_at <= (SELECT store_now()) AND +r.owner IS NULL AND {active(r)}
ORDER BY s.ready_at LIMIT ?1

-- name: fire_timers
UPDATE steps SET state = 'succeeded', fence = fence + 1, finished_at = store_now()
WHERE rowid IN (
    SELECT s.rowid FROM steps s INDEXED BY steps_timers CROSS JOIN runs r ON r.id = s.run_id
    WHERE s.state = 'waiting' AND s.kind = 'timer' AND s.ready_at <= (SELECT store_now()) AND +r.owner IS NULL AND {active(r)}
    ORDER BY s.ready_at LIMIT ?1)

-- name: next_timer
SELECT s.ready_at, (SELECT store_now()) FROM steps s INDEXED BY steps_timers CROSS JOIN runs r ON r.id = s.run_id
WHERE s.state = 'waiting' AND s.kind = 'timer' AND +r.owner IS NULL AND {active(r)}
ORDER BY s.ready_at LIMIT 1

-- name: next_start
SELECT begin_at, (SELECT store_now()) FROM runs INDEXED BY runs_delayed
WHERE state = 'pending' AND queue < 0 ORDER BY begin_at LIMIT 1

-- name: due_starts
SELECT id FROM runs INDEXED BY runs_delayed
WHERE state = 'pending' AND queue < 0 AND begin_at <= (SELECT store_now()) ORDER BY begin_at LIMIT ?1

-- Moves runs whose time has come into the queue from which they are claimed.
-- name: admit_runs
UPDATE runs SET queue = -1 - queue
WHERE id IN (SELECT value FROM json_each(?1)) AND +state = 'pending' AND queue < 0

-- name: hold_run
UPDATE runs SET resume = state, state = 'held', note = ?3, owner = NULL, fence = fence + 1
WHERE id = ?1 AND fence = ?2 AND +state IN ('pending', 'running', 'undoing')

-- name: lost_runs
SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND fence = ?2 AND +owner = ?3)

-- name: lane_numbers
SELECT id, name, needs, undo, depends FROM lanes WHERE name = ?1 AND needs = ?2 AND undo = ?3 AND depends = ?4

-- name: make_lanes
INSERT INTO lanes (name, needs, undo, depends) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (name, needs, undo, depends) DO NOTHING
