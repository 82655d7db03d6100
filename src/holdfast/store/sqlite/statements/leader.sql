-- Leading, and what the leader does about nodes that are gone and attempts that are overdue. Each of its transactions
-- first checks that its epoch is the current one (`leads`).

-- The holder of a lease can renew it. Others can take it if it has no holder, has run out, or its holder is gone. A
-- node that takes it over notes for how long it was not renewed, and who had it before.
-- name: lead
INSERT INTO leases (name, holder, epoch, expires_at, since, renewed_at)
VALUES (?3, ?1, 1, store_now() + ?2, store_now(), store_now())
ON CONFLICT (name) DO UPDATE
SET holder = ?1, expires_at = excluded.expires_at, renewed_at = excluded.renewed_at,
    epoch = CASE WHEN holder IS ?1 AND expires_at > excluded.renewed_at THEN epoch ELSE epoch + 1 END,
    since = CASE WHEN holder IS ?1 AND expires_at > excluded.renewed_at THEN since ELSE excluded.since END,
    vacant_s = CASE WHEN holder IS ?1 AND expires_at > excluded.renewed_at THEN vacant_s
                    ELSE excluded.renewed_at - renewed_at END,
    predecessor = CASE WHEN holder IS ?1 AND expires_at > excluded.renewed_at THEN predecessor ELSE holder END
WHERE holder = ?1 OR holder IS NULL OR expires_at <= excluded.renewed_at
   OR EXISTS (SELECT 1 FROM nodes WHERE nodes.id = leases.holder
              AND (nodes.retired_at IS NOT NULL OR nodes.gone_at IS NOT NULL))
RETURNING epoch

-- name: leader
SELECT holder, epoch, expires_at, since, vacant_s, predecessor FROM leases WHERE name = ?1 AND holder IS NOT NULL

-- name: leads
SELECT 1 FROM leases WHERE name = ?1 AND epoch = ?2 AND expires_at > store_now()

-- name: resign
UPDATE leases SET holder = NULL, expires_at = store_now(), renewed_at = store_now() WHERE holder = ?1

-- name: lapsed_nodes
SELECT {SeenNode} FROM nodes INDEXED BY nodes_live
WHERE retired_at IS NULL AND lease_until < (SELECT store_now()) ORDER BY lease_until LIMIT 1000

-- Nodes that have a step or a run. This looks into the index once for each node, however much it has.
-- name: busy_nodes
WITH RECURSIVE
    agents (id) AS (
        SELECT min(agent) FROM steps WHERE state = 'running'
        UNION ALL
        SELECT (SELECT min(agent) FROM steps WHERE state = 'running' AND agent > agents.id) FROM agents
        WHERE agents.id IS NOT NULL),
    owners (id) AS (
        SELECT min(owner) FROM runs WHERE owner IS NOT NULL
        UNION ALL
        SELECT (SELECT min(owner) FROM runs WHERE owner IS NOT NULL AND owner > owners.id) FROM owners
        WHERE owners.id IS NOT NULL)
SELECT id FROM agents WHERE id IS NOT NULL UNION SELECT id FROM owners WHERE id IS NOT NULL

-- Those of these nodes that have no row, or have left or were reclaimed. A paused process may have claimed after it was
-- reclaimed.
-- name: strangers
SELECT u.value FROM json_each(?1) u
WHERE NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = u.value AND n.retired_at IS NULL)

-- name: lock_node
SELECT {SeenNode} FROM nodes WHERE id = ?1

-- name: free_runs
UPDATE runs SET owner = NULL, fence = fence + 1, state = {freed(runs)}
WHERE id IN (SELECT id FROM runs INDEXED BY runs_owned WHERE owner = ?1 LIMIT ?2)

-- The steps that an agent has, with what the leader needs to decide about each.
-- name: lost_by
SELECT {LostStep} FROM steps INDEXED BY steps_held WHERE state = 'running' AND agent = ?1 LIMIT ?2

-- Finds the overdue steps of each agent, because the index begins with the agent.
-- name: overdue_steps
WITH RECURSIVE agents (id) AS (
    SELECT min(agent) FROM steps WHERE state = 'running'
    UNION ALL
    SELECT (SELECT min(agent) FROM steps WHERE state = 'running' AND agent > agents.id) FROM agents
    WHERE agents.id IS NOT NULL)
SELECT {LostStep(s)} FROM agents a CROSS JOIN steps s INDEXED BY steps_held ON s.agent = a.id
WHERE s.state = 'running' AND s.complete_by < (SELECT store_now() - ?1) LIMIT ?2

