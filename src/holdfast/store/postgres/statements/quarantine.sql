-- Steps in quarantine. They wait for a person.

-- name: list_quarantined
INSERT INTO holdfast.quarantine (run_id, n, fingerprint, step, error, place)
SELECT u.run_id, u.n, u.fingerprint, u.step, u.error, u.place
FROM unnest($1::text[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[])
     u(run_id, n, fingerprint, step, error, place)
ON CONFLICT (run_id, n) DO UPDATE SET fingerprint = excluded.fingerprint, step = excluded.step, error = excluded.error,
                                      place = excluded.place, at = excluded.at

-- name: quarantine
SELECT q.fingerprint, min(q.step), min(q.error), min(q.place), count(*), count(DISTINCT q.run_id), min(q.at), max(q.at),
       (array_agg(q.run_id ORDER BY q.at))[1]
FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE {quarantined(s)} AND ($2::text IS NULL OR holdfast.namespace_of(q.step) = $2)
GROUP BY q.fingerprint ORDER BY min(q.at) LIMIT $1

-- name: quarantined
SELECT {Quarantined(q)} FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE q.run_id = $1 AND {quarantined(s)} ORDER BY q.n

-- name: to_resolve
SELECT q.run_id, q.n, q.fingerprint FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE ($1::text IS NULL OR q.fingerprint = $1) AND ($2::text IS NULL OR q.run_id = $2) AND q.at <= $3 AND {quarantined(s)}
  AND ($5::text IS NULL OR holdfast.namespace_of(q.step) = $5)
ORDER BY q.run_id, q.n LIMIT $4

-- Runs are locked before their steps. Whoever decides whether a run is stuck locks its row, too.
-- name: lock_runs
SELECT id FROM holdfast.runs WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE

-- A released step gets fresh budgets, because its attempts so far are excused. Its error stays, because it says whether
-- an attempt may have had its effect.
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
WHERE s.run_id = u.run_id AND s.n = u.n AND {quarantined(s)}
RETURNING s.run_id, s.n

-- name: forget_quarantined
DELETE FROM holdfast.quarantine q USING unnest($1::text[], $2::int[]) u(run_id, n)
WHERE q.run_id = u.run_id AND q.n = u.n

-- name: unstick_quarantined
UPDATE holdfast.runs SET state = resume, resume = NULL, note = NULL, fence = fence + 1
WHERE id = ANY($1::text[]) AND state = 'stuck' AND resume IS NOT NULL

-- Entries whose step no longer exists, or is not in quarantine any more.
-- name: stale_quarantined
SELECT q.run_id, q.n FROM holdfast.quarantine q LEFT JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE s.n IS NULL OR NOT {quarantined(s)} LIMIT $1

-- Those of these runs, or of all runs, that wait for nothing but steps in quarantine and have nothing to deliver.
-- name: unmoving_runs
SELECT r.id FROM holdfast.runs r
WHERE r.id IN (SELECT run_id FROM holdfast.quarantine) AND {active(r)}
  AND ($1::text[] IS NULL OR r.id = ANY($1))
  AND EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = r.id AND {quarantined(s)})
  AND NOT EXISTS (SELECT FROM holdfast.steps s
                  WHERE s.run_id = r.id AND s.delivered_seq IS NULL AND s.kind <> 'undo' AND NOT {quarantined(s)})
  AND NOT EXISTS (SELECT FROM holdfast.signals s WHERE s.run_id = r.id AND s.delivered_seq IS NULL)
ORDER BY r.id LIMIT $2

-- name: stick_runs
UPDATE holdfast.runs r SET resume = r.state, state = 'stuck', owner = NULL, fence = r.fence + 1,
    note = (SELECT s.error FROM holdfast.quarantine q JOIN holdfast.steps s ON s.run_id = q.run_id AND s.n = q.n
            WHERE q.run_id = r.id ORDER BY q.at LIMIT 1)
WHERE r.id = ANY($1::text[]) AND {active(r)}
RETURNING r.id
