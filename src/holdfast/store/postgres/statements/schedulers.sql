-- What schedulers claim, read and fire. A claim raises the run's fence, so that an earlier owner's hops find no
-- row; a node that was buried claims nothing more. Both claims stop at the run with which they have $5 steps to load.

-- name: claim_pending
WITH next AS (
    SELECT c.id FROM unnest($2::text[], $3::text[]) w(workflow, version)
    CROSS JOIN LATERAL (
        SELECT id, priority, created_at FROM holdfast.runs
        WHERE workflow = w.workflow AND version = w.version AND state = 'pending'
        ORDER BY priority DESC, created_at LIMIT $4
        FOR UPDATE SKIP LOCKED) c
    WHERE EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
    ORDER BY c.priority DESC, c.created_at
    LIMIT $4),
sized AS (
    SELECT h.id, sum(h.steps) OVER (ORDER BY h.place) - h.steps AS before FROM (
        SELECT next.id, row_number() OVER () AS place,
               (SELECT coalesce(max(n), 0) FROM holdfast.steps WHERE run_id = next.id) AS steps FROM next) h)
UPDATE holdfast.runs r SET state = 'running', owner = $1, fence = r.fence + 1,
                  started_at = coalesce(r.started_at, clock_timestamp())
FROM sized WHERE r.id = sized.id AND sized.before < $5
RETURNING r.*

-- From what was not heard to the run that should hear it, then in order, locking as many as are wanted.
-- name: claim_awake
WITH awake AS (
    SELECT r.id FROM (
        SELECT run_id FROM holdfast.steps WHERE delivered_seq IS NULL AND state IN ('succeeded', 'failed', 'cancelled')
        UNION SELECT run_id FROM holdfast.signals WHERE delivered_seq IS NULL) unheard
    CROSS JOIN LATERAL (
        SELECT id, workflow, version, priority, created_at FROM holdfast.runs
        WHERE id = unheard.run_id AND owner IS NULL AND state IN ('running', 'undoing') OFFSET 0) r
    WHERE (r.workflow, r.version) IN (SELECT * FROM unnest($2::text[], $3::text[]))
      AND EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
    ORDER BY r.priority DESC, r.created_at),
next AS (
    SELECT r.id FROM awake CROSS JOIN LATERAL (
        SELECT id FROM holdfast.runs
        WHERE id = awake.id AND owner IS NULL AND state IN ('running', 'undoing') FOR UPDATE SKIP LOCKED) r
    LIMIT $4),
sized AS (
    SELECT h.id, sum(h.steps) OVER (ORDER BY h.place) - h.steps AS before FROM (
        SELECT next.id, row_number() OVER () AS place,
               (SELECT coalesce(max(n), 0) FROM holdfast.steps WHERE run_id = next.id) AS steps FROM next) h)
UPDATE holdfast.runs r SET owner = $1, fence = r.fence + 1
FROM sized WHERE r.id = sized.id AND sized.before < $5
RETURNING r.*

-- The same two for a node that works on some runs only.
-- name: claim_runs_of
WITH next AS (
    SELECT r.id FROM holdfast.runs r
    WHERE r.id = ANY($5::text[]) AND r.owner IS NULL
      AND (r.workflow, r.version) IN (SELECT * FROM unnest($2::text[], $3::text[]))
      AND (r.state = 'pending' OR (r.state IN ('running', 'undoing') AND (
           EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = r.id AND s.delivered_seq IS NULL
                                                  AND s.state IN ('succeeded', 'failed', 'cancelled'))
           OR EXISTS (SELECT FROM holdfast.signals s WHERE s.run_id = r.id AND s.delivered_seq IS NULL))))
      AND EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
    ORDER BY r.priority DESC, r.created_at LIMIT $4
    FOR UPDATE OF r SKIP LOCKED)
UPDATE holdfast.runs r SET state = CASE r.state WHEN 'pending' THEN 'running' ELSE r.state END, owner = $1,
                  fence = r.fence + 1, started_at = coalesce(r.started_at, clock_timestamp())
