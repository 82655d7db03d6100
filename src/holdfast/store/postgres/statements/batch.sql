-- The hot path. The values come from the rows that batch.py makes.

-- The hops of a batch are written by one statement. It consists of those of these eight for which there are rows (see
-- session.py). Their rows come as arrays of composite types. The connection that runs it has pinned plans (see
-- database.py).

-- name: begin_runs
INSERT INTO holdfast.runs (id, namespace, workflow, version, state, priority, owner, fence, input, digest, tags,
                  parent_id, parent_n, deadline, created_at, started_at, output, error, finished_at)
SELECT u.id, u.namespace, u.workflow, u.version, u.state, u.priority, CASE WHEN u.ended IS NULL THEN $1 END,
       u.fence + (u.ended IS NOT NULL)::int, u.input, u.digest, u.tags, u.parent_id, u.parent_n,
       to_timestamp(u.deadline), to_timestamp(u.at),
       to_timestamp(u.at), u.output, u.error, to_timestamp(u.ended)
FROM unnest($2::holdfast.begun_run[]) u
WHERE {is_member($1)}
ON CONFLICT (id) DO NOTHING
RETURNING 1

-- name: own_runs
SELECT r.id FROM unnest($3::holdfast.owned_run[]) u
JOIN holdfast.runs r ON r.id = u.id AND r.fence = u.fence
FOR NO KEY UPDATE OF r

-- name: record_outcomes
UPDATE holdfast.steps s SET state = u.state, fence = s.fence + 1, output = u.output, error = u.error,
                   finished_at = to_timestamp(u.at), delivered_seq = u.seq
FROM unnest($4::holdfast.ended_step[]) u
WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
RETURNING 1

-- name: deliver_steps
UPDATE holdfast.steps s SET delivered_seq = u.seq
FROM unnest($5::holdfast.delivered_step[]) u
WHERE s.run_id = u.run_id AND s.n = u.n AND s.delivered_seq IS NULL AND s.finished_at IS NOT NULL
RETURNING 1

-- name: issue_steps
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

-- Steps with a queue. Those under a limit are never given to this node's agent at once.
-- name: issue_queued
INSERT INTO holdfast.steps (run_id, n, key, kind, name, lane, state, priority, ready_at, attempt, fence, agent, attempts_max,
                   timeout_s, complete_by, input, digest, retry, issued_at, started_at, after_seq, queue,
                   limit_a, limit_b, limit_c, weight_a, weight_b, weight_c)
SELECT u.run_id, u.n, u.key, u.kind, u.name, u.lane, u.state, u.priority,
       coalesce(to_timestamp(u.ready_at), clock_timestamp()), u.leased, u.leased,
       CASE u.leased WHEN 1 THEN $1 END, u.attempts_max, u.timeout_s,
       CASE u.leased WHEN 1 THEN clock_timestamp() + make_interval(secs => u.timeout_s) END,
       u.input, u.digest, u.retry, clock_timestamp(), CASE u.leased WHEN 1 THEN clock_timestamp() END,
       u.after_seq, u.queue, u.limit_a, u.limit_b, u.limit_c, u.weight_a, u.weight_b, u.weight_c
FROM unnest($9::holdfast.placed_step[]) u
RETURNING 1

-- name: close_runs
UPDATE holdfast.runs r SET state = u.state, output = u.output, owner = NULL, fence = r.fence + 1,
    error = CASE WHEN u.state = 'stuck' THEN r.error ELSE u.error END,
    note = CASE WHEN u.state = 'stuck' THEN u.error ELSE r.note END,
    finished_at = CASE WHEN u.state <> 'stuck' THEN to_timestamp(u.at) END
FROM unnest($7::holdfast.closed_run[]) u
WHERE r.id = u.id AND r.fence = u.fence
RETURNING 1

-- Writes what was logged. Whatever guards the rest of the operation guards this, too. A part that was written before
-- has more lines now, or is replaced by a later one.
-- name: keep_logs
INSERT INTO holdfast.logs (run_id, n, attempt, twin, part, first_line, first_byte, lines, at, body)
SELECT u.run_id, u.n, u.attempt, u.twin, u.part, u.first_line, u.first_byte, u.lines, to_timestamp(u.at), u.body
FROM unnest($8::holdfast.logged_part[]) u
ON CONFLICT (run_id, n, attempt, twin, part) DO UPDATE
SET first_line = excluded.first_line, first_byte = excluded.first_byte, lines = excluded.lines, at = excluded.at,
    body = excluded.body
