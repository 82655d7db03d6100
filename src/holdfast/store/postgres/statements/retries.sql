-- Retries: runs that go on from where another run ended.

-- name: retried_as
SELECT {Run} FROM holdfast.runs WHERE retry_of = $1 ORDER BY created_at DESC, id DESC LIMIT 1

-- name: live_below
WITH RECURSIVE below(id, finished_at) AS (
    SELECT r.id, r.finished_at FROM holdfast.runs r WHERE r.parent_id = $1
    UNION ALL SELECT r.id, r.finished_at FROM below b JOIN holdfast.runs r ON r.parent_id = b.id)
SELECT id FROM below WHERE finished_at IS NULL LIMIT 1

-- The new run keeps `started_at` of the other run, because that is where the replayed history begins.
-- name: copy_run
INSERT INTO holdfast.runs (id, namespace, workflow, version, state, priority, input, digest, tags, retry_of, deadline,
                  started_at, generation, base_n, kept_n, published, progress, parent_id, parent_n)
SELECT $2::text, namespace, workflow, version, 'pending', priority, input, digest, tags, id,
       clock_timestamp() + (deadline - created_at), started_at, generation, base_n, $3::int, published,
       CASE WHEN ending IS NULL THEN progress END, $4::text, $5::int
FROM holdfast.runs WHERE id = $1
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: copy_steps
INSERT INTO holdfast.steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, losses, excused, attempts_max,
                   timeout_s, fence, agent, input, digest, output, error, delivered_seq, issued_at, started_at,
                   finished_at, after_seq, timeouts, throttled, effect)
SELECT $4::text, s.n, s.key, s.kind, s.name, s.lane, s.state, s.priority, s.ready_at, s.attempt, s.losses, s.excused, s.attempts_max,
       s.timeout_s, s.fence, s.agent, s.input, s.digest, s.output, s.error, u.seq, s.issued_at, s.started_at, s.finished_at,
       s.after_seq, s.timeouts, s.throttled,
       CASE s.kind WHEN 'call' THEN coalesce(s.effect, s.run_id || '::' || s.key) END
FROM unnest($1::int[], $2::int[]) u(n, seq) JOIN holdfast.steps s ON s.run_id = $3 AND s.n = u.n

-- name: copy_signals
INSERT INTO holdfast.signals (run_id, name, key, payload, delivered_seq, sent_at, set_aside)
SELECT $3::text, s.name, s.key, s.payload, u.seq, s.sent_at, CASE WHEN u.seq IS NOT NULL THEN s.set_aside END
FROM unnest($1::bigint[], $2::int[]) u(id, seq) JOIN holdfast.signals s ON s.id = u.id ORDER BY s.id

-- name: take_over
UPDATE holdfast.runs r SET parent_id = u.parent_id, parent_n = u.parent_n
FROM unnest($1::text[], $2::int[], $3::text[]) u(parent_id, parent_n, id)
WHERE r.id = u.id AND r.state = 'succeeded'

-- name: inherit
INSERT INTO holdfast.inherited (run_id, key, effect, child)
SELECT u.run_id, u.key, u.effect, u.child FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) u(run_id, key, effect, child)

-- name: inherited
SELECT run_id, key, effect, child FROM holdfast.inherited WHERE run_id = ANY($1::text[]) ORDER BY run_id, key

-- name: name_effects
UPDATE holdfast.steps s SET effect = u.effect FROM unnest($1::text[], $2::int[], $3::text[]) u(run_id, n, effect)
WHERE s.run_id = u.run_id AND s.n = u.n