FROM next WHERE r.id = next.id
RETURNING r.*

-- name: claim_run
UPDATE holdfast.runs r SET state = CASE r.state WHEN 'pending' THEN 'running' ELSE r.state END, owner = $1, fence = r.fence + 1,
                  started_at = coalesce(r.started_at, clock_timestamp())
WHERE id = $2 AND owner IS NULL AND state IN ('pending', 'running', 'undoing')
  AND EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
RETURNING r.*

-- name: history_steps
SELECT s.* FROM unnest($1::text[]) u(id)
CROSS JOIN LATERAL (SELECT * FROM holdfast.steps WHERE run_id = u.id OFFSET 0) s
ORDER BY s.run_id, s.n

-- name: history_signals
SELECT * FROM holdfast.signals WHERE run_id = ANY($1::text[]) ORDER BY run_id, id

-- From the owner's runs to what each has to hear, whatever the planner believes (OFFSET 0: no other order): a join the other
-- way round passes over what everybody else has to hear, and over all that was heard since the last vacuum.
-- name: undelivered_steps
SELECT s.run_id, s.n, s.state, s.output, s.error, s.finished_at
FROM (SELECT id FROM holdfast.runs WHERE owner = $1 OFFSET 0) r
CROSS JOIN LATERAL (
    SELECT * FROM holdfast.steps
    WHERE run_id = r.id AND delivered_seq IS NULL AND state IN ('succeeded', 'failed', 'cancelled') OFFSET 0) s
ORDER BY s.finished_at, s.run_id, s.n LIMIT $2

-- name: undelivered_signals
SELECT s.*
FROM (SELECT id FROM holdfast.runs WHERE owner = $1 OFFSET 0) r
CROSS JOIN LATERAL (SELECT * FROM holdfast.signals WHERE run_id = r.id AND delivered_seq IS NULL OFFSET 0) s
ORDER BY s.id LIMIT $2

-- A time that is asked for once, in a subquery, bounds the index; one that is asked for at every row would pass over all
-- that sleep.
-- name: fire_timers
WITH due AS (
    SELECT s.run_id, s.n FROM holdfast.steps s
    WHERE s.state = 'waiting' AND s.kind = 'timer' AND s.ready_at <= (SELECT clock_timestamp())
      AND (SELECT r.owner IS NULL AND r.state IN ('running', 'undoing') FROM holdfast.runs r WHERE r.id = s.run_id)
    ORDER BY s.ready_at LIMIT $1
    FOR UPDATE OF s SKIP LOCKED)
UPDATE holdfast.steps s SET state = 'succeeded', fence = s.fence + 1, finished_at = clock_timestamp()
FROM due WHERE s.run_id = due.run_id AND s.n = due.n
RETURNING 1

-- name: next_timer
SELECT s.ready_at FROM holdfast.steps s
WHERE s.state = 'waiting' AND s.kind = 'timer'
  AND (SELECT r.owner IS NULL AND r.state IN ('running', 'undoing') FROM holdfast.runs r WHERE r.id = s.run_id)
ORDER BY s.ready_at LIMIT 1

-- name: hold_run
WITH held AS (
    UPDATE holdfast.runs SET resume = state, state = 'held', note = $3, owner = NULL, fence = fence + 1
    WHERE id = $1 AND fence = $2 AND state IN ('pending', 'running', 'undoing') RETURNING id),
noted AS (
    INSERT INTO holdfast.failures (run_id, n) SELECT id, 0 FROM held)
INSERT INTO holdfast.journal (actor, verb, run_id, note) SELECT 'scheduler', 'hold', id, $3 FROM held RETURNING 1

-- name: lost_runs
SELECT u.id FROM unnest($2::text[], $3::int[]) u(id, fence)
WHERE (SELECT r.owner = $1 AND r.fence = u.fence FROM holdfast.runs r WHERE r.id = u.id) IS NOT TRUE
