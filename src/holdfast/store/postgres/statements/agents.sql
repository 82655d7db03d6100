-- What agents write: only steps they hold, named by (run, n, fence).

-- name: report
WITH told AS (
    UPDATE holdfast.steps s SET state = u.state, fence = s.fence + 1, output = u.output, error = u.error,
                       finished_at = to_timestamp(u.at)
    FROM unnest($1::holdfast.ended_step[]) u
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
                       excused = s.excused + u.excused, losses = s.losses + u.losses,
                       timeouts = s.timeouts + u.timeouts, throttled = s.throttled + u.throttled, error = u.error,
                       ready_at = clock_timestamp() + make_interval(secs => u.delay_s)
    FROM unnest($1::text[], $2::int[], $3::int[], $4::float8[], $5::text[], $6::text[], $7::int[], $8::int[], $9::int[],
                $10::int[])
         u(run_id, n, fence, delay_s, ending, error, excused, losses, timeouts, throttled)
    WHERE s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence
    RETURNING s.run_id, s.n, s.attempt, u.ending, u.error, s.started_at),
kept AS (
    INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error, started_at)
    SELECT run_id, n, attempt, ending, $11, error, started_at FROM again)
SELECT holdfast.demand((SELECT count(*) FROM again) = cardinality($1))

-- The runs of steps that are handed back because the agent's code cannot read what was recorded for them.
-- name: hold_runs
WITH held AS (
    UPDATE holdfast.runs r SET resume = r.state, state = 'held', note = u.note, owner = NULL, fence = r.fence + 1
    FROM unnest($1::text[], $2::text[]) u(id, note)
    WHERE r.id = u.id AND r.state IN ('pending', 'running', 'undoing') RETURNING r.id, r.note),
noted AS (
    INSERT INTO holdfast.failures (run_id, n) SELECT id, 0 FROM held)
INSERT INTO holdfast.journal (actor, verb, run_id, note) SELECT 'agent', 'hold', id, note FROM held

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
SELECT id, name, needs, nullif(undo, ''), depends FROM holdfast.lanes ORDER BY id

-- name: number_lanes
WITH asked AS (SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) u(name, needs, undo, depends)),
made AS (
    INSERT INTO holdfast.lanes (name, needs, undo, depends)
    SELECT name, needs, undo, depends FROM asked a
    WHERE NOT EXISTS (SELECT FROM holdfast.lanes l
                      WHERE l.name = a.name AND l.needs = a.needs AND l.undo = a.undo AND l.depends = a.depends)
    ORDER BY name, needs, undo, depends
    ON CONFLICT (name, needs, undo, depends) DO NOTHING RETURNING id, name, needs, undo, depends)
SELECT id, name, needs, undo, depends FROM made
UNION ALL SELECT l.id, l.name, l.needs, l.undo, l.depends
FROM asked a JOIN holdfast.lanes l ON l.name = a.name AND l.needs = a.needs AND l.undo = a.undo AND l.depends = a.depends

-- A node that was buried claims nothing more. One index range per lane, so that no lane's backlog is sorted; locked rows are
-- another claimer's. Lanes behind a gate are left out first. Whether the step's run may go on is asked row by row, by a subquery
-- that cannot become a join: so a lane is read in the order of its index, and rows that must wait hide none behind them. Nor do
-- suspects: they are passed over while the agent has no room for one.
-- name: claim_steps
WITH passable AS (
    SELECT u.lane FROM unnest($2::int[]) u(lane) LEFT JOIN holdfast.lanes l ON l.id = u.lane
    WHERE NOT EXISTS (SELECT FROM holdfast.breakers b WHERE b.name = l.depends AND b.state <> 'closed')
      AND NOT EXISTS (SELECT FROM holdfast.holds h WHERE h.scope = 'all'
                      OR (h.scope = 'dependency' AND h.value = l.depends) OR (h.scope = 'step' AND h.value = l.name))),
due AS (
    SELECT s.run_id, s.n, s.priority, s.ready_at, s.losses >= $4 AS suspect
    FROM passable l
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.n, w.priority, w.ready_at, w.losses FROM holdfast.steps w
        WHERE w.lane = l.lane AND w.state = 'ready' AND w.ready_at <= (SELECT clock_timestamp())
          AND ($5 > 0 OR w.losses < $4)
          AND (SELECT r.state IN ('running', 'undoing') AND NOT EXISTS (
                   SELECT FROM holdfast.holds h
                   WHERE (h.scope = 'workflow' AND h.value = r.workflow) OR (h.scope = 'namespace' AND h.value = r.namespace))
               FROM holdfast.runs r WHERE r.id = w.run_id)
        ORDER BY w.priority DESC, w.ready_at LIMIT $3
        FOR UPDATE OF w SKIP LOCKED) s
    WHERE EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
    ORDER BY s.priority DESC, s.ready_at LIMIT $3),
