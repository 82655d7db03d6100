-- Retention: ended runs go, oldest first, some hundred rows a transaction. A run goes after its children, when all that wait
-- for it have been told, and only when no run above it is live, because a live one may have to undo what those below it did,
-- and none that may still go on from it.

-- name: old_runs
SELECT id, finished_at FROM runs INDEXED BY runs_ended
WHERE state = ? AND finished_at IS NOT NULL AND finished_at < ? AND (finished_at, id) > (?, ?)
ORDER BY finished_at, id LIMIT ?

-- name: count_old_runs
SELECT count(*) FROM runs INDEXED BY runs_ended WHERE state = ? AND finished_at IS NOT NULL AND finished_at < ?

-- name: prunable
SELECT 1 FROM runs r
WHERE r.id = ? AND r.finished_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM runs c INDEXED BY runs_parent WHERE c.parent_id = r.id)
  AND NOT EXISTS (SELECT 1 FROM joins j INDEXED BY joins_of WHERE j.run_id = r.id)
  AND NOT EXISTS (SELECT 1 FROM inherited i INDEXED BY inherited_child CROSS JOIN runs n ON n.id = i.run_id
                  WHERE i.child = r.id AND n.finished_at IS NULL)
  AND NOT EXISTS (
      WITH RECURSIVE above (parent_id, finished_at) AS (
          SELECT p.parent_id, p.finished_at FROM runs p WHERE p.id = r.parent_id
          UNION ALL
          SELECT p.parent_id, p.finished_at FROM above a CROSS JOIN runs p ON p.id = a.parent_id)
      SELECT 1 FROM above WHERE finished_at IS NULL)

-- name: prune_steps
DELETE FROM steps WHERE rowid IN (SELECT rowid FROM steps WHERE run_id = ? LIMIT ?)

-- name: prune_attempts
DELETE FROM attempts WHERE rowid IN (SELECT rowid FROM attempts WHERE run_id = ? LIMIT ?)

-- name: prune_signals
DELETE FROM signals WHERE rowid IN (SELECT rowid FROM signals WHERE run_id = ? LIMIT ?)

-- name: prune_quarantine
DELETE FROM quarantine WHERE rowid IN (SELECT rowid FROM quarantine WHERE run_id = ? LIMIT ?)

-- name: prune_joins
DELETE FROM joins WHERE rowid IN (SELECT rowid FROM joins WHERE waiter_id = ? LIMIT ?)

-- name: prune_inherited
DELETE FROM inherited WHERE (run_id, key) IN (SELECT run_id, key FROM inherited WHERE run_id = ? LIMIT ?)

-- name: prune_journal
DELETE FROM journal WHERE rowid IN (SELECT rowid FROM journal INDEXED BY journal_of WHERE run_id = ? LIMIT ?)

-- name: prune_run
DELETE FROM runs WHERE id = ?

-- name: old_alerts
SELECT id FROM alerts INDEXED BY alerts_cleared WHERE cleared_at < ? ORDER BY cleared_at LIMIT ?

-- name: prune_deliveries
DELETE FROM deliveries WHERE alert_id = ?

-- name: prune_alerts
DELETE FROM alerts WHERE id = ?

-- A node that still holds something stays until that is taken back.
-- name: left_nodes
SELECT id FROM nodes n INDEXED BY nodes_left WHERE retired_at < ?
  AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_owned WHERE owner = n.id)
  AND NOT EXISTS (SELECT 1 FROM steps INDEXED BY steps_held WHERE state = 'running' AND agent = n.id)
ORDER BY retired_at LIMIT ?

-- name: forget_nodes
DELETE FROM nodes WHERE id = ?

-- name: old_journal
SELECT id FROM journal INDEXED BY journal_apart WHERE run_id IS NULL AND at < ? ORDER BY at LIMIT ?

-- name: forget_journal
DELETE FROM journal WHERE id = ?