RETURNING 1

-- All transactions lock runs before steps, and both in the order of their keys, so that two of them cannot wait for each
-- other. A batch that writes such rows with several statements locks all of them first.

-- name: lock_batch_runs
SELECT FROM holdfast.runs WHERE id = ANY($1::text[]) ORDER BY id FOR NO KEY UPDATE

-- name: lock_batch_steps
SELECT FROM unnest($1::text[], $2::int[]) u(run_id, n)
JOIN holdfast.steps s ON s.run_id = u.run_id AND s.n = u.n
ORDER BY s.run_id, s.n FOR NO KEY UPDATE OF s

-- The rest of a batch. A statement runs only if there are rows for it.

-- The coalesce keeps the planner from the partial index of undelivered signals, because most of its entries are dead.
-- name: deliver_signals
UPDATE holdfast.signals s SET delivered_seq = u.seq
FROM unnest($1::bigint[], $2::int[]) u(id, seq)
WHERE s.id = u.id AND coalesce(s.delivered_seq, -1) = -1

-- OFFSET 0 makes the planner look up the signal of each row by index, whatever its estimates say.
-- name: set_aside_signals
UPDATE holdfast.signals s SET set_aside = found.why
FROM (SELECT g.id, u.why FROM unnest($1::text[], $2::int[], $3::text[]) u(run_id, seq, why)
      CROSS JOIN LATERAL (SELECT id FROM holdfast.signals
                          WHERE run_id = u.run_id AND delivered_seq = u.seq AND set_aside IS NULL OFFSET 0) g) found
WHERE s.id = found.id

-- name: answer_updates
UPDATE holdfast.signals s SET answer = found.answer, reply = found.reply, replied_at = to_timestamp(found.at)
FROM (SELECT g.id, u.answer, u.reply, u.at
      FROM unnest($1::text[], $2::int[], $3::text[], $4::bytea[], $5::float8[]) u(run_id, seq, answer, reply, at)
      CROSS JOIN LATERAL (SELECT id FROM holdfast.signals
                          WHERE run_id = u.run_id AND delivered_seq = u.seq AND answer IS NULL OFFSET 0) g) found
WHERE s.id = found.id

-- name: end_waits
UPDATE holdfast.steps s SET state = 'succeeded', fence = s.fence + 1, output = u.output, delivered_seq = u.seq,
                   finished_at = to_timestamp(u.at)
FROM unnest($1::text[], $2::int[], $3::int[], $4::bytea[], $5::float8[]) u(run_id, n, seq, output, at)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.state = 'waiting'

-- name: drop_steps
UPDATE holdfast.steps s SET fence = s.fence + (s.finished_at IS NULL)::int, delivered_seq = 0,
                   state = CASE WHEN s.finished_at IS NULL THEN 'cancelled' ELSE s.state END,
                   finished_at = coalesce(s.finished_at, clock_timestamp())
FROM unnest($1::text[], $2::int[]) u(run_id, n)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.delivered_seq IS NULL

-- name: promise_steps
UPDATE holdfast.steps s SET due_at = s.issued_at + make_interval(secs => u.due_s)
FROM unnest($1::text[], $2::int[], $3::float8[]) u(run_id, n, due_s)
WHERE s.run_id = u.run_id AND s.n = u.n

-- Their numbers have the order in which they were sent, however the planner joins.
-- name: send_signals
INSERT INTO holdfast.signals (run_id, name, key, payload)
SELECT u.run_id, u.name, u.key, u.payload
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) WITH ORDINALITY u(run_id, name, key, payload, ord)
JOIN holdfast.runs r ON r.id = u.run_id AND r.finished_at IS NULL
ORDER BY u.ord
ON CONFLICT (run_id, name, key) DO NOTHING

-- name: note_runs
UPDATE holdfast.runs r SET progress = coalesce(u.progress, r.progress), published = coalesce(u.published, r.published),
                           kept_n = greatest(r.kept_n, u.kept_n)
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) u(id, progress, published, kept_n)
WHERE r.id = u.id

-- name: end_child_steps
UPDATE holdfast.steps s SET state = u.state, fence = s.fence + 1, output = u.output, error = u.error,
                   finished_at = coalesce(to_timestamp(u.at), clock_timestamp())
