-- The hot path. One statement carries a whole batch of hops: begin runs, lock owned runs by fence, record and deliver
-- outcomes, issue steps, close runs. Here are its parts; a batch's statement is made of those it has rows for (see
-- batch.py). Rows come in as arrays of their types. Plans are pinned on the connection that runs it (see store.py).

-- name: hop_begun
INSERT INTO holdfast.runs (id, namespace, workflow, version, state, priority, owner, fence, input, digest, tags,
                  parent_id, parent_n, deadline, created_at, started_at, output, error, finished_at)
SELECT u.id, u.namespace, u.workflow, u.version, u.state, u.priority, CASE WHEN u.ended IS NULL THEN $1 END,
       u.fence + (u.ended IS NOT NULL)::int, u.input, u.digest, u.tags, u.parent_id, u.parent_n,
       to_timestamp(u.deadline), to_timestamp(u.at),
       to_timestamp(u.at), u.output, u.error, to_timestamp(u.ended)
FROM unnest($2::holdfast.begun_run[]) u
WHERE EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
ON CONFLICT (id) DO NOTHING
RETURNING 1

-- name: hop_owned
SELECT r.id FROM unnest($3::holdfast.owned_run[]) u
JOIN holdfast.runs r ON r.id = u.id AND r.fence = u.fence
FOR NO KEY UPDATE OF r

-- name: hop_ended
UPDATE holdfast.steps s SET state = u.state, fence = s.fence + 1, output = u.output, error = u.error,
                   finished_at = to_timestamp(u.at), delivered_seq = u.seq
FROM unnest($4::holdfast.ended_step[]) u
WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
RETURNING 1

-- name: hop_delivered
UPDATE holdfast.steps s SET delivered_seq = u.seq
FROM unnest($5::holdfast.delivered_step[]) u
WHERE s.run_id = u.run_id AND s.n = u.n AND s.delivered_seq IS NULL AND s.finished_at IS NOT NULL
RETURNING 1

-- name: hop_issued
INSERT INTO holdfast.steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, fence, agent, attempts_max,
                   timeout_s, complete_by, input, digest, retry, issued_at, started_at, after_seq)
SELECT u.run_id, u.n, u.key, u.kind, u.name, u.lane, u.state, u.priority,
       coalesce(to_timestamp(u.ready_at), clock_timestamp()), u.leased, u.leased,
       CASE u.leased WHEN 1 THEN $1 END, u.attempts_max, u.timeout_s,
       CASE u.leased WHEN 1 THEN clock_timestamp() + make_interval(secs => u.timeout_s) END,
       u.input, u.digest, u.retry, clock_timestamp(), CASE u.leased WHEN 1 THEN clock_timestamp() END,
       u.after_seq
FROM unnest($6::holdfast.issued_step[]) u
RETURNING 1

-- name: hop_closed
UPDATE holdfast.runs r SET state = u.state, output = u.output, owner = NULL, fence = r.fence + 1,
    error = CASE WHEN u.state = 'stuck' THEN r.error ELSE u.error END,
    note = CASE WHEN u.state = 'stuck' THEN u.error ELSE r.note END,
    finished_at = CASE WHEN u.state <> 'stuck' THEN to_timestamp(u.at) END
FROM unnest($7::holdfast.closed_run[]) u
WHERE r.id = u.id AND r.fence = u.fence
RETURNING 1

-- The rest of a hop, each only when a batch has any.

-- Written so that the planner does not take the partial index of undelivered signals, which is mostly dead entries.
-- name: deliver_signals
WITH heard AS (
    UPDATE holdfast.signals s SET delivered_seq = u.seq
    FROM unnest($1::bigint[], $2::int[]) u(id, seq)
    WHERE s.id = u.id AND coalesce(s.delivered_seq, -1) = -1
    RETURNING 1)
SELECT holdfast.demand((SELECT count(*) FROM heard) = cardinality($1))

-- name: set_aside_signals
WITH aside AS (
    UPDATE holdfast.signals s SET set_aside = u.why
    FROM unnest($1::text[], $2::int[], $3::text[]) u(run_id, seq, why)
    WHERE s.run_id = u.run_id AND s.delivered_seq = u.seq AND s.set_aside IS NULL
    RETURNING 1)
SELECT holdfast.demand((SELECT count(*) FROM aside) = cardinality($1))

