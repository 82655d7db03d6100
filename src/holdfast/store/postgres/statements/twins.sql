-- Twins. The leader makes them and sweeps up those that nobody needs any more. Agents claim and end them. A twin has
-- its own fence. The step gets the twin's outcome only if it has not ended. A transaction that locks both rows locks
-- the twin's first.

-- A step that has lost an agent gets no twin, because the step may be what kills agents.
-- name: make_twins
INSERT INTO holdfast.twins (run_id, n, state, step_fence, lane, not_agent)
SELECT s.run_id, s.n, 'ready', s.fence, s.lane, s.agent
FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, fence)
JOIN holdfast.steps s ON s.run_id = u.run_id AND s.n = u.n AND s.fence = u.fence AND s.state = 'running' AND s.losses = 0
JOIN holdfast.runs r ON r.id = s.run_id AND r.state = 'running'
ON CONFLICT (run_id, n) DO NOTHING
RETURNING run_id, n

-- A twin may begin if the step has not changed since the twin was made, at any agent but the step's own. The same gates
-- apply to it as to any step.
-- name: ready_twins
SELECT t.run_id, t.n FROM holdfast.twins t
JOIN holdfast.steps s ON s.run_id = t.run_id AND s.n = t.n AND s.fence = t.step_fence
JOIN holdfast.runs r ON r.id = t.run_id AND r.state = 'running' AND {goes_on(r)}
LEFT JOIN holdfast.lanes l ON l.id = t.lane
WHERE t.ended_at IS NULL AND t.state = 'ready' AND t.lane = ANY($2::int[]) AND t.not_agent <> $1 AND {is_member($1)}
  AND {passable(l)}
ORDER BY t.made_at LIMIT $3
FOR UPDATE OF t SKIP LOCKED

-- name: claim_twins
UPDATE holdfast.twins t SET state = 'running', agent = $3, started_at = clock_timestamp(), fence = t.fence + 1
FROM unnest($1::text[], $2::int[]) u(run_id, n)
WHERE t.run_id = u.run_id AND t.n = u.n AND t.state = 'ready'

-- The step as the agent of its twin gets it: with the twin's fence, and as the step's next attempt.
-- name: twin_steps
SELECT s.run_id, s.n, s.key, s.name, t.fence, s.attempt + 1, s.losses, s.excused, s.attempts_max, s.timeout_s, s.input, s.retry,
       s.checkpoint, s.issued_at, s.error, s.timeouts, s.throttled, s.effect
FROM unnest($1::text[], $2::int[]) u(run_id, n)
JOIN holdfast.twins t ON t.run_id = u.run_id AND t.n = u.n
JOIN holdfast.steps s ON s.run_id = t.run_id AND s.n = t.n

-- name: lost_twins
SELECT u.run_id, u.n FROM unnest($1::text[], $2::int[], $3::int[]) u(run_id, n, fence)
LEFT JOIN holdfast.twins t ON t.run_id = u.run_id AND t.n = u.n AND t.fence = u.fence AND t.agent = $4
LEFT JOIN holdfast.steps s ON s.run_id = t.run_id AND s.n = t.n AND s.finished_at IS NULL
WHERE s.run_id IS NULL

-- The twins that an agent executes, in one order for everybody.
-- name: held_twins
SELECT run_id, n, fence FROM holdfast.twins
WHERE ended_at IS NULL AND state = 'running' AND agent = $1 ORDER BY run_id, n

-- name: end_twin
UPDATE holdfast.twins SET state = $5, ended_at = clock_timestamp(), fence = fence + 1
WHERE run_id = $1 AND n = $2 AND fence = $3 AND agent = $4 AND {is_member($4)}
RETURNING started_at

-- name: twin_won_before
SELECT 1 FROM holdfast.twins WHERE run_id = $1 AND n = $2 AND fence = $3::int + 1 AND agent = $4 AND state = 'won'

-- Keeps the attempt that was outrun.
-- name: keep_outrun
INSERT INTO holdfast.attempts (run_id, n, attempt, ending, agent, error, started_at, ready_at)
SELECT run_id, n, attempt, 'refused', agent, $3, started_at, ready_at FROM holdfast.steps
WHERE run_id = $1 AND n = $2 AND state = 'running' FOR NO KEY UPDATE

-- A step in quarantine waits for a person, so its twin cannot outrun it.
-- name: outrun_step
UPDATE holdfast.steps s SET state = 'succeeded', output = $3, error = NULL, finished_at = clock_timestamp(),
                   fence = s.fence + 1, agent = $4, started_at = $5, complete_by = NULL
WHERE s.run_id = $1 AND s.n = $2 AND s.finished_at IS NULL AND NOT {quarantined(s)}

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
SELECT {Twin} FROM holdfast.twins WHERE run_id = $1 AND n = $2

-- name: twins
SELECT {Twin} FROM holdfast.twins WHERE run_id = $1 ORDER BY n

-- Twins that nobody needs any more. Their step has ended, is in quarantine, no longer exists or has changed before they
-- began, or their agent is gone.
-- name: idle_twins
SELECT t.run_id, t.n FROM holdfast.twins t
LEFT JOIN holdfast.steps s ON s.run_id = t.run_id AND s.n = t.n
WHERE t.ended_at IS NULL
  AND (s.run_id IS NULL OR s.finished_at IS NOT NULL OR {quarantined(s)} OR (t.state = 'ready' AND s.fence <> t.step_fence)
       OR (t.state = 'running' AND NOT {is_member(t.agent)}))
ORDER BY t.made_at LIMIT $1
FOR UPDATE OF t SKIP LOCKED

-- name: sweep_twins
UPDATE holdfast.twins t SET state = 'outrun', ended_at = clock_timestamp(), fence = t.fence + 1
FROM unnest($1::text[], $2::int[]) u(run_id, n) WHERE t.run_id = u.run_id AND t.n = u.n AND t.ended_at IS NULL
