-- A run that goes on from where another ended.

-- name: retried_as
SELECT id FROM runs INDEXED BY runs_retry WHERE retry_of = ? ORDER BY created_at DESC, id DESC LIMIT 1

-- name: live_below
WITH RECURSIVE below (id, finished_at) AS (
    SELECT r.id, r.finished_at FROM runs r INDEXED BY runs_parent WHERE r.parent_id = ?
    UNION ALL SELECT r.id, r.finished_at FROM below b CROSS JOIN runs r INDEXED BY runs_parent ON r.parent_id = b.id)
SELECT id FROM below WHERE finished_at IS NULL LIMIT 1

-- Its clock goes on from where the other's began: `started_at` is where the history begins that is replayed.
-- name: copy_run
INSERT INTO runs (id, namespace, workflow, version, state, priority, input, digest, tags, retry_of, deadline, created_at,
                  started_at, generation, base_n, kept_n, published, progress, parent_id, parent_n)
SELECT ?2, namespace, workflow, version, 'pending', priority, input, digest, tags, id, ?3 + (deadline - created_at), ?3,
       started_at, generation, base_n, ?4, published, CASE WHEN ending IS NULL THEN progress END, ?5, ?6
FROM runs WHERE id = ?1
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: copy_step
INSERT INTO steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max,
                   timeout_s, fence, agent, input, digest, output, error, delivered_seq, issued_at, started_at,
                   finished_at, after_seq, timeouts, throttled, effect)
SELECT ?2, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max, timeout_s,
       fence, agent, input, digest, output, error, ?4, issued_at, started_at, finished_at, after_seq,
       timeouts, throttled, CASE kind WHEN 'call' THEN coalesce(effect, ?1 || '::' || key) END
FROM steps WHERE run_id = ?1 AND n = ?3

-- name: copy_signal
INSERT INTO signals (run_id, name, key, payload, delivered_seq, sent_at, set_aside)
SELECT ?1, name, key, payload, ?3, sent_at, CASE WHEN ?3 IS NOT NULL THEN set_aside END FROM signals WHERE id = ?2

-- name: take_over
UPDATE runs SET parent_id = ?, parent_n = ? WHERE id = ? AND +state = 'succeeded'

-- name: inherit
INSERT INTO inherited (run_id, key, effect, child) VALUES (?, ?, ?, ?)

-- name: inherited
SELECT key, effect, child FROM inherited WHERE run_id = ? ORDER BY key

-- name: name_effects
UPDATE steps SET effect = ? WHERE run_id = ? AND n = ?
