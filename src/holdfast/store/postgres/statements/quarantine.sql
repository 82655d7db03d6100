-- Steps that wait for a person. 253402300799 is NEVER of model.py: ready, and not due before the calendar ends.

-- name: quarantine_steps
WITH gone AS (
    UPDATE holdfast.steps s SET state = 'ready', fence = s.fence + 1, agent = NULL, complete_by = NULL,
                       losses = s.losses + u.losses, timeouts = s.timeouts + u.timeouts,
                       throttled = s.throttled + u.throttled, error = u.error, ready_at = to_timestamp(253402300799)
    FROM unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::text[], $6::int[], $7::int[], $8::int[])
         u(run_id, n, fence, ending, error, losses, timeouts, throttled)
    WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
    RETURNING s.run_id, s.n, s.attempt, u.ending, u.error, s.started_at),
kept AS (
    INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error, started_at)
    SELECT run_id, n, attempt, ending, $9, error, started_at FROM gone)
SELECT holdfast.demand((SELECT count(*) FROM gone) = cardinality($1))

-- name: list_quarantined
INSERT INTO holdfast.quarantine (run_id, n, fingerprint, step, error, place)
SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[])
ON CONFLICT (run_id, n) DO UPDATE SET fingerprint = excluded.fingerprint, step = excluded.step, error = excluded.error,
                                      place = excluded.place, at = excluded.at

-- name: quarantine
SELECT q.fingerprint, min(q.step), min(q.error), min(q.place), count(*), count(DISTINCT q.run_id), min(q.at), max(q.at),
       (array_agg(q.run_id ORDER BY q.at))[1]
FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE s.state = 'ready' AND s.ready_at >= to_timestamp(253402300799)
GROUP BY q.fingerprint ORDER BY min(q.at) LIMIT $1

-- name: quarantined
SELECT q.run_id, q.n, q.fingerprint, q.step, q.error, q.place, q.at
FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE q.run_id = $1 AND s.state = 'ready' AND s.ready_at >= to_timestamp(253402300799) ORDER BY q.n

-- name: to_resolve
SELECT q.run_id, q.n, q.fingerprint FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE ($1::text IS NULL OR q.fingerprint = $1) AND ($2::text IS NULL OR q.run_id = $2) AND q.at <= $3
  AND s.state = 'ready' AND s.ready_at >= to_timestamp(253402300799)
ORDER BY q.run_id, q.n LIMIT $4

-- First the runs: whoever decides whether one is stuck holds its row, too.
-- name: lock_runs
SELECT id FROM holdfast.runs WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE

-- Fresh budgets for what is released: what was spent so far is excused. Its error stays: it says that an attempt may have
-- had its effect.
-- name: resolve_steps
UPDATE holdfast.steps s SET fence = s.fence + 1,
    state = CASE $3 WHEN 'release' THEN 'ready' WHEN 'skip' THEN 'succeeded' ELSE 'failed' END,
    ready_at = CASE $3 WHEN 'release' THEN clock_timestamp() ELSE s.ready_at END,
    finished_at = CASE $3 WHEN 'release' THEN NULL ELSE clock_timestamp() END,
    output = CASE $3 WHEN 'skip' THEN $4::bytea END,
    error = CASE $3 WHEN 'skip' THEN NULL ELSE s.error END,
    excused = CASE $3 WHEN 'release' THEN s.attempt ELSE s.excused END,
    losses = CASE $3 WHEN 'release' THEN 0 ELSE s.losses END,
    timeouts = CASE $3 WHEN 'release' THEN 0 ELSE s.timeouts END,
    throttled = CASE $3 WHEN 'release' THEN 0 ELSE s.throttled END
FROM unnest($1::text[], $2::int[]) u(run_id, n)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.state = 'ready' AND s.ready_at >= to_timestamp(253402300799)
RETURNING s.run_id, s.n

-- name: forget_quarantined
DELETE FROM holdfast.quarantine q USING unnest($1::text[], $2::int[]) u(run_id, n)
WHERE q.run_id = u.run_id AND q.n = u.n

-- name: unstick_quarantined
UPDATE holdfast.runs SET state = resume, resume = NULL, note = NULL, fence = fence + 1
WHERE id = ANY($1::text[]) AND state = 'stuck' AND resume IS NOT NULL

-- name: journal_resolved
INSERT INTO holdfast.journal (actor, verb, run_id, n, note)
SELECT $1, $2, u.run_id, u.n, u.note FROM unnest($3::text[], $4::int[], $5::text[]) u(run_id, n, note)

-- name: leads
SELECT 1 FROM holdfast.leases WHERE name = 'leader' AND epoch = $1 AND expires_at > clock_timestamp() FOR SHARE

-- name: stale_quarantined
DELETE FROM holdfast.quarantine q WHERE NOT EXISTS (
    SELECT FROM holdfast.steps s WHERE s.run_id = q.run_id AND s.n = q.n AND s.state = 'ready'
    AND s.ready_at >= to_timestamp(253402300799))

-- Runs in which nothing is left to wait for but steps in quarantine, and nothing is left to deliver.
-- name: unmoving_runs
SELECT r.id FROM holdfast.runs r
WHERE r.id IN (SELECT run_id FROM holdfast.quarantine) AND r.state IN ('running', 'undoing')
  AND ($1::text[] IS NULL OR r.id = ANY($1))
  AND EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = r.id AND s.state = 'ready'
              AND s.ready_at >= to_timestamp(253402300799))
  AND NOT EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = r.id AND s.delivered_seq IS NULL AND s.kind <> 'undo'
                  AND (s.state <> 'ready' OR s.ready_at < to_timestamp(253402300799)))
  AND NOT EXISTS (SELECT FROM holdfast.signals s WHERE s.run_id = r.id AND s.delivered_seq IS NULL)
ORDER BY r.id LIMIT $2

-- name: stick_runs
WITH stuck AS (
    UPDATE holdfast.runs r SET resume = r.state, state = 'stuck', owner = NULL, fence = r.fence + 1,
        note = (SELECT s.error FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
                WHERE q.run_id = r.id ORDER BY q.at LIMIT 1)
    WHERE r.id = ANY($1::text[]) AND r.state IN ('running', 'undoing')
    RETURNING r.id)
INSERT INTO holdfast.journal (actor, verb, run_id, note) SELECT 'supervisor', 'stick', id, $2 FROM stuck RETURNING 1
