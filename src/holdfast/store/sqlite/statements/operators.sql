-- What callers and operators ask for, about one run each.

-- name: sent_before
SELECT 1 FROM signals WHERE run_id = ? AND name = ? AND key = ?

-- Requests that the run's code has heard: one that it caught and went on after is no answer to the next.
-- name: heard_cancels
SELECT count(*) FROM signals WHERE run_id = ? AND name = '$cancel' AND delivered_seq IS NOT NULL

-- A run with steps has done something: it must undo that itself, so it gets the signal instead.
-- name: cancel_pending
UPDATE runs SET state = 'cancelled', finished_at = ?, fence = fence + 1, note = ?
WHERE id = ? AND +owner IS NULL AND +state = 'pending' AND NOT EXISTS (SELECT 1 FROM steps WHERE run_id = runs.id)
RETURNING parent_id, parent_n

-- name: hold
UPDATE runs SET resume = state, state = 'held', owner = NULL, fence = fence + 1, note = ?
WHERE id = ? AND +state IN ('pending', 'running', 'undoing')

-- A released run is pending again, so that a scheduler looks at it at once, with its history.
-- name: release
UPDATE runs SET state = CASE resume WHEN 'undoing' THEN 'undoing' ELSE 'pending' END, resume = NULL, note = NULL,
                fence = fence + 1
WHERE id = ? AND +state = 'held'
RETURNING state

-- name: unstick
UPDATE runs SET state = 'undoing', resume = NULL, note = NULL, fence = fence + 1
WHERE id = ? AND ((+state = 'stuck' AND resume IS NOT 'running') OR (+state = 'held' AND resume = 'undoing'))

-- name: retry_now
UPDATE steps SET ready_at = ?1, fence = fence + 1
WHERE run_id = ?2 AND +state = 'ready' AND +ready_at > ?1 AND +ready_at < 253402300799
