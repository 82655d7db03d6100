-- Twins: made and swept by the leader, taken up and ended by agents. A twin's fence guards the twin; the step takes its
-- outcome only while it has none. Where both rows are locked, the twin's is locked first.

-- A step that has lost an agent may be what kills them: it gets none.
-- name: make_twins
WITH leads AS (
    SELECT epoch FROM holdfast.leases WHERE name = 'leader' AND epoch = $1 AND expires_at > clock_timestamp() FOR SHARE),
made AS (
    INSERT INTO holdfast.twins (run_id, n, state, step_fence, lane, not_agent)
    SELECT s.run_id, s.n, 'ready', s.fence, s.lane, s.agent
    FROM unnest($2::text[], $3::int[], $4::int[]) u(run_id, n, fence)
    JOIN holdfast.steps s ON s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence AND s.state = 'running'
                         AND s.losses = 0
    JOIN holdfast.runs r ON r.id = s.run_id AND r.state = 'running'
    WHERE EXISTS (SELECT FROM leads)
    ON CONFLICT (run_id, n) DO NOTHING
    RETURNING run_id, n),
told AS (
    INSERT INTO holdfast.journal (actor, verb, run_id, n, note)
    SELECT 'supervisor', 'hedge', run_id, n, 'it got a twin' FROM made)
SELECT run_id, n FROM made

-- A twin may begin while the step is as it was when the twin was made, on any agent but the step's own, and through the
-- same gates as any step.
-- name: claim_twins
WITH next AS (
    SELECT t.run_id, t.n FROM holdfast.twins t
    JOIN holdfast.steps s ON s.run_id = t.run_id AND s.n = t.n AND s.fence = t.step_fence
    JOIN holdfast.runs r ON r.id = t.run_id AND r.state = 'running'
    WHERE t.ended_at IS NULL AND t.state = 'ready' AND t.lane = ANY($2::int[]) AND t.not_agent <> $1
      AND EXISTS (SELECT FROM holdfast.nodes WHERE id = $1 AND retired_at IS NULL)
      AND NOT EXISTS (SELECT FROM holdfast.lanes l JOIN holdfast.breakers b ON b.name = l.depends AND b.state <> 'closed'
                      WHERE l.id = t.lane)
      AND NOT EXISTS (SELECT FROM holdfast.holds h LEFT JOIN holdfast.lanes l ON l.id = t.lane
                      WHERE h.scope = 'all' OR (h.scope = 'dependency' AND h.value = l.depends)
                         OR (h.scope = 'step' AND h.value = s.name) OR (h.scope = 'workflow' AND h.value = r.workflow)
                         OR (h.scope = 'namespace' AND h.value = r.namespace))
    ORDER BY t.made_at LIMIT $3
    FOR UPDATE OF t SKIP LOCKED),
taken AS (
    UPDATE holdfast.twins t SET state = 'running', agent = $1, started_at = clock_timestamp(), fence = t.fence + 1
    FROM next WHERE t.run_id = next.run_id AND t.n = next.n
    RETURNING t.run_id, t.n, t.fence)
SELECT s.run_id, s.n, s.key, s.name, taken.fence, s.attempt + 1 AS attempt, s.losses, s.excused, s.attempts_max,
       s.timeout_s, s.input, s.retry, s.checkpoint, s.issued_at, s.error, s.effect
FROM taken JOIN holdfast.steps s ON s.run_id = taken.run_id AND s.n = taken.n

-- name: lost_twins
SELECT u.run_id, u.n FROM unnest($2::text[], $3::int[], $4::int[]) u(run_id, n, fence)
LEFT JOIN holdfast.twins t ON t.run_id = u.run_id AND t.n = u.n AND t.fence = u.fence AND t.agent = $1
LEFT JOIN holdfast.steps s ON s.run_id = t.run_id AND s.n = t.n AND s.finished_at IS NULL
WHERE s.run_id IS NULL

-- name: end_twin
UPDATE holdfast.twins SET state = $5, ended_at = clock_timestamp(), fence = fence + 1
WHERE run_id = $1 AND n = $2 AND fence = $3 AND agent = $4
  AND EXISTS (SELECT FROM holdfast.nodes WHERE id = $4 AND retired_at IS NULL)
RETURNING started_at

-- name: twin_won_before
SELECT 1 FROM holdfast.twins WHERE run_id = $1 AND n = $2 AND fence = $3::int + 1 AND agent = $4 AND state = 'won'

-- The attempt that was outrun, as it will stand beside the step.
-- name: keep_outrun
INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error, started_at)
SELECT run_id, n, attempt, 'refused', agent, $3, started_at FROM holdfast.steps
WHERE run_id = $1 AND n = $2 AND state = 'running' FOR NO KEY UPDATE

-- A step in quarantine waits for a person, not for its twin.
-- name: take_twins_outcome
UPDATE holdfast.steps SET state = 'succeeded', output = $3, error = NULL, finished_at = clock_timestamp(),
                          fence = fence + 1, agent = $4, started_at = $5, complete_by = NULL
WHERE run_id = $1 AND n = $2 AND finished_at IS NULL AND ready_at < to_timestamp(253402300799)
RETURNING 1

-- name: outrun_twin
UPDATE holdfast.twins SET state = 'outrun' WHERE run_id = $1 AND n = $2 AND state = 'won'

-- name: bar_twin
INSERT INTO holdfast.twins (run_id, n, state, step_fence, lane, ended_at) VALUES ($1, $2, 'barred', 0, 0, clock_timestamp())
ON CONFLICT (run_id, n) DO UPDATE SET state = 'barred', ended_at = excluded.ended_at, fence = twins.fence + 1
WHERE twins.state = 'ready'

-- name: stop_twin
UPDATE holdfast.twins SET state = 'outrun', ended_at = clock_timestamp(), fence = fence + 1
WHERE run_id = $1 AND n = $2 AND ended_at IS NULL

-- name: twin
SELECT run_id, n, state, not_agent, agent, made_at, started_at, ended_at FROM holdfast.twins WHERE run_id = $1 AND n = $2

-- name: twins
SELECT run_id, n, state, not_agent, agent, made_at, started_at, ended_at FROM holdfast.twins WHERE run_id = $1 ORDER BY n

-- What is left of twins whose step has ended, went back, is gone or in quarantine, or whose agent is lost.
-- name: sweep_twins
WITH leads AS (
    SELECT epoch FROM holdfast.leases WHERE name = 'leader' AND epoch = $1 AND expires_at > clock_timestamp() FOR SHARE),
idle AS (
    SELECT t.run_id, t.n FROM holdfast.twins t
    LEFT JOIN holdfast.steps s ON s.run_id = t.run_id AND s.n = t.n
    WHERE t.ended_at IS NULL AND EXISTS (SELECT FROM leads)
      AND (s.run_id IS NULL OR s.finished_at IS NOT NULL OR s.ready_at >= to_timestamp(253402300799) OR (t.state = 'ready' AND s.fence <> t.step_fence)
           OR (t.state = 'running'
               AND NOT EXISTS (SELECT FROM holdfast.nodes a WHERE a.id = t.agent AND a.retired_at IS NULL)))
    ORDER BY t.made_at LIMIT $2
    FOR UPDATE OF t SKIP LOCKED)
UPDATE holdfast.twins t SET state = 'outrun', ended_at = clock_timestamp(), fence = t.fence + 1
FROM idle WHERE t.run_id = idle.run_id AND t.n = idle.n
RETURNING 1

-- name: prune_twins
DELETE FROM holdfast.twins WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM holdfast.twins WHERE run_id = ANY($1::text[]) LIMIT $2))
