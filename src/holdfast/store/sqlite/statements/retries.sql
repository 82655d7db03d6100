-- Retries: runs that go on from where another run ended.

-- name: retried_as
SELECT {Run} FROM runs INDEXED BY runs_retry WHERE retry_of = ?1 ORDER BY created_at DESC, id DESC LIMIT 1

-- name: live_below
WITH RECURSIVE below (id, finished_at) AS (
    SELECT r.id, r.finished_at FROM runs r INDEXED BY runs_parent WHERE r.parent_id = ?1
    UNION ALL SELECT r.id, r.finished_at FROM below b CROSS JOIN runs r INDEXED BY runs_parent ON r.parent_id = b.id)
SELECT id FROM below WHERE finished_at IS NULL LIMIT 1

-- The new run keeps `started_at` of the other run, because that is where the replayed history begins, unless the new
-- one begins anew (?10). A fork shows again what its code publishes while it is replayed.
-- The new run begins at once, also if the other one was to begin later. A retry is due when the other run was, unless that
-- has passed. A fork was promised to nobody.
-- name: copy_run
INSERT INTO runs (id, namespace, workflow, version, state, priority, input, digest, tags, retry_of, forked_from, deadline,
                  created_at, started_at, generation, base_n, kept_n, published, progress, parent_id, parent_n,
                  fair, under, queue, limit_a, limit_b, limit_c, weight_a, weight_b, weight_c, due_at)
SELECT ?2, namespace, workflow, version, 'pending', priority, coalesce(?8, input), coalesce(?9, digest), tags, ?6, ?7,
       store_now() + (deadline - created_at), store_now(), CASE WHEN NOT ?10 THEN started_at END,
       CASE WHEN ?10 THEN 1 ELSE generation END, CASE WHEN ?10 THEN 0 ELSE base_n END, ?3,
       CASE WHEN ?7 IS NULL THEN published END, CASE WHEN ending IS NULL AND ?7 IS NULL THEN progress END, ?4, ?5,
       fair, under, CASE WHEN queue < 0 THEN -1 - queue ELSE queue END, limit_a, limit_b, limit_c, weight_a, weight_b, weight_c,
       CASE WHEN ?7 IS NULL AND due_at > store_now() THEN due_at END
FROM runs WHERE id = ?1
ON CONFLICT (id) DO NOTHING
RETURNING id

-- ?3 replaces the result. Without ?4, a replay does not compare the input. The new run does not call an undo
-- that the other run's code added by hand.
-- A step that runs in the other run has ended in the new one, so its fence is above that of its last attempt.
-- name: copy_steps
INSERT INTO steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max,
                   timeout_s, fence, agent, input, digest, output, error, delivered_seq, issued_at, started_at,
                   finished_at, after_seq, timeouts, throttled, effect)
SELECT ?6, n, key, kind, name, lane, CASE WHEN ?3 IS NOT NULL THEN 'succeeded' WHEN kind = 'undo' THEN 'cancelled' ELSE state END,
       priority, ready_at, attempt, losses, excused, attempts_max, timeout_s,
       max(fence, attempt + 1), agent, input, CASE WHEN ?4 THEN digest END, coalesce(?3, output), CASE WHEN ?3 IS NULL THEN error END, ?2,
       issued_at, started_at, coalesce(finished_at, store_now()), after_seq,
       timeouts, throttled, CASE kind WHEN 'call' THEN coalesce(effect, run_id || '::' || key) END
FROM steps WHERE run_id = ?5 AND n = ?1

-- name: copy_signals
INSERT INTO signals (run_id, name, key, payload, delivered_seq, sent_at, set_aside, answer, reply, replied_at)
SELECT ?3, name, key, payload, ?2, sent_at, CASE WHEN ?2 IS NOT NULL THEN set_aside END, answer, reply, replied_at
FROM signals WHERE id = ?1

-- name: take_over
UPDATE runs SET parent_id = ?1, parent_n = ?2 WHERE id = ?3 AND +state = 'succeeded'

-- name: inherit
INSERT INTO inherited (run_id, key, effect, child, kept_n, sender) VALUES (?1, ?2, ?3, ?4, ?5, ?6)

-- name: inherited
SELECT i.run_id, i.key, i.effect, i.child, i.kept_n, i.sender FROM json_each(?1) u CROSS JOIN inherited i ON i.run_id = u.value ORDER BY u.key, i.key

-- name: name_effects
UPDATE steps SET effect = ?3 WHERE run_id = ?1 AND n = ?2

-- name: place_steps
UPDATE steps SET after_seq = ?3 WHERE run_id = ?1 AND n = ?2