-- name: reclaim_steps
UPDATE steps SET fence = fence + 1, complete_by = NULL, agent = NULL, state = ?4, losses = losses + ?6, timeouts = timeouts + ?7,
                 error = coalesce(?8, error), finished_at = CASE WHEN ?4 = 'failed' THEN store_now() END,
                 ready_at = CASE WHEN ?5 IS NULL THEN {never} ELSE store_now() + ?5 END
WHERE run_id = ?1 AND n = ?2 AND fence = ?3

-- Retires a node only if it has no run and no step left.
-- name: retire_reclaimed
UPDATE nodes SET retired_at = store_now() WHERE id = ?1 AND retired_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_owned WHERE owner = ?1)
  AND NOT EXISTS (SELECT 1 FROM steps INDEXED BY steps_held WHERE state = 'running' AND agent = ?1)

-- Signals that came too late: their run has ended.
-- name: late_signals
SELECT s.id FROM signals s INDEXED BY signals_undelivered CROSS JOIN runs r ON r.id = s.run_id
WHERE s.delivered_seq IS NULL AND r.finished_at IS NOT NULL ORDER BY s.run_id, s.id LIMIT ?1

-- name: close_signals
UPDATE signals SET delivered_seq = 0 WHERE id = ?1 AND +delivered_seq IS NULL

-- What there is for the leader to do, in one look at the beginning of its pass: each column is the beginning of one index. So
-- a duty for which there is nothing costs no more than that. See `Duties` for the columns.
-- name: duties
WITH RECURSIVE agents (id) AS (
    SELECT min(agent) FROM steps WHERE state = 'running'
    UNION ALL
    SELECT (SELECT min(agent) FROM steps WHERE state = 'running' AND agent > agents.id) FROM agents
    WHERE agents.id IS NOT NULL)
SELECT (SELECT store_now()),
       (SELECT next_at FROM schedules INDEXED BY schedules_due WHERE state = 'active' ORDER BY next_at LIMIT 1),
       (SELECT next_at FROM composed_times INDEXED BY composed_times_due WHERE next_at IS NOT NULL ORDER BY next_at LIMIT 1),
       (SELECT ends_at FROM occasions INDEXED BY occasions_due WHERE state = 'open' ORDER BY ends_at LIMIT 1),
       (SELECT next_at FROM asks INDEXED BY asks_next WHERE state = 'open' AND next_at IS NOT NULL ORDER BY next_at LIMIT 1),
       (SELECT complete_by FROM steps INDEXED BY steps_callbacks
        WHERE state = 'waiting' AND kind = 'callback' AND complete_by IS NOT NULL ORDER BY complete_by LIMIT 1),
       EXISTS (SELECT 1 FROM agents a CROSS JOIN steps s INDEXED BY steps_held ON s.agent = a.id
               WHERE s.state = 'running' AND s.complete_by < (SELECT store_now() - ?1)),
       EXISTS (SELECT 1 FROM breakers WHERE forced = 0 AND (state <> 'closed' OR window_at > (SELECT store_now() - ?2))),
       EXISTS (SELECT 1 FROM fires INDEXED BY fires_open WHERE ended = 0)
           OR EXISTS (SELECT 1 FROM backfills INDEXED BY backfills_running WHERE state = 'running'),
       EXISTS (SELECT 1 FROM twins INDEXED BY twins_live WHERE ended_at IS NULL),
       EXISTS (SELECT 1 FROM failures),
       EXISTS (SELECT 1 FROM acts INDEXED BY acts_running WHERE state = 'running'),
       EXISTS (SELECT 1 FROM quarantine),
       EXISTS (SELECT 1 FROM limits INDEXED BY limits_reported WHERE adaptive),
       EXISTS (SELECT 1 FROM signals INDEXED BY signals_undelivered WHERE delivered_seq IS NULL),
       EXISTS (SELECT 1 FROM runs INDEXED BY runs_due WHERE due_at IS NOT NULL AND finished_at IS NULL)
           OR EXISTS (SELECT 1 FROM steps INDEXED BY steps_due WHERE due_at IS NOT NULL AND finished_at IS NULL),
       EXISTS (SELECT 1 FROM steps INDEXED BY steps_events
               WHERE kind = 'signal' AND state = 'waiting' AND substr(name, 1, 7) = '$event:'),
       EXISTS (SELECT 1 FROM declared)