next AS (
    SELECT run_id, n FROM (
        SELECT run_id, n, suspect, row_number() OVER (PARTITION BY suspect ORDER BY priority DESC, ready_at) AS place
        FROM due) d
    WHERE NOT suspect OR place <= $5)
UPDATE holdfast.steps s SET state = 'running', agent = $1, attempt = s.attempt + 1, fence = s.fence + 1,
                   started_at = clock_timestamp(),
                   complete_by = clock_timestamp() + make_interval(secs => s.timeout_s)
FROM next
WHERE s.run_id = next.run_id AND s.n = next.n
RETURNING s.run_id, s.n, s.key, s.name, s.fence, s.attempt, s.losses, s.excused, s.attempts_max,
          s.timeout_s, s.input, s.retry, s.checkpoint, s.issued_at, s.error, s.timeouts, s.throttled, s.effect

-- The same for a node that works on some runs only: from each run to its steps.
-- name: claim_steps_of
WITH passable AS (
    SELECT u.lane FROM unnest($2::int[]) u(lane) LEFT JOIN holdfast.lanes l ON l.id = u.lane
    WHERE NOT EXISTS (SELECT FROM holdfast.breakers b WHERE b.name = l.depends AND b.state <> 'closed')
      AND NOT EXISTS (SELECT FROM holdfast.holds h WHERE h.scope = 'all'
                      OR (h.scope = 'dependency' AND h.value = l.depends) OR (h.scope = 'step' AND h.value = l.name))),
due AS (
    SELECT s.run_id, s.n, s.priority, s.ready_at, s.losses >= $4 AS suspect
    FROM unnest($6::text[]) u(id)
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.n, w.priority, w.ready_at, w.losses FROM holdfast.steps w
        WHERE w.run_id = u.id AND w.lane IN (SELECT lane FROM passable) AND w.state = 'ready' AND w.ready_at <= (SELECT clock_timestamp())
          AND ($5 > 0 OR w.losses < $4)
          AND (SELECT r.state IN ('running', 'undoing') AND NOT EXISTS (
                   SELECT FROM holdfast.holds h
                   WHERE (h.scope = 'workflow' AND h.value = r.workflow) OR (h.scope = 'namespace' AND h.value = r.namespace))
               FROM holdfast.runs r WHERE r.id = w.run_id)
        ORDER BY w.priority DESC, w.ready_at LIMIT $3
        FOR UPDATE OF w SKIP LOCKED) s
    WHERE EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
    ORDER BY s.priority DESC, s.ready_at LIMIT $3),
next AS (
    SELECT run_id, n FROM (
        SELECT run_id, n, suspect, row_number() OVER (PARTITION BY suspect ORDER BY priority DESC, ready_at) AS place
        FROM due) d
    WHERE NOT suspect OR place <= $5)
UPDATE holdfast.steps s SET state = 'running', agent = $1, attempt = s.attempt + 1, fence = s.fence + 1,
                   started_at = clock_timestamp(),
                   complete_by = clock_timestamp() + make_interval(secs => s.timeout_s)
FROM next
WHERE s.run_id = next.run_id AND s.n = next.n
RETURNING s.run_id, s.n, s.key, s.name, s.fence, s.attempt, s.losses, s.excused, s.attempts_max,
          s.timeout_s, s.input, s.retry, s.checkpoint, s.issued_at, s.error, s.timeouts, s.throttled, s.effect

-- name: lost_steps
SELECT u.run_id, u.n FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, fence)
WHERE (SELECT s.fence = u.fence FROM holdfast.steps s WHERE s.run_id = u.run_id AND s.n = u.n) IS NOT TRUE

-- name: next_ready
SELECT min(due.ready_at) FROM unnest($1::int[]) l(lane)
CROSS JOIN LATERAL (SELECT ready_at FROM holdfast.steps WHERE lane = l.lane AND state = 'ready'
                    AND ready_at > (SELECT clock_timestamp()) ORDER BY ready_at LIMIT 1) due

-- name: next_ready_of
SELECT min(ready_at) FROM holdfast.steps
WHERE run_id = ANY($2::text[]) AND lane = ANY($1::int[]) AND state = 'ready' AND ready_at > clock_timestamp()
