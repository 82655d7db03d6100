-- What callers and operators do. Each statement is about one run.

-- SQLite has only one write transaction at a time, so the row needs no lock.
-- name: lock_run
SELECT {Run} FROM runs WHERE id = ?1

-- name: send_signal
INSERT INTO signals (run_id, name, key, payload, sent_at)
SELECT id, ?2, ?3, ?4, store_now() FROM runs WHERE id = ?1 AND finished_at IS NULL
ON CONFLICT (run_id, name, key) DO NOTHING

-- name: sent_before
SELECT 1 FROM signals WHERE run_id = ?1 AND name = ?2 AND key = ?3

-- name: sent_update
SELECT {Signal} FROM signals WHERE run_id = ?1 AND name = ?2 AND key = ?3

-- How many requests to cancel the run's code has got. It may have caught one of them and gone on.
-- name: heard_cancels
SELECT count(*) FROM signals WHERE run_id = ?1 AND name = '$cancel' AND delivered_seq IS NOT NULL

-- A run that has asked for something is cancelled by its own code. A run that has not is cancelled here.
-- name: cancel_pending
UPDATE runs SET state = 'cancelled', finished_at = store_now(), fence = fence + 1, note = ?2
WHERE id = ?1 AND +owner IS NULL AND +state = 'pending' AND NOT EXISTS (SELECT 1 FROM steps WHERE run_id = runs.id)

-- name: hold
UPDATE runs SET resume = state, state = 'held', owner = NULL, fence = fence + 1, note = ?2
WHERE id = ?1 AND +state IN ('pending', 'running', 'undoing')

-- A released run is pending again, so that a scheduler looks at it at once, with its history.
-- name: release
UPDATE runs SET state = CASE resume WHEN 'undoing' THEN 'undoing' ELSE 'pending' END, resume = NULL, note = NULL,
                fence = fence + 1
WHERE id = ?1 AND +state = 'held'
RETURNING state

-- name: unstick
UPDATE runs SET state = 'undoing', resume = NULL, note = NULL, fence = fence + 1
WHERE id = ?1 AND ((+state = 'stuck' AND resume IS NOT 'running') OR (+state = 'held' AND resume = 'undoing'))

-- name: retry_now
UPDATE steps SET ready_at = store_now(), fence = fence + 1
WHERE run_id = ?1 AND +state = 'ready' AND +ready_at > (SELECT store_now()) AND NOT {quarantined(steps)}

-- name: journal_add
INSERT INTO journal (at, actor, verb, run_id, n, note, via, request) VALUES (store_now(), ?1, ?2, ?3, ?4, ?5, ?6, ?7)

-- About a gate, by its stored name.
-- name: journal_about
INSERT INTO journal (at, actor, verb, about, note, via, request) VALUES (store_now(), ?1, ?2, ?3, ?4, ?5, ?6)