FROM unnest($1::text[], $2::int[], $3::text[], $4::bytea[], $5::text[], $6::float8[])
     u(run_id, n, state, output, error, at)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.state = 'waiting' AND s.kind IN ('child', 'start')

-- A run that waits for nothing becomes pending again, so that it is claimed. Two nodes that begin the same run have the
-- same fence, so the owner is compared, too.
-- name: park_runs
UPDATE holdfast.runs r SET owner = NULL, fence = r.fence + 1, state = holdfast.freed(r.id, r.state)
FROM unnest($1::text[], $2::int[], $3::text[]) u(id, fence, owner)
WHERE r.id = u.id AND r.fence = u.fence AND r.owner IS NOT DISTINCT FROM u.owner

-- name: undo_runs
UPDATE holdfast.runs r SET state = 'undoing', ending = u.ending, error = u.error, owner = NULL, fence = r.fence + 1
FROM unnest($1::text[], $2::int[], $3::text[], $4::text[]) u(id, fence, ending, error)
WHERE r.id = u.id AND r.fence = u.fence

-- Continue as new. The run is written first, because its statement reads the steps, which are removed next.

-- The digest stays that of the first input, so that starting the run again with that input is still a duplicate.
-- name: continue_runs
UPDATE holdfast.runs r SET input = u.input, generation = r.generation + 1, fence = r.fence + 1, progress = NULL, kept_n = 0,
                  started_at = to_timestamp(u.at),
                  base_n = greatest(r.base_n, (SELECT coalesce(max(s.n), 0) FROM holdfast.steps s WHERE s.run_id = r.id))
FROM unnest($1::text[], $2::bytea[], $3::float8[]) u(id, input, at)
WHERE r.id = u.id

-- name: forget_steps
DELETE FROM holdfast.steps WHERE run_id = ANY($1::text[])

-- name: forget_logs
DELETE FROM holdfast.logs WHERE run_id = ANY($1::text[])

-- name: forget_attempts
DELETE FROM holdfast.attempts WHERE run_id = ANY($1::text[])

-- Signals that no step took belong to the next generation. They lose their place in the history first, because
-- forget_signals removes all that have one.
-- name: unread_signals
UPDATE holdfast.signals SET delivered_seq = NULL
WHERE run_id = ANY($1::text[]) AND (run_id, delivered_seq) IN (SELECT u.run_id, u.seq FROM unnest($1::text[], $2::int[]) u(run_id, seq))

-- The answers to updates outlive the history, so that the same key gets the same answer.
-- name: keep_answers
UPDATE holdfast.signals SET delivered_seq = 0
WHERE run_id = ANY($1::text[]) AND delivered_seq > 0 AND answer IS NOT NULL

-- name: forget_signals
DELETE FROM holdfast.signals WHERE run_id = ANY($1::text[]) AND delivered_seq IS NOT NULL AND answer IS NULL

-- What agents write. They name each step by (run, n, fence), so only steps that they have are changed.

-- Copies the attempt from the step's row, before the row is changed.
-- name: keep_attempts
INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error, started_at, ready_at)
SELECT s.run_id, s.n, s.attempt, u.ending, s.agent, u.error, s.started_at, s.ready_at
FROM unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::text[]) u(run_id, n, fence, ending, error)
JOIN holdfast.steps s ON s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence

-- name: retry_steps
UPDATE holdfast.steps s SET state = 'ready', fence = s.fence + 1, agent = NULL, complete_by = NULL,
                   excused = s.excused + u.excused, losses = s.losses + u.losses,
                   timeouts = s.timeouts + u.timeouts, throttled = s.throttled + u.throttled, error = u.error,
                   ready_at = clock_timestamp() + make_interval(secs => u.delay_s)
FROM unnest($1::text[], $2::int[], $3::int[], $4::float8[], $5::text[], $6::int[], $7::int[], $8::int[], $9::int[])
     u(run_id, n, fence, delay_s, error, excused, losses, timeouts, throttled)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence

-- name: quarantine_steps
UPDATE holdfast.steps s SET state = 'ready', fence = s.fence + 1, agent = NULL, complete_by = NULL,
                   losses = s.losses + u.losses, timeouts = s.timeouts + u.timeouts,
                   throttled = s.throttled + u.throttled, error = u.error, ready_at = {never}
