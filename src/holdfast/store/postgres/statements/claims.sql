-- What schedulers and agents claim. A claim raises the fence, so that late writes of an earlier owner or agent find no
-- row. A node that was reclaimed claims nothing more. These claim only what is in queue 0: queues.sql has the others.
-- A run that is to begin later is in a queue below 0, from which nobody claims.

-- This reads one index range per lane, so that no lane's backlog is sorted. Rows that are locked belong to another
-- claim. Lanes behind a gate are left out first. A subquery that cannot become a join asks for each row whether the
-- step's run goes on. So a lane is read in the order of its index, and steps that must wait do not hide those behind
-- them. Neither do suspects: they are passed over if the agent may not have one.
-- name: claim_steps
WITH passable AS (
    SELECT u.lane FROM unnest($2::int[]) u(lane) LEFT JOIN holdfast.lanes l ON l.id = u.lane WHERE {passable(l)}),
due AS (
    SELECT s.run_id, s.n, s.priority, s.ready_at, s.losses >= $4 AS suspect
    FROM passable l
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.n, w.priority, w.ready_at, w.losses FROM holdfast.steps w
        WHERE w.lane = l.lane AND w.state = 'ready' AND w.queue = 0 AND w.ready_at <= (SELECT clock_timestamp())
          AND ($5 > 0 OR w.losses < $4)
          AND (SELECT {goes_on(r)} FROM holdfast.runs r WHERE r.id = w.run_id)
        ORDER BY w.priority DESC, w.ready_at LIMIT $3
        FOR UPDATE OF w SKIP LOCKED) s
    WHERE {is_member($1)}
    ORDER BY s.priority DESC, s.ready_at LIMIT $3),
{take_due}

-- The same for a node that works only on certain runs. It looks up the steps of each run.
-- name: claim_steps_of
WITH passable AS (
    SELECT u.lane FROM unnest($2::int[]) u(lane) LEFT JOIN holdfast.lanes l ON l.id = u.lane WHERE {passable(l)}),
due AS (
    SELECT s.run_id, s.n, s.priority, s.ready_at, s.losses >= $4 AS suspect
    FROM unnest($6::text[]) u(id)
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.n, w.priority, w.ready_at, w.losses FROM holdfast.steps w
        WHERE w.run_id = u.id AND w.lane IN (SELECT lane FROM passable) AND w.state = 'ready' AND w.queue = 0
          AND w.ready_at <= (SELECT clock_timestamp()) AND ($5 > 0 OR w.losses < $4)
          AND (SELECT {goes_on(r)} FROM holdfast.runs r WHERE r.id = w.run_id)
        ORDER BY w.priority DESC, w.ready_at LIMIT $3
        FOR UPDATE OF w SKIP LOCKED) s
    WHERE {is_member($1)}
    ORDER BY s.priority DESC, s.ready_at LIMIT $3),
{take_due}

-- Claims the due steps, but at most $5 suspects.
-- fragment: take_due
next AS (
    SELECT run_id, n FROM (
        SELECT run_id, n, suspect, row_number() OVER (PARTITION BY suspect ORDER BY priority DESC, ready_at) AS place
        FROM due) d
    WHERE NOT suspect OR place <= $5)
{take_next}

-- fragment: take_next
UPDATE holdfast.steps s SET state = 'running', agent = $1, attempt = s.attempt + 1, fence = s.fence + 1,
                   started_at = clock_timestamp(),
                   complete_by = clock_timestamp() + make_interval(secs => s.timeout_s)
FROM next
WHERE s.run_id = next.run_id AND s.n = next.n
RETURNING {ClaimedStep(s)}

-- Steps of lanes that depend on $4. Its breaker is probing, and this transaction has locked it.
-- name: claim_probes
WITH next AS (
    SELECT s.run_id, s.n
    FROM unnest($2::int[]) u(lane) JOIN holdfast.lanes l ON l.id = u.lane AND l.depends = $4
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.n, w.priority, w.ready_at FROM holdfast.steps w
        WHERE w.lane = u.lane AND w.state = 'ready' AND w.queue = 0 AND w.ready_at <= (SELECT clock_timestamp())
          AND ($5::text[] IS NULL OR w.run_id = ANY($5))
          AND (SELECT {goes_on(r)} FROM holdfast.runs r WHERE r.id = w.run_id)
        ORDER BY w.priority DESC, w.ready_at LIMIT $3
        FOR UPDATE OF w SKIP LOCKED) s
    WHERE {is_member($1)} AND NOT EXISTS (SELECT FROM holdfast.holds h WHERE h.scope = 'step' AND h.value = l.name)
    ORDER BY s.priority DESC, s.ready_at LIMIT $3)
{take_next}

