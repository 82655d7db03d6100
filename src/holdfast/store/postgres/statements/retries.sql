-- Retries: runs that go on from where another run ended.

-- name: retried_as
SELECT {Run} FROM holdfast.runs WHERE retry_of = $1 ORDER BY created_at DESC, id DESC LIMIT 1

-- name: live_below
WITH RECURSIVE below(id, finished_at) AS (
    SELECT r.id, r.finished_at FROM holdfast.runs r WHERE r.parent_id = $1
    UNION ALL SELECT r.id, r.finished_at FROM below b JOIN holdfast.runs r ON r.parent_id = b.id)
SELECT id FROM below WHERE finished_at IS NULL LIMIT 1

-- The new run keeps `started_at` of the other run, because that is where the replayed history begins, unless the new
-- one begins anew ($10). A fork shows again what its code publishes while it is replayed.
-- The new run begins at once, also if the other one was to begin later. A retry is due when the other run was, unless that
-- has passed. A fork was promised to nobody.
-- name: copy_run
INSERT INTO holdfast.runs (id, namespace, workflow, version, state, priority, input, digest, tags, retry_of, forked_from, deadline,
                  started_at, generation, base_n, kept_n, published, progress, parent_id, parent_n,
                  fair, under, queue, limit_a, limit_b, limit_c, weight_a, weight_b, weight_c, due_at)
SELECT $2::text, namespace, workflow, version, 'pending', priority, coalesce($8::bytea, input), coalesce($9::bytea, digest),
       tags, $6::text, $7::text, clock_timestamp() + (deadline - created_at), CASE WHEN NOT $10::boolean THEN started_at END,
       CASE WHEN $10 THEN 1 ELSE generation END, CASE WHEN $10 THEN 0 ELSE base_n END, $3::int,
       CASE WHEN $7 IS NULL THEN published END, CASE WHEN ending IS NULL AND $7 IS NULL THEN progress END, $4::text, $5::int,
       fair, under, CASE WHEN queue < 0 THEN -1 - queue ELSE queue END, limit_a, limit_b, limit_c, weight_a, weight_b, weight_c,
       CASE WHEN $7 IS NULL AND due_at > clock_timestamp() THEN due_at END
FROM holdfast.runs WHERE id = $1
ON CONFLICT (id) DO NOTHING
RETURNING id

-- The third array replaces the results. Without the fourth, a replay does not compare the input. The new run does
-- not call an undo that the other run's code added by hand.
-- A step that runs in the other run has ended in the new one, so its fence is above that of its last attempt.
-- name: copy_steps
INSERT INTO holdfast.steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max,
                   timeout_s, fence, agent, input, digest, output, error, delivered_seq, issued_at, started_at,
                   finished_at, after_seq, timeouts, throttled, effect)
SELECT $6::text, s.n, s.key, s.kind, s.name, s.lane,
       CASE WHEN u.result IS NOT NULL THEN 'succeeded' WHEN s.kind = 'undo' THEN 'cancelled' ELSE s.state END, s.priority, s.ready_at, s.attempt, s.losses, s.excused, s.attempts_max,
       s.timeout_s, greatest(s.fence, s.attempt + 1), s.agent, s.input, CASE WHEN u.is_compared THEN s.digest END, coalesce(u.result, s.output),
       CASE WHEN u.result IS NULL THEN s.error END, u.seq, s.issued_at, s.started_at, coalesce(s.finished_at, clock_timestamp()),
       s.after_seq, s.timeouts, s.throttled,
       CASE s.kind WHEN 'call' THEN coalesce(s.effect, s.run_id || '::' || s.key) END
FROM unnest($1::int[], $2::int[], $3::bytea[], $4::boolean[]) u(n, seq, result, is_compared)
JOIN holdfast.steps s ON s.run_id = $5 AND s.n = u.n

-- name: copy_signals
INSERT INTO holdfast.signals (run_id, name, key, payload, delivered_seq, sent_at, set_aside, answer, reply, replied_at)
SELECT $3::text, s.name, s.key, s.payload, u.seq, s.sent_at, CASE WHEN u.seq IS NOT NULL THEN s.set_aside END,
       s.answer, s.reply, s.replied_at
FROM unnest($1::bigint[], $2::int[]) u(id, seq) JOIN holdfast.signals s ON s.id = u.id ORDER BY s.id

-- name: take_over
UPDATE holdfast.runs r SET parent_id = u.parent_id, parent_n = u.parent_n
FROM unnest($1::text[], $2::int[], $3::text[]) u(parent_id, parent_n, id)
WHERE r.id = u.id AND r.state = 'succeeded'

-- name: inherit
INSERT INTO holdfast.inherited (run_id, key, effect, child, kept_n, sender)
SELECT u.run_id, u.key, u.effect, u.child, u.kept_n, u.sender
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[]) u(run_id, key, effect, child, kept_n, sender)

-- name: inherited
SELECT run_id, key, effect, child, kept_n, sender FROM holdfast.inherited WHERE run_id = ANY($1::text[]) ORDER BY run_id, key

-- name: name_effects
UPDATE holdfast.steps s SET effect = u.effect FROM unnest($1::text[], $2::int[], $3::text[]) u(run_id, n, effect)
WHERE s.run_id = u.run_id AND s.n = u.n

-- name: place_steps
UPDATE holdfast.steps s SET after_seq = u.after_seq FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, after_seq)
WHERE s.run_id = u.run_id AND s.n = u.n
