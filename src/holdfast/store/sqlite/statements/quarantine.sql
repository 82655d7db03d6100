-- Steps that wait for a person. 253402300799 is NEVER of model.py: ready, and not due before the calendar ends.

-- name: quarantine_step
UPDATE steps SET state = 'ready', fence = fence + 1, agent = NULL, complete_by = NULL, losses = losses + ?,
                 timeouts = timeouts + ?, throttled = throttled + ?, error = ?, ready_at = 253402300799
WHERE run_id = ? AND n = ? AND fence = ?

-- name: list_quarantined
INSERT INTO quarantine (run_id, n, fingerprint, step, error, place, at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, n) DO UPDATE SET fingerprint = excluded.fingerprint, step = excluded.step, error = excluded.error,
                                      place = excluded.place, at = excluded.at

-- name: quarantine
SELECT q.fingerprint, min(q.step), min(q.error), min(q.place), count(*), count(DISTINCT q.run_id), min(q.at), max(q.at),
       (SELECT o.run_id FROM quarantine o CROSS JOIN steps t ON t.run_id = o.run_id AND t.n = o.n
        WHERE o.fingerprint = q.fingerprint AND +t.state = 'ready' AND +t.ready_at >= 253402300799
        ORDER BY o.at LIMIT 1)
FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE +s.state = 'ready' AND +s.ready_at >= 253402300799
GROUP BY q.fingerprint ORDER BY min(q.at) LIMIT ?

-- name: quarantined
SELECT q.run_id, q.n, q.fingerprint, q.step, q.error, q.place, q.at
FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE q.run_id = ? AND +s.state = 'ready' AND +s.ready_at >= 253402300799 ORDER BY q.n

-- name: to_resolve
SELECT q.run_id, q.n, q.fingerprint FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE (?1 IS NULL OR q.fingerprint = ?1) AND (?2 IS NULL OR q.run_id = ?2) AND q.at <= ?3
  AND +s.state = 'ready' AND +s.ready_at >= 253402300799
ORDER BY q.run_id, q.n LIMIT ?4

-- Fresh budgets: what was spent so far is excused. The error stays: it says that an attempt may have had its effect.
-- name: release_step
UPDATE steps SET ready_at = ?, fence = fence + 1, excused = attempt, losses = 0, timeouts = 0, throttled = 0
WHERE run_id = ? AND n = ? AND +state = 'ready' AND +ready_at >= 253402300799

-- name: skip_step
UPDATE steps SET state = 'succeeded', finished_at = ?, output = ?, error = NULL, fence = fence + 1
WHERE run_id = ? AND n = ? AND +state = 'ready' AND +ready_at >= 253402300799

-- name: fail_step
UPDATE steps SET state = 'failed', finished_at = ?, fence = fence + 1
WHERE run_id = ? AND n = ? AND +state = 'ready' AND +ready_at >= 253402300799

-- name: forget_quarantined
DELETE FROM quarantine WHERE run_id = ? AND n = ?

-- name: unstick_quarantined
UPDATE runs SET state = resume, resume = NULL, note = NULL, fence = fence + 1
WHERE id = ? AND +state = 'stuck' AND resume IS NOT NULL

-- name: stale_quarantined
SELECT q.run_id, q.n FROM quarantine q LEFT JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
WHERE s.n IS NULL OR +s.state <> 'ready' OR +s.ready_at < 253402300799 LIMIT ?

-- Runs in which nothing is left to wait for but steps in quarantine, and nothing is left to deliver.
-- name: unmoving_runs
SELECT DISTINCT q.run_id FROM quarantine q CROSS JOIN runs r ON r.id = q.run_id
WHERE +r.state IN ('running', 'undoing')
  AND EXISTS (SELECT 1 FROM steps s WHERE s.run_id = r.id AND s.n = q.n AND +s.state = 'ready'
              AND +s.ready_at >= 253402300799)
  AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.run_id = r.id AND +s.delivered_seq IS NULL AND +s.kind <> 'undo'
                  AND (+s.state <> 'ready' OR +s.ready_at < 253402300799))
  AND NOT EXISTS (SELECT 1 FROM signals s WHERE s.run_id = r.id AND s.delivered_seq IS NULL)
ORDER BY q.run_id LIMIT ?

-- name: stick_run
UPDATE runs SET resume = state, state = 'stuck', owner = NULL, fence = fence + 1,
                note = (SELECT s.error FROM quarantine q CROSS JOIN steps s ON s.run_id = q.run_id AND s.n = q.n
                        WHERE q.run_id = runs.id ORDER BY q.at LIMIT 1)
WHERE id = ? AND +state IN ('running', 'undoing')