-- How many steps the runs before each run have to replay. Both claims of runs stop when these are $5 or more.
-- fragment: sized
sized AS (
    SELECT h.id, sum(h.steps) OVER (ORDER BY h.place) - h.steps AS before FROM (
        SELECT next.id, row_number() OVER () AS place,
               (SELECT coalesce(max(n), 0) FROM holdfast.steps WHERE run_id = next.id) AS steps FROM next) h)

-- name: claim_pending
WITH next AS (
    SELECT c.id FROM unnest($2::text[], $3::text[]) w(workflow, version)
    CROSS JOIN LATERAL (
        SELECT id, priority, created_at FROM holdfast.runs
        WHERE workflow = w.workflow AND version = w.version AND state = 'pending' AND queue = 0
        ORDER BY priority DESC, created_at LIMIT $4
        FOR UPDATE SKIP LOCKED) c
    WHERE {is_member($1)}
    ORDER BY c.priority DESC, c.created_at
    LIMIT $4),
{sized}
UPDATE holdfast.runs r SET state = 'running', owner = $1, fence = r.fence + 1,
                  started_at = coalesce(r.started_at, clock_timestamp())
FROM sized WHERE r.id = sized.id AND sized.before < $5
RETURNING {Run(r)}

-- Finds the runs that have something to deliver, sorts them, and locks as many as are wanted.
-- name: claim_awake
WITH awake AS (
    SELECT r.id FROM (
        SELECT run_id FROM holdfast.steps WHERE delivered_seq IS NULL AND state IN ('succeeded', 'failed', 'cancelled')
        UNION SELECT run_id FROM holdfast.signals WHERE delivered_seq IS NULL) undelivered
    CROSS JOIN LATERAL (
        SELECT id, workflow, version, priority, created_at FROM holdfast.runs
        WHERE id = undelivered.run_id AND owner IS NULL AND state IN ('running', 'undoing') OFFSET 0) r
    WHERE (r.workflow, r.version) IN (SELECT w.workflow, w.version FROM unnest($2::text[], $3::text[]) w(workflow, version))
      AND {is_member($1)}
    ORDER BY r.priority DESC, r.created_at),
next AS (
    SELECT r.id FROM awake CROSS JOIN LATERAL (
        SELECT id FROM holdfast.runs
        WHERE id = awake.id AND owner IS NULL AND state IN ('running', 'undoing') FOR UPDATE SKIP LOCKED) r
    LIMIT $4),
{sized}
UPDATE holdfast.runs r SET owner = $1, fence = r.fence + 1
FROM sized WHERE r.id = sized.id AND sized.before < $5
RETURNING {Run(r)}

-- Both of these for a node that works only on certain runs.
-- name: claim_runs_of
WITH next AS (
    SELECT r.id FROM holdfast.runs r
    WHERE r.id = ANY($5::text[]) AND r.owner IS NULL
      AND (r.workflow, r.version) IN (SELECT w.workflow, w.version FROM unnest($2::text[], $3::text[]) w(workflow, version))
      AND ((r.state = 'pending' AND r.queue = 0) OR ({active(r)} AND (
           EXISTS (SELECT FROM holdfast.steps s WHERE s.run_id = r.id AND s.delivered_seq IS NULL AND {has_ended(s)})
           OR EXISTS (SELECT FROM holdfast.signals s WHERE s.run_id = r.id AND s.delivered_seq IS NULL))))
      AND {is_member($1)}
    ORDER BY r.priority DESC, r.created_at LIMIT $4
    FOR UPDATE OF r SKIP LOCKED)
UPDATE holdfast.runs r SET state = CASE r.state WHEN 'pending' THEN 'running' ELSE r.state END, owner = $1,
                  fence = r.fence + 1, started_at = coalesce(r.started_at, clock_timestamp())
FROM next WHERE r.id = next.id
RETURNING {Run(r)}

-- name: claim_run
UPDATE holdfast.runs r SET state = CASE r.state WHEN 'pending' THEN 'running' ELSE r.state END, owner = $1, fence = r.fence + 1,
                  started_at = coalesce(r.started_at, clock_timestamp())
WHERE r.id = $2 AND r.owner IS NULL AND (r.state IN ('running', 'undoing') OR (r.state = 'pending' AND r.queue = 0)) AND {is_member($1)}
RETURNING {Run(r)}
