-- Twins: made and swept by the leader, taken up and ended by agents. A twin's fence guards the twin; the step takes its
-- outcome only while it has none.

-- A step that has lost an agent may be what kills them: it gets none.
-- name: make_twins
INSERT INTO twins (run_id, n, state, step_fence, lane, not_agent, made_at)
SELECT s.run_id, s.n, 'ready', s.fence, s.lane, s.agent, ?4
FROM steps s CROSS JOIN runs r ON r.id = s.run_id
WHERE s.run_id = ?1 AND s.n = ?2 AND s.fence = ?3 AND +s.state = 'running' AND s.losses = 0 AND +r.state = 'running'
ON CONFLICT (run_id, n) DO NOTHING
RETURNING run_id, n

-- A twin may begin while the step is as it was when the twin was made, on any agent but the step's own, and through the
-- same gates as any step.
-- name: ready_twins
SELECT t.made_at, t.run_id, t.n, t.fence
FROM twins t INDEXED BY twins_live
CROSS JOIN steps s ON s.run_id = t.run_id AND s.n = t.n
CROSS JOIN runs r ON r.id = t.run_id
WHERE t.ended_at IS NULL AND t.lane = ?1 AND t.state = 'ready' AND t.not_agent <> ?2
  AND s.fence = t.step_fence AND +r.state = 'running'
  AND NOT EXISTS (SELECT 1 FROM lanes l CROSS JOIN breakers b ON b.name = l.depends WHERE l.id = ?1 AND b.state <> 'closed')
  AND NOT EXISTS (SELECT 1 FROM holds h LEFT JOIN lanes l ON l.id = ?1
                  WHERE h.scope = 'all' OR (h.scope = 'dependency' AND h.value = l.depends)
                     OR (h.scope = 'step' AND h.value = s.name) OR (h.scope = 'workflow' AND h.value = r.workflow)
                     OR (h.scope = 'namespace' AND h.value = r.namespace))
ORDER BY t.made_at LIMIT ?3

-- name: claim_twin
UPDATE twins SET state = 'running', agent = ?1, started_at = ?2, fence = fence + 1
WHERE run_id = ?3 AND n = ?4 AND fence = ?5

-- name: twin_step
SELECT s.run_id, s.n, s.key, s.name, t.fence, s.attempt + 1 AS attempt, s.losses, s.excused, s.attempts_max, s.timeout_s,
       s.input, s.retry, s.checkpoint, s.issued_at, s.error, s.effect
FROM twins t CROSS JOIN steps s ON s.run_id = t.run_id AND s.n = t.n
WHERE t.run_id = ? AND t.n = ?

-- name: holds_twin
SELECT 1 FROM twins t CROSS JOIN steps s ON s.run_id = t.run_id AND s.n = t.n
WHERE t.run_id = ? AND t.n = ? AND t.fence = ? AND +t.agent = ? AND +t.state = 'running' AND s.finished_at IS NULL

-- name: end_twin
UPDATE twins SET state = ?, ended_at = ?, fence = fence + 1 WHERE run_id = ? AND n = ? AND fence = ? AND agent = ?

-- name: twin_won_before
SELECT 1 FROM twins WHERE run_id = ? AND n = ? AND fence = ? + 1 AND agent = ? AND +state = 'won'

-- The attempt that was outrun, as it will stand beside the step.
-- name: keep_outrun
INSERT INTO attempts (run_id, n, attempt, ending, agent, error, started_at, finished_at)
SELECT run_id, n, attempt, 'refused', agent, ?3, started_at, ?4 FROM steps
WHERE run_id = ?1 AND n = ?2 AND +state = 'running' AND finished_at IS NULL

-- A step in quarantine waits for a person, not for its twin.
-- name: take_twins_outcome
UPDATE steps SET state = 'succeeded', output = ?1, error = NULL, finished_at = ?2, fence = fence + 1, agent = ?3,
                 started_at = ?4, complete_by = NULL
WHERE run_id = ?5 AND n = ?6 AND finished_at IS NULL AND +ready_at < 253402300799

-- name: outrun_twin
UPDATE twins SET state = 'outrun' WHERE run_id = ? AND n = ? AND +state = 'won'

-- name: bar_twin
INSERT INTO twins (run_id, n, state, step_fence, lane, made_at, ended_at) VALUES (?1, ?2, 'barred', 0, 0, ?3, ?3)
ON CONFLICT (run_id, n) DO UPDATE SET state = 'barred', ended_at = excluded.ended_at, fence = fence + 1
WHERE state = 'ready'

-- name: stop_twin
UPDATE twins SET state = 'outrun', ended_at = ?, fence = fence + 1 WHERE run_id = ? AND n = ? AND +ended_at IS NULL

-- name: twin
SELECT run_id, n, state, not_agent, agent, made_at, started_at, ended_at FROM twins WHERE run_id = ? AND n = ?

-- name: twins
SELECT run_id, n, state, not_agent, agent, made_at, started_at, ended_at FROM twins WHERE run_id = ? ORDER BY n

-- What is left of twins whose step has ended, went back, is gone or in quarantine, or whose agent is lost.
-- name: idle_twins
SELECT t.run_id, t.n, t.fence FROM twins t INDEXED BY twins_live
LEFT JOIN steps s ON s.run_id = t.run_id AND s.n = t.n
WHERE t.ended_at IS NULL
  AND (s.run_id IS NULL OR s.finished_at IS NOT NULL OR s.ready_at >= 253402300799 OR (t.state = 'ready' AND s.fence <> t.step_fence)
       OR (t.state = 'running'
           AND NOT EXISTS (SELECT 1 FROM nodes a WHERE a.id = t.agent AND a.retired_at IS NULL)))
LIMIT ?

-- name: sweep_twin
UPDATE twins SET state = 'outrun', ended_at = ?, fence = fence + 1 WHERE run_id = ? AND n = ? AND fence = ?

-- name: prune_twins
DELETE FROM twins WHERE rowid IN (SELECT rowid FROM twins WHERE run_id = ? LIMIT ?)
