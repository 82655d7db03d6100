-- What schedulers and agents claim. A claim raises the fence, so that late writes of an earlier owner or agent find no
-- row. A node that was reclaimed claims nothing more. These claim only what is in queue 0: queues.sql has the others.
-- A run that is to begin later is in a queue below 0, from which nobody claims.

-- name: is_member
SELECT 1 WHERE {is_member(?1)}

-- Ready steps are looked at one (lane, priority) at a time. Only within one of these does the index separate the steps
-- that are due from those that back off. So a lane full of steps that back off costs nothing.

-- name: any_ready
SELECT 1 FROM steps INDEXED BY steps_ready WHERE state = 'ready' LIMIT 1

-- Those of these lanes that are not behind a gate.
-- name: passable_lanes
SELECT u.value FROM json_each(?1) u LEFT JOIN lanes l ON l.id = u.value WHERE {passable(l)}

-- name: next_priority
SELECT priority FROM steps INDEXED BY steps_ready
WHERE state = 'ready' AND lane = ?1 AND priority < ?2 ORDER BY priority DESC LIMIT 1

-- name: due_steps
SELECT s.priority, s.ready_at, s.run_id, s.n, s.fence, s.losses
FROM steps s INDEXED BY steps_ready CROSS JOIN runs r ON r.id = s.run_id
WHERE s.state = 'ready' AND s.lane = ?1 AND s.priority = ?2 AND s.queue = 0 AND s.ready_at <= ?3 AND s.losses < ?4 AND {goes_on(r)}
ORDER BY s.ready_at LIMIT ?5

-- The same for a node that works only on certain runs.
-- name: due_steps_of
SELECT s.priority, s.ready_at, s.run_id, s.n, s.fence, s.losses, s.lane
FROM runs r CROSS JOIN steps s INDEXED BY sqlite_autoindex_steps_1 ON s.run_id = r.id
WHERE r.id = ?1 AND s.run_id = ?1 AND s.state = 'ready' AND s.queue = 0 AND s.ready_at <= ?2 AND s.losses < ?3 AND {goes_on(r)}

-- name: claim_steps
UPDATE steps SET state = 'running', agent = ?4, attempt = attempt + 1, fence = fence + 1, started_at = ?5,
                 complete_by = ?5 + timeout_s
WHERE run_id = ?1 AND n = ?2 AND fence = ?3
RETURNING {ClaimedStep}

-- Those of these lanes whose steps can be probes of this breaker.
-- name: probe_lanes
SELECT id FROM lanes WHERE depends = ?1 AND id IN (SELECT value FROM json_each(?2))
  AND NOT EXISTS (SELECT 1 FROM holds WHERE scope = 'step' AND value = lanes.name)

-- name: awake_runs
SELECT r.priority, r.created_at, r.id, r.workflow, r.version
FROM (SELECT run_id FROM steps INDEXED BY steps_undelivered
      WHERE delivered_seq IS NULL AND finished_at IS NOT NULL
      UNION SELECT run_id FROM signals INDEXED BY signals_undelivered WHERE delivered_seq IS NULL) awake
CROSS JOIN runs r ON r.id = awake.run_id
WHERE +r.owner IS NULL AND {active(r)}

-- One run, if it is pending or has something to deliver, for a node that works only on certain runs.
-- name: claimable_run
SELECT r.priority, r.created_at, r.id, r.workflow, r.version FROM runs r
WHERE r.id = ?1 AND +r.owner IS NULL AND ((+r.state = 'pending' AND r.queue = 0) OR ({active(r)} AND (
      EXISTS (SELECT 1 FROM steps INDEXED BY steps_undelivered
              WHERE run_id = r.id AND delivered_seq IS NULL AND finished_at IS NOT NULL)
      OR EXISTS (SELECT 1 FROM signals INDEXED BY signals_undelivered WHERE run_id = r.id AND delivered_seq IS NULL))))

-- name: history_size
SELECT coalesce(max(n), 0) FROM steps WHERE run_id = ?1

-- name: claim_run
UPDATE runs SET state = CASE state WHEN 'pending' THEN 'running' ELSE state END, owner = ?1, fence = fence + 1,
                started_at = coalesce(started_at, store_now())
WHERE id = ?2 AND +owner IS NULL AND (+state IN ('running', 'undoing') OR (+state = 'pending' AND queue = 0)) AND {is_member(?1)}
RETURNING {Run}
