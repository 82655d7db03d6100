-- What agents write: only steps they hold, named by (run, n, fence); and what they claim.

-- name: report
UPDATE steps SET state = ?, output = ?, error = ?, finished_at = ?, fence = fence + 1
WHERE run_id = ? AND n = ? AND fence = ?

-- name: reported_before
SELECT 1 FROM steps
WHERE run_id = ? AND n = ? AND fence = ? + 1 AND agent = ? AND +state = ?

-- name: refuse_report
INSERT INTO attempts (run_id, n, attempt, ending, agent, error, finished_at)
SELECT run_id, n, attempt, 'refused', ?3, ?4, ?5 FROM steps WHERE run_id = ?1 AND n = ?2

-- name: keep_attempt
INSERT INTO attempts (run_id, n, attempt, ending, agent, error, started_at, finished_at)
SELECT run_id, n, attempt, ?4, agent, ?5, started_at, ?6 FROM steps WHERE run_id = ?1 AND n = ?2 AND fence = ?3

-- name: try_again
UPDATE steps SET state = 'ready', fence = fence + 1, agent = NULL, complete_by = NULL, excused = excused + ?,
                 losses = losses + ?, timeouts = timeouts + ?, throttled = throttled + ?, error = ?, ready_at = ?
WHERE run_id = ? AND n = ? AND fence = ?

-- name: hand_back
UPDATE steps SET state = 'ready', fence = fence + 1, agent = NULL, complete_by = NULL, excused = excused + 1
WHERE run_id = ? AND n = ? AND fence = ?

-- name: save
UPDATE steps SET checkpoint = coalesce(?, checkpoint), progress = coalesce(?, progress)
WHERE run_id = ? AND n = ? AND fence = ?

-- name: lanes
SELECT id, name, needs, nullif(undo, ''), depends FROM lanes ORDER BY id

-- name: lane
SELECT id FROM lanes WHERE name = ? AND needs = ? AND undo = ? AND depends = ?

-- name: make_lane
INSERT INTO lanes (name, needs, undo, depends) VALUES (?, ?, ?, ?) ON CONFLICT (name, needs, undo, depends) DO NOTHING

-- Ready steps are looked at one (lane, priority) at a time, because only inside one are those that are due apart from
-- those that back off: a lane full of steps that back off costs nothing.

-- name: any_ready
SELECT 1 FROM steps INDEXED BY steps_ready WHERE state = 'ready' LIMIT 1

-- name: next_priority
SELECT priority FROM steps INDEXED BY steps_ready
WHERE state = 'ready' AND lane = ? AND priority < ? ORDER BY priority DESC LIMIT 1

-- name: due_steps
SELECT s.priority, s.ready_at, s.run_id, s.n, s.fence, s.losses
FROM steps s INDEXED BY steps_ready CROSS JOIN runs r ON r.id = s.run_id
WHERE s.state = 'ready' AND s.lane = ? AND s.priority = ? AND s.ready_at <= ? AND s.losses < ? AND +r.state IN ('running', 'undoing')
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'workflow' AND value = r.workflow)
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'namespace' AND value = r.namespace)
ORDER BY s.ready_at LIMIT ?

-- The same for a node that works on some runs only.
-- name: due_steps_of
SELECT s.priority, s.ready_at, s.run_id, s.n, s.fence, s.losses, s.lane
FROM runs r CROSS JOIN steps s INDEXED BY sqlite_autoindex_steps_1 ON s.run_id = r.id
WHERE r.id = ?1 AND s.run_id = ?1 AND s.state = 'ready' AND s.ready_at <= ?2 AND s.losses < ?3 AND +r.state IN ('running', 'undoing')
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'workflow' AND value = r.workflow)
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'namespace' AND value = r.namespace)

-- name: claim_step
UPDATE steps SET state = 'running', agent = ?1, attempt = attempt + 1, fence = fence + 1, started_at = ?2,
                 complete_by = ?2 + timeout_s
WHERE run_id = ?3 AND n = ?4 AND fence = ?5
RETURNING run_id, n, key, name, fence, attempt, losses, excused, attempts_max, timeout_s, input, retry, checkpoint,
          issued_at, error, timeouts, throttled, effect

-- name: holds_step
SELECT 1 FROM steps WHERE run_id = ? AND n = ? AND fence = ? AND +state = 'running' AND +agent = ?

-- name: next_ready
SELECT ready_at FROM steps INDEXED BY steps_ready
WHERE state = 'ready' AND lane = ? AND priority = ? AND ready_at > ? ORDER BY ready_at LIMIT 1

-- name: next_ready_of
SELECT lane, ready_at FROM steps INDEXED BY sqlite_autoindex_steps_1
WHERE run_id = ? AND state = 'ready' AND ready_at > ?