-- name: end_waits
WITH ended AS (
    UPDATE holdfast.steps s SET state = 'succeeded', fence = s.fence + 1, output = u.output, delivered_seq = u.seq,
                       finished_at = to_timestamp(u.at)
    FROM unnest($1::text[], $2::int[], $3::int[], $4::bytea[], $5::float8[]) u(run_id, n, seq, output, at)
    WHERE s.run_id = u.run_id AND s.n = u.n AND s.state = 'waiting'
    RETURNING 1)
SELECT holdfast.demand((SELECT count(*) FROM ended) = cardinality($1))

-- name: drop_steps
UPDATE holdfast.steps s SET fence = s.fence + (s.finished_at IS NULL)::int, delivered_seq = 0,
                   state = CASE WHEN s.state IN ('waiting', 'ready', 'running') THEN 'cancelled' ELSE s.state END,
                   finished_at = coalesce(s.finished_at, clock_timestamp())
FROM unnest($1::text[], $2::int[]) u(run_id, n)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.delivered_seq IS NULL

-- name: send_signals
INSERT INTO holdfast.signals (run_id, name, key, payload)
SELECT u.run_id, u.name, u.key, u.payload
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) u(run_id, name, key, payload)
JOIN holdfast.runs r ON r.id = u.run_id AND r.finished_at IS NULL
ON CONFLICT (run_id, name, key) DO NOTHING

-- name: note_runs
UPDATE holdfast.runs r SET progress = coalesce(u.progress, r.progress), published = coalesce(u.published, r.published),
                           kept_n = greatest(r.kept_n, u.kept_n)
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) u(id, progress, published, kept_n)
WHERE r.id = u.id

-- name: tell_parents
UPDATE holdfast.steps s SET state = u.state, fence = s.fence + 1, output = u.output, error = u.error,
                   finished_at = coalesce(to_timestamp(u.at), clock_timestamp())
FROM unnest($1::text[], $2::int[], $3::text[], $4::bytea[], $5::text[], $6::float8[])
     u(run_id, n, state, output, error, at)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.state = 'waiting' AND s.kind = 'child'

-- What it returned is its parent's to know: the parent's step has it.
-- name: revoke_runs
UPDATE holdfast.runs r SET state = 'undone', output = NULL, error = u.error, finished_at = to_timestamp(u.at),
                  fence = r.fence + 1
FROM unnest($1::text[], $2::text[], $3::text[], $4::float8[]) u(id, parent_id, error, at)
WHERE r.id = u.id AND r.parent_id = u.parent_id AND r.state = 'succeeded'

-- As when it is freed: a run that has not said yet what it waits for is pending again, so that it is claimed. Two nodes that
-- begin one run have the same fence, so the owner is asked for, too.
-- name: park_runs
UPDATE holdfast.runs r SET owner = NULL, fence = r.fence + 1, state = holdfast.freed(r.id, r.state)
FROM unnest($1::text[], $2::int[], $3::text[]) u(id, fence, owner)
WHERE r.id = u.id AND r.fence = u.fence AND r.owner IS NOT DISTINCT FROM u.owner

-- name: undo_runs
UPDATE holdfast.runs r SET state = 'undoing', ending = u.ending, error = u.error, owner = NULL, fence = r.fence + 1
FROM unnest($1::text[], $2::int[], $3::text[], $4::text[]) u(id, fence, ending, error)
WHERE r.id = u.id AND r.fence = u.fence

-- The digest stays that of the input the run was started with: starting it again is still the same run. Nothing differs from
-- all of an empty array, not even NULL: signals that nobody has heard yet are left out by name.
-- name: continue_run
WITH gone AS (DELETE FROM holdfast.steps WHERE run_id = $1 RETURNING n),
     tries AS (DELETE FROM holdfast.attempts WHERE run_id = $1),
     heard AS (DELETE FROM holdfast.signals
               WHERE run_id = $1 AND delivered_seq IS NOT NULL AND delivered_seq <> ALL($4::int[])),
     unread AS (UPDATE holdfast.signals SET delivered_seq = NULL WHERE run_id = $1 AND delivered_seq = ANY($4::int[]))
UPDATE holdfast.runs SET input = $2, generation = generation + 1, fence = fence + 1, progress = NULL,
                started_at = to_timestamp($3),
                base_n = greatest(base_n, (SELECT coalesce(max(n), 0) FROM gone)), kept_n = 0
WHERE id = $1
