-- What callers and operators do. Each statement is about one run.

-- Every act on a run locks its row first. So two operators take turns, and they cannot wait for each other.
-- name: lock_run
SELECT {Run} FROM holdfast.runs WHERE id = $1 FOR UPDATE

-- name: send_signal
INSERT INTO holdfast.signals (run_id, name, key, payload)
SELECT id, $2, $3, $4 FROM holdfast.runs WHERE id = $1 AND finished_at IS NULL FOR SHARE
ON CONFLICT (run_id, name, key) DO NOTHING

-- name: sent_before
SELECT 1 FROM holdfast.signals WHERE run_id = $1 AND name = $2 AND key = $3

-- name: sent_update
SELECT {Signal} FROM holdfast.signals WHERE run_id = $1 AND name = $2 AND key = $3

-- How many requests to cancel the run's code has got. It may have caught one of them and gone on.
-- name: heard_cancels
SELECT count(*) FROM holdfast.signals WHERE run_id = $1 AND name = '$cancel' AND delivered_seq IS NOT NULL

-- A run that has asked for something is cancelled by its own code. A run that has not is cancelled here.
-- name: cancel_pending
UPDATE holdfast.runs SET state = 'cancelled', finished_at = clock_timestamp(), fence = fence + 1, note = $2
WHERE id = $1 AND owner IS NULL AND state = 'pending'
  AND NOT EXISTS (SELECT FROM holdfast.steps WHERE run_id = $1)

-- name: hold
UPDATE holdfast.runs SET resume = state, state = 'held', owner = NULL, fence = fence + 1, note = $2
WHERE id = $1 AND state IN ('pending', 'running', 'undoing')

-- A released run is pending again, so that a scheduler looks at it at once, with its history.
-- name: release
UPDATE holdfast.runs SET state = CASE resume WHEN 'undoing' THEN 'undoing' ELSE 'pending' END, resume = NULL, note = NULL,
                fence = fence + 1
WHERE id = $1 AND state = 'held'
RETURNING state

-- name: unstick
UPDATE holdfast.runs SET state = 'undoing', resume = NULL, note = NULL, fence = fence + 1
WHERE id = $1 AND ((state = 'stuck' AND resume IS DISTINCT FROM 'running') OR (state = 'held' AND resume = 'undoing'))

-- name: retry_now
UPDATE holdfast.steps s SET ready_at = clock_timestamp(), fence = s.fence + 1
WHERE s.run_id = $1 AND s.state = 'ready' AND s.ready_at > clock_timestamp() AND NOT {quarantined(s)}

-- name: journal_add
INSERT INTO holdfast.journal (actor, verb, run_id, n, note, via, request)
SELECT u.actor, u.verb, u.run_id, u.n, u.note, u.via, u.request
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[])
    u(actor, verb, run_id, n, note, via, request)

-- About a gate, by its stored name.
-- name: journal_about
INSERT INTO holdfast.journal (actor, verb, about, note, via, request) VALUES ($1, $2, $3, $4, $5, $6)
