-- Twins. The leader makes them and sweeps up those that nobody needs any more. Agents claim and end them. A twin has
-- its own fence. The step gets the twin's outcome only if it has not ended.

-- A step that has lost an agent gets no twin, because the step may be what kills agents.
-- name: make_twins
INSERT INTO twins (run_id, n, state, step_fence, lane, not_agent, made_at)
SELECT s.run_id, s.n, 'ready', s.fence, s.lane, s.agent, store_now()
FROM steps s CROSS JOIN runs r ON r.id = s.run_id
WHERE s.run_id = ?1 AND s.n = ?2 AND s.fence = ?3 AND +s.state = 'running' AND s.losses = 0 AND +r.state = 'running'
ON CONFLICT (run_id, n) DO NOTHING
RETURNING run_id, n

-- A twin may begin if the step has not changed since the twin was made, at any agent but the step's own. The same gates
-- apply to it as to any step.
-- name: ready_twins
SELECT t.run_id, t.n
FROM twins t INDEXED BY twins_live
CROSS JOIN steps s ON s.run_id = t.run_id AND s.n = t.n
CROSS JOIN runs r ON r.id = t.run_id
LEFT JOIN lanes l ON l.id = t.lane
WHERE t.ended_at IS NULL AND t.lane IN (SELECT value FROM json_each(?2)) AND t.state = 'ready' AND t.not_agent <> ?1
  AND s.fence = t.step_fence AND +r.state = 'running' AND {goes_on(r)} AND {passable(l)} AND {is_member(?1)}
ORDER BY t.made_at LIMIT ?3

-- name: claim_twins
UPDATE twins SET state = 'running', agent = ?3, started_at = store_now(), fence = fence + 1
WHERE run_id = ?1 AND n = ?2 AND state = 'ready'

-- The step as the agent of its twin gets it: with the twin's fence, and as the step's next attempt.
-- name: twin_steps
SELECT s.run_id, s.n, s.key, s.name, t.fence, s.attempt + 1, s.losses, s.excused, s.attempts_max, s.timeout_s, s.input, s.retry,
       s.checkpoint, s.issued_at, s.error, s.timeouts, s.throttled, s.effect
FROM twins t CROSS JOIN steps s ON s.run_id = t.run_id AND s.n = t.n
WHERE t.run_id = ?1 AND t.n = ?2

-- name: lost_twins
SELECT ?1, ?2 WHERE NOT EXISTS (
    SELECT 1 FROM twins t CROSS JOIN steps s ON s.run_id = t.run_id AND s.n = t.n
    WHERE t.run_id = ?1 AND t.n = ?2 AND t.fence = ?3 AND +t.agent = ?4 AND s.finished_at IS NULL)

-- The twins that an agent executes, in one order for everybody.
-- name: held_twins
SELECT run_id, n, fence FROM twins INDEXED BY twins_live
WHERE ended_at IS NULL AND state = 'running' AND +agent = ?1 ORDER BY run_id, n

-- name: end_twin
UPDATE twins SET state = ?5, ended_at = store_now(), fence = fence + 1
WHERE run_id = ?1 AND n = ?2 AND fence = ?3 AND agent = ?4 AND {is_member(?4)}
RETURNING started_at

-- name: twin_won_before
SELECT 1 FROM twins WHERE run_id = ?1 AND n = ?2 AND fence = ?3 + 1 AND agent = ?4 AND +state = 'won'

-- Keeps the attempt that was outrun.
-- name: keep_outrun
INSERT INTO attempts (run_id, n, attempt, ending, agent, error, started_at, finished_at, ready_at)
SELECT run_id, n, attempt, 'refused', agent, ?3, started_at, store_now(), ready_at FROM steps
WHERE run_id = ?1 AND n = ?2 AND +state = 'running'

-- A step in quarantine waits for a person, so its twin cannot outrun it.
-- name: outrun_step
UPDATE steps SET state = 'succeeded', output = ?3, error = NULL, finished_at = store_now(), fence = fence + 1, agent = ?4,
                 started_at = ?5, complete_by = NULL
WHERE run_id = ?1 AND n = ?2 AND finished_at IS NULL AND NOT {quarantined(steps)}

-- name: outrun_twin
UPDATE twins SET state = 'outrun' WHERE run_id = ?1 AND n = ?2 AND +state = 'won'

-- name: bar_twin
INSERT INTO twins (run_id, n, state, step_fence, lane, made_at, ended_at) VALUES (?1, ?2, 'barred', 0, 0, store_now(), store_now())
ON CONFLICT (run_id, n) DO UPDATE SET state = 'barred', ended_at = excluded.ended_at, fence = fence + 1
WHERE state = 'ready'

-- name: stop_twin
UPDATE twins SET state = 'outrun', ended_at = store_now(), fence = fence + 1 WHERE run_id = ?1 AND n = ?2 AND +ended_at IS NULL

-- name: twin
SELECT {Twin} FROM twins WHERE run_id = ?1 AND n = ?2

-- name: twins
SELECT {Twin} FROM twins WHERE run_id = ?1 ORDER BY n

-- Twins that nobody needs any more. Their step has ended, is in quarantine, no longer exists or has changed before they
-- began, or their agent is gone.
-- name: idle_twins
SELECT t.run_id, t.n FROM twins t INDEXED BY twins_live
LEFT JOIN steps s ON s.run_id = t.run_id AND s.n = t.n
WHERE t.ended_at IS NULL
  AND (s.run_id IS NULL OR s.finished_at IS NOT NULL OR {quarantined(s)} OR (t.state = 'ready' AND s.fence <> t.step_fence)
       OR (t.state = 'running' AND NOT {is_member(t.agent)}))
LIMIT ?1

-- name: sweep_twins
UPDATE twins SET state = 'outrun', ended_at = store_now(), fence = fence + 1 WHERE run_id = ?1 AND n = ?2 AND +ended_at IS NULL
