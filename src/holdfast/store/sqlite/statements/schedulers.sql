-- What schedulers claim, read and fire. A claim raises the run's fence, so that an earlier owner's hops find no row.

-- name: pending_runs
SELECT priority, created_at, id FROM runs INDEXED BY runs_pending
WHERE state = 'pending' AND workflow = ? AND version = ? ORDER BY priority DESC, created_at LIMIT ?

-- name: awake_runs
SELECT r.priority, r.created_at, r.id, r.workflow, r.version
FROM (SELECT run_id FROM steps INDEXED BY steps_undelivered
      WHERE delivered_seq IS NULL AND finished_at IS NOT NULL
      UNION SELECT run_id FROM signals INDEXED BY signals_undelivered WHERE delivered_seq IS NULL) awake
CROSS JOIN runs r ON r.id = awake.run_id
WHERE +r.owner IS NULL AND +r.state IN ('running', 'undoing')

-- The same for a node that works on some runs only.
-- name: claimable_run
SELECT r.priority, r.created_at, r.id, r.workflow, r.version FROM runs r
WHERE r.id = ? AND +r.owner IS NULL AND (+r.state = 'pending' OR (+r.state IN ('running', 'undoing') AND (
      EXISTS (SELECT 1 FROM steps INDEXED BY steps_undelivered
              WHERE run_id = r.id AND delivered_seq IS NULL AND finished_at IS NOT NULL)
      OR EXISTS (SELECT 1 FROM signals INDEXED BY signals_undelivered WHERE run_id = r.id AND delivered_seq IS NULL))))

-- name: claim_run
UPDATE runs SET state = CASE state WHEN 'pending' THEN 'running' ELSE state END, owner = ?1, fence = fence + 1,
                started_at = coalesce(started_at, ?2)
WHERE id = ?3 AND +owner IS NULL AND +state IN ('pending', 'running', 'undoing')

-- name: undelivered_steps
SELECT s.run_id, s.n, s.state, s.output, s.error, s.finished_at
FROM steps s INDEXED BY steps_undelivered CROSS JOIN runs r ON r.id = s.run_id
WHERE s.delivered_seq IS NULL AND s.finished_at IS NOT NULL AND +r.owner = ?
ORDER BY s.run_id LIMIT ?

-- name: undelivered_signals
SELECT s.id, s.run_id, s.name, s.key, s.payload, s.delivered_seq, s.sent_at, s.set_aside
FROM signals s INDEXED BY signals_undelivered CROSS JOIN runs r ON r.id = s.run_id
WHERE s.delivered_seq IS NULL AND +r.owner = ?
ORDER BY s.run_id, s.id LIMIT ?

-- name: due_timers
SELECT s.run_id, s.n, s.fence FROM steps s INDEXED BY steps_timers CROSS JOIN runs r ON r.id = s.run_id
WHERE s.state = 'waiting' AND s.kind = 'timer' AND s.ready_at <= ?
  AND +r.owner IS NULL AND +r.state IN ('running', 'undoing')
ORDER BY s.ready_at LIMIT ?

-- name: fire_timers
UPDATE steps SET state = 'succeeded', fence = fence + 1, finished_at = ? WHERE run_id = ? AND n = ? AND fence = ?

-- name: next_timer
SELECT s.ready_at FROM steps s INDEXED BY steps_timers CROSS JOIN runs r ON r.id = s.run_id
WHERE s.state = 'waiting' AND s.kind = 'timer' AND +r.owner IS NULL AND +r.state IN ('running', 'undoing')
ORDER BY s.ready_at LIMIT 1

-- name: hold_run
UPDATE runs SET resume = state, state = 'held', note = ?, owner = NULL, fence = fence + 1
WHERE id = ? AND fence = ? AND +state IN ('pending', 'running', 'undoing')

-- name: owns_run
SELECT 1 FROM runs WHERE id = ? AND fence = ? AND +owner = ?