FROM unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::int[], $6::int[], $7::int[])
     u(run_id, n, fence, error, losses, timeouts, throttled)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence

-- name: hand_back_steps
UPDATE holdfast.steps s SET state = 'ready', fence = s.fence + 1, agent = NULL, complete_by = NULL, excused = s.excused + 1
FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, fence)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence

-- name: save_steps
UPDATE holdfast.steps s SET checkpoint = coalesce(u.checkpoint, s.checkpoint), progress = coalesce(u.progress, s.progress)
FROM unnest($1::text[], $2::int[], $3::int[], $4::bytea[], $5::text[]) u(run_id, n, fence, checkpoint, progress)
WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence

-- Holds the runs of steps that are handed back because the agent's code cannot read what was recorded for them.
-- name: hold_runs
UPDATE holdfast.runs r SET resume = r.state, state = 'held', note = u.note, owner = NULL, fence = r.fence + 1
FROM unnest($1::text[], $2::text[]) u(id, note)
WHERE r.id = u.id AND r.state IN ('pending', 'running', 'undoing')
RETURNING r.id, r.note

-- Finds a row if the same report was accepted before, and its answer got lost.
-- name: reported_before
SELECT 1 FROM holdfast.steps
WHERE run_id = $1 AND n = $2 AND fence = $3::int + 1 AND agent = $4 AND state = $5

-- name: refuse_report
INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error)
SELECT run_id, n, attempt, 'refused', $3, $4 FROM holdfast.steps WHERE run_id = $1 AND n = $2 FOR KEY SHARE

-- These three statements also run on connections of callers, which have another search path. So functions are named
-- with their schema. Otherwise a function in another schema that fits the arguments better would be called instead.
-- `unnest` of several arrays needs no schema: it is part of the language, and is always the server's own.

-- The deadline of a run that begins later is counted from then, and so is a span within which it is due.
-- name: start_runs
INSERT INTO holdfast.runs (id, namespace, workflow, version, state, priority, input, digest, tags, parent_id, parent_n, deadline,
                           started_by, started_n, begin_at, fair, under, queue, limit_a, limit_b, limit_c, weight_a, weight_b, weight_c,
                           due_at)
SELECT u.id, u.namespace, u.workflow, u.version, 'pending', u.priority, u.input, u.digest, u.tags, u.parent_id,
       u.parent_n, greatest(t.now, t.begin_at) + pg_catalog.make_interval(secs => u.timeout_s), u.started_by, u.started_n,
       CASE WHEN t.begin_at > t.now THEN t.begin_at END, u.fair, u.under,
       CASE WHEN t.begin_at > t.now THEN -1 - u.queue ELSE u.queue END, u.limit_a, u.limit_b, u.limit_c, u.weight_a, u.weight_b,
       u.weight_c, coalesce(pg_catalog.to_timestamp(u.due_at), greatest(t.now, t.begin_at) + pg_catalog.make_interval(secs => u.due_in_s))
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bytea[], $7::bytea[], $8::text[],
            $9::text[], $10::int[], $11::float8[], $12::text[], $13::int[], $14::float8[], $15::float8[], $16::text[], $17::text[],
            $18::int[], $19::int[], $20::int[], $21::int[], $22::int[], $23::int[], $24::int[], $25::float8[], $26::float8[])
     u(id, namespace, workflow, version, priority, input, digest, tags, parent_id, parent_n, timeout_s, started_by,
       started_n, begin_at, begin_in_s, fair, under, queue, limit_a, limit_b, limit_c, weight_a, weight_b, weight_c, due_at,
       due_in_s)
CROSS JOIN LATERAL (
    SELECT n.now, coalesce(pg_catalog.to_timestamp(u.begin_at), n.now + pg_catalog.make_interval(secs => u.begin_in_s)) AS begin_at
    FROM (SELECT pg_catalog.clock_timestamp() AS now OFFSET 0) n OFFSET 0) t
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: started_as
SELECT id, workflow, digest FROM holdfast.runs WHERE id = ANY($1::text[])

-- Two databases have different identities, even if they have the same name.
-- name: database_identity
SELECT pg_catalog.concat(oid, ' since ', extract(epoch FROM pg_catalog.pg_postmaster_start_time()))
FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
