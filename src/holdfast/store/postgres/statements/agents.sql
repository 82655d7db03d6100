-- What agents write: only steps they hold, named by (run, n, fence).

-- name: report
WITH told AS (
    UPDATE holdfast.steps s SET state = u.state, fence = s.fence + 1, output = u.output, error = u.error,
                       finished_at = to_timestamp(u.at)
    FROM unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::bytea[], $6::text[], $7::float8[])
         u(run_id, n, fence, state, output, error, at)
    WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
    RETURNING 1)
SELECT holdfast.demand((SELECT count(*) FROM told) = cardinality($1))

-- name: reported_before
SELECT 1 FROM holdfast.steps
WHERE run_id = $1 AND n = $2 AND fence = $3::int + 1 AND agent = $4 AND state = $5

-- name: refuse_report
INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error)
SELECT run_id, n, attempt, 'refused', $3, $4 FROM holdfast.steps WHERE run_id = $1 AND n = $2 FOR KEY SHARE

-- name: try_again
WITH again AS (
    UPDATE holdfast.steps s SET state = 'ready', fence = s.fence + 1, agent = NULL, complete_by = NULL,
                       excused = s.excused + u.excused, error = u.error,
                       ready_at = clock_timestamp() + make_interval(secs => u.delay_s)
    FROM unnest($1::text[], $2::int[], $3::int[], $4::float8[], $5::text[], $6::text[], $7::int[])
         u(run_id, n, fence, delay_s, ending, error, excused)
    WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
    RETURNING s.run_id, s.n, s.attempt, u.ending, u.error, s.started_at),
kept AS (
    INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error, started_at)
    SELECT run_id, n, attempt, ending, $8, error, started_at FROM again)
SELECT holdfast.demand((SELECT count(*) FROM again) = cardinality($1))

-- name: hand_back
WITH back AS (
    UPDATE holdfast.steps s SET state = 'ready', fence = s.fence + 1, agent = NULL, complete_by = NULL, excused = s.excused + 1
    FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, fence)
    WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
    RETURNING 1)
SELECT holdfast.demand((SELECT count(*) FROM back) = cardinality($1))

-- name: save
WITH saved AS (
    UPDATE holdfast.steps s SET checkpoint = coalesce(u.checkpoint, s.checkpoint), progress = coalesce(u.progress, s.progress)
    FROM unnest($1::text[], $2::int[], $3::int[], $4::bytea[], $5::text[]) u(run_id, n, fence, checkpoint, progress)
    WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
    RETURNING 1)
SELECT holdfast.demand((SELECT count(*) FROM saved) = cardinality($1))

-- name: lanes
SELECT id, name, needs, nullif(undo, '') FROM holdfast.lanes ORDER BY id

-- name: lane
WITH made AS (
    INSERT INTO holdfast.lanes (name, needs, undo) VALUES ($1, $2, $3)
    ON CONFLICT (name, needs, undo) DO NOTHING RETURNING id)
SELECT id FROM made UNION ALL SELECT id FROM holdfast.lanes WHERE name = $1 AND needs = $2 AND undo = $3

-- A node that was buried claims nothing more. One index range per lane, so that no lane's backlog is sorted; locked rows
-- are another claimer's. The limit counts what can be claimed: steps of a held run must not keep those behind them waiting.
-- name: claim_steps
WITH next AS (
    SELECT s.run_id, s.n
    FROM unnest($2::int[]) l(lane)
    CROSS JOIN LATERAL (
        SELECT q.run_id, q.n, q.priority, q.ready_at FROM holdfast.steps q
        JOIN holdfast.runs r ON r.id = q.run_id AND r.state IN ('running', 'undoing')
        WHERE q.lane = l.lane AND q.state = 'ready' AND q.ready_at <= clock_timestamp()
        ORDER BY q.priority DESC, q.ready_at LIMIT $3
        FOR UPDATE OF q SKIP LOCKED) s
    WHERE EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
    ORDER BY s.priority DESC, s.ready_at LIMIT $3)
UPDATE holdfast.steps s SET state = 'running', agent = $1, attempt = s.attempt + 1, fence = s.fence + 1,
                   started_at = clock_timestamp(),
                   complete_by = clock_timestamp() + make_interval(secs => s.timeout_s)
FROM next
WHERE s.run_id = next.run_id AND s.n = next.n
RETURNING s.run_id, s.n, s.key, s.name, s.fence, s.attempt, s.losses, s.excused, s.attempts_max,
          s.timeout_s, s.input, s.retry, s.checkpoint, s.issued_at, s.error

-- name: lost_steps
SELECT u.run_id, u.n FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, fence)
LEFT JOIN holdfast.steps s ON s.run_id = u.run_id AND s.n = u.n
WHERE s.fence IS DISTINCT FROM u.fence

-- name: next_ready
SELECT min(due.ready_at) FROM unnest($1::int[]) l(lane)
CROSS JOIN LATERAL (SELECT ready_at FROM holdfast.steps WHERE lane = l.lane AND state = 'ready'
                    AND ready_at > clock_timestamp() ORDER BY ready_at LIMIT 1) due
