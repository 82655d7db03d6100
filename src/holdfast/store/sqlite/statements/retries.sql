-- Retries: runs that go on from where another run ended.

-- name: retried_as
SELECT {Run} FROM runs INDEXED BY runs_retry WHERE retry_of = ?1 ORDER BY created_at DESC, id DESC LIMIT 1

-- name: live_below
WITH RECURSIVE below (id, finished_at) AS (
    SELECT r.id, r.finished_at FROM runs r INDEXED BY runs_parent WHERE r.parent_id = ?1
    UNION ALL SELECT r.id, r.finished_at FROM below b CROSS JOIN runs r INDEXED BY runs_parent ON r.parent_id = b.id)
SELECT id FROM below WHERE finished_at IS NULL LIMIT 1

-- The new run keeps `started_at` of the other run, because that is where the replayed history begins.
-- name: copy_run
INSERT INTO runs (id, namespace, workflow, version, state, priority, input, digest, tags, retry_of, deadline, created_at,
                  started_at, generation, base_n, kept_n, published, progress, parent_id, parent_n)
SELECT ?2, namespace, workflow, version, 'pending', priority, input, digest, tags, id, store_now() + (deadline - created_at),
       store_now(), started_at, generation, base_n, ?3, published, CASE WHEN ending IS NULL THEN progress END, ?4, ?5
FROM runs WHERE id = ?1
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: copy_steps
INSERT INTO steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max,
                   timeout_s, fence, agent, input, digest, output, error, delivered_seq, issued_at, started_at,
                   finished_at, after_seq, timeouts, throttled, effect)
SELECT ?4, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max, timeout_s,
       fence, agent, input, digest, output, error, ?2, issued_at, started_at, finished_at, after_seq,
       timeouts, throttled, CASE kind WHEN 'call' THEN coalesce(effect, run_id || '::' || key) END
FROM steps WHERE run_id = ?3 AND n = ?1

-- name: copy_signals
INSERT INTO signals (run_id, name, key, payload, delivered_seq, sent_at, set_aside)
SELECT ?3, name, key, payload, ?2, sent_at, CASE WHEN ?2 IS NOT NULL THEN set_aside END FROM signals WHERE id = ?1

-- name: take_over
UPDATE runs SET parent_id = ?1, parent_n = ?2 WHERE id = ?3 AND +state = 'succeeded'

-- name: inherit
INSERT INTO inherited (run_id, key, effect, child) VALUES (?1, ?2, ?3, ?4)

-- name: inherited
SELECT i.run_id, i.key, i.effect, i.child FROM json_each(?1) u CROSS JOIN inherited i ON i.run_id = u.value ORDER BY u.key, i.key

-- name: name_effects
UPDATE steps SET effect = ?3 WHERE run_id = ?1 AND n = ?2
