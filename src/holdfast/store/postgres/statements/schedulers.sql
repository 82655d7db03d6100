-- What schedulers read, fire, hold and number.

-- name: history_steps
SELECT {Step(s)} FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (SELECT {Step} FROM holdfast.steps WHERE run_id = u.id OFFSET 0) s
ORDER BY s.run_id, s.n

-- name: history_signals
SELECT {Signal} FROM holdfast.signals WHERE run_id = ANY($1::text[]) ORDER BY run_id, id

-- This goes from the owner's runs to what is to be delivered to each. OFFSET 0 forces that order, whatever the
-- planner's estimates say. The other order would pass over what others have to deliver, and over all that was delivered
-- since the last vacuum.
-- name: undelivered_steps
SELECT s.run_id, s.n, s.state, s.output, s.error, s.finished_at
FROM (SELECT id FROM holdfast.runs WHERE owner = $1 OFFSET 0) r
CROSS JOIN LATERAL (
    SELECT run_id, n, state, output, error, finished_at FROM holdfast.steps
    WHERE run_id = r.id AND delivered_seq IS NULL AND state IN ('succeeded', 'failed', 'cancelled') OFFSET 0) s
ORDER BY s.finished_at, s.run_id, s.n LIMIT $2

-- name: undelivered_signals
SELECT {Signal(s)}
FROM (SELECT id FROM holdfast.runs WHERE owner = $1 OFFSET 0) r
CROSS JOIN LATERAL (SELECT {Signal} FROM holdfast.signals WHERE run_id = r.id AND delivered_seq IS NULL OFFSET 0) s
ORDER BY s.id LIMIT $2

-- The time is asked once, in a subquery, so that it bounds the index range. If it were asked for every row, the
-- statement would read all timers that are not due yet.
-- name: due_timers
SELECT s.run_id, s.n FROM holdfast.steps s
WHERE s.state = 'waiting' AND s.kind = 'timer' AND s.ready_at <= (SELECT clock_timestamp())
  AND (SELECT r.owner IS NULL AND {active(r)} FROM holdfast.runs r WHERE r.id = s.run_id)
ORDER BY s.ready_at LIMIT $1

-- name: fire_timers
WITH due AS (
    SELECT s.run_id, s.n FROM holdfast.steps s
    WHERE s.state = 'waiting' AND s.kind = 'timer' AND s.ready_at <= (SELECT clock_timestamp())
      AND (SELECT r.owner IS NULL AND {active(r)} FROM holdfast.runs r WHERE r.id = s.run_id)
    ORDER BY s.ready_at LIMIT $1
    FOR UPDATE OF s SKIP LOCKED)
UPDATE holdfast.steps s SET state = 'succeeded', fence = s.fence + 1, finished_at = clock_timestamp()
FROM due WHERE s.run_id = due.run_id AND s.n = due.n

-- name: next_timer
SELECT s.ready_at, clock_timestamp() FROM holdfast.steps s
WHERE s.state = 'waiting' AND s.kind = 'timer'
  AND (SELECT r.owner IS NULL AND {active(r)} FROM holdfast.runs r WHERE r.id = s.run_id)
ORDER BY s.ready_at LIMIT 1

-- name: next_start
SELECT begin_at, clock_timestamp() FROM holdfast.runs WHERE state = 'pending' AND queue < 0 ORDER BY begin_at LIMIT 1

-- name: due_starts
SELECT id FROM holdfast.runs WHERE state = 'pending' AND queue < 0 AND begin_at <= (SELECT clock_timestamp())
ORDER BY begin_at LIMIT $1 FOR UPDATE SKIP LOCKED

-- Moves runs whose time has come into the queue from which they are claimed. The transaction has locked them.
-- name: admit_runs
UPDATE holdfast.runs SET queue = -1 - queue WHERE id = ANY($1::text[]) AND state = 'pending' AND queue < 0

-- name: hold_run
UPDATE holdfast.runs SET resume = state, state = 'held', note = $3, owner = NULL, fence = fence + 1
WHERE id = $1 AND fence = $2 AND state IN ('pending', 'running', 'undoing')

-- name: lost_runs
SELECT u.id FROM unnest($1::text[], $2::int[]) u(id, fence)
WHERE (SELECT r.owner = $3 AND r.fence = u.fence FROM holdfast.runs r WHERE r.id = u.id) IS NOT TRUE

-- name: lane_numbers
SELECT l.id, l.name, l.needs, l.undo, l.depends
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) u(name, needs, undo, depends)
JOIN holdfast.lanes l ON l.name = u.name AND l.needs = u.needs AND l.undo = u.undo AND l.depends = u.depends

-- name: make_lanes
INSERT INTO holdfast.lanes (name, needs, undo, depends)
SELECT u.name, u.needs, u.undo, u.depends
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) u(name, needs, undo, depends)
ON CONFLICT (name, needs, undo, depends) DO NOTHING
