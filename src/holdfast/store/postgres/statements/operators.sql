-- What callers and operators read and ask for.

-- name: store_now
SELECT clock_timestamp()

-- name: run
SELECT * FROM holdfast.runs WHERE id = $1

-- name: runs
SELECT * FROM holdfast.runs
WHERE (cardinality($1::text[]) = 0 OR state = ANY($1))
  AND ($2::text IS NULL OR workflow = $2 OR right(workflow, length($2) + 1) = '.' || $2)
  AND ($3::timestamptz IS NULL OR (created_at, id) < ($3, $4))
  AND ($5::jsonb IS NULL OR tags::jsonb @> $5)
ORDER BY created_at DESC, id DESC LIMIT $6

-- name: ended_runs
SELECT r.* FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (
    SELECT * FROM holdfast.runs WHERE id = u.id AND (finished_at IS NOT NULL OR state = 'stuck') OFFSET 0) r

-- name: unknown_runs
SELECT u.id FROM unnest($1::text[]) u(id)
LEFT JOIN LATERAL (SELECT id FROM holdfast.runs WHERE id = u.id OFFSET 0) r ON true
WHERE r.id IS NULL

-- name: runs_by_state
SELECT state, count(*) FROM holdfast.runs GROUP BY state

-- name: steps
SELECT * FROM holdfast.steps WHERE run_id = $1 AND n > $2 ORDER BY n LIMIT $3

-- name: attempts
SELECT * FROM holdfast.attempts WHERE run_id = $1 ORDER BY n, attempt, finished_at

-- name: signals
SELECT * FROM holdfast.signals WHERE run_id = $1 ORDER BY id

-- name: children
SELECT * FROM holdfast.runs WHERE parent_id = $1 ORDER BY created_at, id

-- name: nodes
SELECT id, host, pid, roles, offers, capacity, started_at, lease_until, retired_at FROM holdfast.nodes
ORDER BY retired_at IS NOT NULL, started_at DESC LIMIT 1000

-- What every node holds and owns: as many index entries as there is work in flight.
-- name: loads
SELECT node, sum(steps)::int, sum(runs)::int FROM (
    SELECT agent AS node, count(*) AS steps, 0 AS runs FROM holdfast.steps WHERE state = 'running' GROUP BY agent
    UNION ALL
    SELECT owner, 0, count(*) FROM holdfast.runs WHERE owner IS NOT NULL GROUP BY owner) l
GROUP BY node ORDER BY node LIMIT 10000

-- name: journal
SELECT id, at, actor, verb, run_id, n, note FROM holdfast.journal
WHERE $1::text IS NULL OR run_id = $1 ORDER BY id DESC LIMIT $2

-- name: send_signal
INSERT INTO holdfast.signals (run_id, name, key, payload)
SELECT id, $2, $3, $4 FROM holdfast.runs WHERE id = $1 AND finished_at IS NULL FOR SHARE
ON CONFLICT (run_id, name, key) DO NOTHING
RETURNING 1

-- name: sent_before
SELECT 1 FROM holdfast.signals WHERE run_id = $1 AND name = $2 AND key = $3

-- Requests that the run's code has heard: one that it caught and went on after is no answer to the next.
-- name: heard_cancels
SELECT count(*) FROM holdfast.signals WHERE run_id = $1 AND name = '$cancel' AND delivered_seq IS NOT NULL

-- A run that has done something is cancelled by its own code; one that has done nothing is cancelled here.
-- name: cancel_pending
UPDATE holdfast.runs SET state = 'cancelled', finished_at = clock_timestamp(), fence = fence + 1, note = $2
WHERE id = $1 AND owner IS NULL AND state = 'pending'
  AND NOT EXISTS (SELECT FROM holdfast.steps WHERE run_id = $1)
RETURNING parent_id, parent_n

-- name: hold
UPDATE holdfast.runs SET resume = state, state = 'held', owner = NULL, fence = fence + 1, note = $2
WHERE id = $1 AND state IN ('pending', 'running', 'undoing')
RETURNING 1

-- name: release
-- A released run is pending again, so that a scheduler looks at it at once, with its history.
UPDATE holdfast.runs SET state = CASE resume WHEN 'undoing' THEN 'undoing' ELSE 'pending' END, resume = NULL, note = NULL, fence = fence + 1
WHERE id = $1 AND state = 'held'
RETURNING state

-- name: unstick
UPDATE holdfast.runs SET state = 'undoing', resume = NULL, note = NULL, fence = fence + 1
WHERE id = $1 AND ((state = 'stuck' AND resume IS DISTINCT FROM 'running') OR (state = 'held' AND resume = 'undoing'))

-- name: retry_now
UPDATE holdfast.steps SET ready_at = clock_timestamp(), fence = fence + 1
WHERE run_id = $1 AND state = 'ready' AND ready_at > clock_timestamp() AND ready_at < to_timestamp(253402300799)
RETURNING 1
