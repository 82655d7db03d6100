-- Steps in quarantine. They wait for a person.

-- name: list_quarantined
INSERT INTO quarantine (run_id, n, fingerprint, step, error, place, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, store_now())
ON CONFLICT (run_id, n) DO UPDATE SET fingerprint = excluded.fingerprint, step = excluded.step, error = excluded.error,
                                      place = excluded.place, at = excluded.at

-- name: quarantine
SELECT q.fingerprint, min(q.step), min(q.error), min(q.place), count(*), count(DISTINCT q.run_id), min(q.at), max(q.at),
       (SELECT o.run_id FROM quarantine o CROSS JOIN steps t ON t.run_id = o.run_id AND t.n = o.n
        WHERE o.fingerprint = q.fingerprint AND {quarantined(t)} ORDER BY o.at LIMIT 1)
FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE {quarantined(s)} AND (?2 IS NULL OR {namespace_of(q.step)} = ?2)
GROUP BY q.fingerprint ORDER BY min(q.at) LIMIT ?1

-- name: quarantined
SELECT {Quarantined(q)} FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE q.run_id = ?1 AND {quarantined(s)} ORDER BY q.n

-- name: to_resolve
SELECT q.run_id, q.n, q.fingerprint FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE (?1 IS NULL OR q.fingerprint = ?1) AND (?2 IS NULL OR q.run_id = ?2) AND q.at <= ?3 AND {quarantined(s)}
  AND (?5 IS NULL OR {namespace_of(q.step)} = ?5)
ORDER BY q.run_id, q.n LIMIT ?4

-- SQLite has only one write transaction at a time, so the rows need no lock.
-- name: lock_runs
SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?1))

-- A released step gets fresh budgets, because its attempts so far are excused. Its error stays, because it says whether
-- an attempt may have had its effect.
-- name: resolve_steps
UPDATE steps SET fence = fence + 1,
    state = CASE ?3 WHEN 'release' THEN 'ready' WHEN 'skip' THEN 'succeeded' ELSE 'failed' END,
    ready_at = CASE ?3 WHEN 'release' THEN store_now() ELSE ready_at END,
    finished_at = CASE ?3 WHEN 'release' THEN NULL ELSE store_now() END,
    output = CASE ?3 WHEN 'skip' THEN ?4 END,
    error = CASE ?3 WHEN 'skip' THEN NULL ELSE error END,
    excused = CASE ?3 WHEN 'release' THEN attempt ELSE excused END,
    losses = CASE ?3 WHEN 'release' THEN 0 ELSE losses END,
    timeouts = CASE ?3 WHEN 'release' THEN 0 ELSE timeouts END,
    throttled = CASE ?3 WHEN 'release' THEN 0 ELSE throttled END
WHERE run_id = ?1 AND n = ?2 AND {quarantined(steps)}
RETURNING run_id, n

-- name: forget_quarantined
DELETE FROM quarantine WHERE run_id = ?1 AND n = ?2

-- name: unstick_quarantined
UPDATE runs SET state = resume, resume = NULL, note = NULL, fence = fence + 1
WHERE id IN (SELECT value FROM json_each(?1)) AND +state = 'stuck' AND resume IS NOT NULL

-- Entries whose step no longer exists, or is not in quarantine any more.
-- name: stale_quarantined
SELECT q.run_id, q.n FROM quarantine q LEFT JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE s.n IS NULL OR NOT {quarantined(s)} LIMIT ?1

-- Those of these runs, or of all runs, that wait for nothing but steps in quarantine and have nothing to deliver.
-- name: unmoving_runs
SELECT DISTINCT q.run_id FROM quarantine q CROSS JOIN runs r ON r.id = q.run_id
WHERE {active(r)} AND (?1 IS NULL OR r.id IN (SELECT value FROM json_each(?1)))
  AND EXISTS (SELECT 1 FROM steps s WHERE s.run_id = r.id AND s.n = q.n AND {quarantined(s)})
  AND NOT EXISTS (SELECT 1 FROM steps s
                  WHERE s.run_id = r.id AND +s.delivered_seq IS NULL AND +s.kind <> 'undo' AND NOT {quarantined(s)})
  AND NOT EXISTS (SELECT 1 FROM signals s WHERE s.run_id = r.id AND s.delivered_seq IS NULL)
ORDER BY q.run_id LIMIT ?2

-- name: stick_runs
UPDATE runs SET resume = state, state = 'stuck', owner = NULL, fence = fence + 1,
                note = (SELECT s.error FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
                        WHERE q.run_id = runs.id ORDER BY q.at LIMIT 1)
WHERE id IN (SELECT value FROM json_each(?1)) AND {active(runs)}
RETURNING id
